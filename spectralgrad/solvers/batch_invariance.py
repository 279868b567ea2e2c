"""The batch-invariant mode, in which the algorithm depends on the size and type of the matrices and on nothing else."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator


class _Contexts(threading.local):
    """The number of contexts that are active in this thread."""

    active = 0


_here = _Contexts()
anywhere: list[object] = []  # the active contexts of all threads: usually empty, which is quick to see


def active() -> bool:
    """True if the calling thread is in batch-invariant mode."""
    return bool(anywhere) and _here.active > 0


class batch_invariant(ContextDecorator):  # noqa: N801
    r"""Make the result for a matrix the same bit for bit, alone and in any batch. A context manager and a decorator.

    A batch is normally decomposed by the fastest algorithm for its size, so one matrix and a stack of a hundred may be
    served by different ones, whose results differ by rounding errors, or by the signs of eigenvectors. In this mode the
    algorithm depends on the size and type of the matrices alone:

    * ``eigh``, ``eigvalsh``, ``svd``, ``svdvals``: up to size 48 the kernel in SIMD lanes, above it the kernel one
      matrix at a time, and LAPACK one matrix at a time where the kernel is not used;
    * roots, their derivatives and the gradients of decompositions, where the kernel computes them.

    Not included are products by torch, on which larger functions are built: BLAS chooses its algorithm by the batch as
    well. The bits may differ between machines, versions of this library, and numbers of threads if LAPACK is used.

    It applies to the calling thread. It has to be active when the computation runs, so for the gradient also during
    the backward pass; for functions compiled by ``torch.compile`` it has to be entered outside of them.

    Example:
        >>> import spectralgrad as sg
        >>> A = torch.randn(50, 20, 20)
        >>> with sg.solvers.batch_invariant():
        ...     together = sg.eigh(A).eigenvectors
        ...     alone = torch.stack([sg.eigh(M).eigenvectors for M in A])
        >>> torch.equal(together, alone)
        True

    Reference: ``native/thresholds.py`` has the limits; docs/solvers.md says what they cost. The size 48 is the same on
    all machines; those up to which the kernel is used may be tuned, but do not depend on the batch.
    """

    def __enter__(self) -> batch_invariant:
        anywhere.append(self)
        _here.active += 1
        return self

    def __exit__(self, *error: object) -> None:
        _here.active -= 1
        anywhere.remove(self)
