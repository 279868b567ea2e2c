"""The public face of the doctor."""

from __future__ import annotations

from ...dispatch.arguments import check_count, checked
from .watch import Watch


@checked
def doctor(*, sample: int = 64, places: int = 200) -> Watch:
    r"""Find the spectral call that makes a gradient non-finite or untrustworthy, and what to write instead.

    Run a training step inside the context, then print the report. For every line of source that calls ``eigh``,
    ``svd`` or a function built on them, of torch or of this library, it gives the operation, shape and dtype, ties,
    gaps, rank and conditioning, what the backward pass delivered, and advice. Functions composed by hand,
    :math:`Vf(\lambda)V^H`, are recognised, and the function that has no gap problem is named.

    The results of the step do not change. Calls from the same line are aggregated, so memory does not grow with the
    number of steps; factors are kept until their graph is released. The doctor applies to the calling thread and to
    eager code: compiled functions are not examined, nor are gradients inside the transforms of torch.func.

    Args:
        sample: number of matrices of a batch whose cotangents are examined beyond being finite, evenly spaced; of this
            library's functions all are.
        places: number of lines of source in the report; calls from further lines are counted only.

    Returns:
        a context manager that returns a :class:`Report`. A backward pass after the context still enters the report.

    Raises:
        ArgumentError: ``sample`` or ``places`` is not positive.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> with doctor() as report:
        ...     w, V = torch.linalg.eigh(A)
        ...     root = V @ torch.diag(w.sqrt()) @ V.mT
        ...     root[0].sum().backward()
        >>> finding = report.findings[0]
        >>> finding.verdict, finding.ties, finding.composed[0].instead(is_svd=False)
        ('non-finite', 3, 'sg.matrix_sqrt(A)')

    Reference: :mod:`spectralgrad.autograd.existence` derives which derivatives do not exist, and when a composed
    function loses gradient.
    """
    check_count(sample, "sample", "doctor")
    check_count(places, "places", "doctor")
    return Watch(sample, places)
