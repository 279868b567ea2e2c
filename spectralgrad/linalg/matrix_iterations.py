"""Iterations that use matrix products only, as functions of their own."""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import Tensor

from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.iterations import newton_schulz as iterations
from ..dispatch.arguments import check_count
from ..dispatch.overrides import overridable
from ..errors import check_square
from ..precision import full_precision, narrow, widen


@overridable
def newton_schulz(
    A: Tensor, steps: int = 5, normalize: Literal["trace", "frobenius"] = "trace"
) -> tuple[Tensor, Tensor]:
    r"""Approximate :math:`A^{1/2}` and :math:`A^{-1/2}` by the coupled Newton–Schulz iteration.

    .. math:: Y\leftarrow\tfrac12Y(3I-ZY),\quad Z\leftarrow\tfrac12(3I-ZY)Z,\quad Y_0=A/\nu,\ Z_0=I,

    then :math:`A^{1/2}\approx\sqrt\nu\,Y` and :math:`A^{-1/2}\approx Z/\sqrt\nu`. The gradient differentiates the
    iteration.

    Args:
        A: positive semi-definite matrices (*, d, d).
        steps: number of iterations, at least 1.
        normalize: ``"trace"`` or ``"frobenius"`` for :math:`\nu`.

    Returns:
        the root and the inverse root, each (*, d, d); zero for a zero matrix.

    Raises:
        ArgumentError: ``steps`` or ``normalize`` is invalid.
        AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`matrix_sqrt`.

    Example:
        >>> Y, Z = newton_schulz(torch.diag(torch.tensor([1.0, 4.0])), steps=20)
        >>> Y.diagonal().round(decimals=4), Z.diagonal().round(decimals=4)
        (tensor([1., 2.]), tensor([1.0000, 0.5000]))

    Reference: Higham, Functions of Matrices (2008), Eq. 6.35; ICCV 2021, Eq. 7-9.
    """
    check_square(A, "newton_schulz")
    check_count(steps, "steps", "newton_schulz")
    domain = Domain.of(A, "newton_schulz", rtol=None, clamp=False)
    with full_precision(A):
        roots = partial(iterations.newton_schulz, steps=int(steps), normalize=normalize)
        Y, Z = homogeneous(lambda A: roots(domain.matrix(A)), (widen(A),), ((1,), (0.5, -0.5)))
        return narrow(Y, A.dtype), narrow(Z, A.dtype)
