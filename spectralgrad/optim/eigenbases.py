r"""Eigenbases that follow a matrix which changes slowly, such as the running statistics of an optimiser.

One step of orthogonal iteration from the old basis V, :math:`QR=AV`, costs a product and a QR factorisation instead of
a decomposition. If A changes by a small amount between two calls, the basis stays close to the eigenvectors, and one
step per call is enough (SOAP). Columns are sorted by their Rayleigh quotients first: orthogonal iteration converges in
the order of the columns, with ratios :math:`\lambda_{i+1}/\lambda_i`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..dispatch.arguments import check_count, checked
from ..dispatch.finite import check_finite
from ..dispatch.host import on_host_without_double
from ..errors import ShapeError, check_square
from ..linalg.decompositions import eigh
from ..precision import full_precision, largest, narrow, quotient, rounded_to, widen
from ..solvers.symmetry import checked_hermitian

__all__ = ["Eigenbasis", "eigenbasis"]


class Eigenbasis(NamedTuple):
    """An orthonormal basis in which matrices are nearly diagonal.

    Attributes:
        values: (*, d), the diagonal of :math:`V^HAV`, the Rayleigh quotients.
        vectors: V (*, d, d), with orthonormal columns.
        order: (*, d), the column of the old basis that each column continues, for permuting what an optimiser has
            accumulated in the old basis.
        residual: (*,), the Frobenius norm of the rest of :math:`V^HAV` over the norm of A; 0 for eigenvectors.
    """

    values: Tensor
    vectors: Tensor
    order: Tensor
    residual: Tensor


@checked
def eigenbasis(A: Tensor, start: Tensor | None = None, *, steps: int = 1) -> Eigenbasis:
    r"""Eigenvectors of positive semi-definite matrices, or a basis close to them that continues an older one.

    Without ``start`` the matrices are decomposed by :func:`spectralgrad.eigh`. With it, the columns are sorted by
    :math:`v_i^HAv_i`, ascending as in ``eigh``, and ``steps`` steps of orthogonal iteration follow. New columns have
    the sign of the old ones they continue: the diagonal of R is made positive.

    Args:
        A: positive semi-definite matrices (*, d, d), real or complex; half types are computed in float32.
        start: an older basis (*, d, d) with orthonormal columns.
        steps: steps of orthogonal iteration; SOAP takes one.

    Returns:
        the named tuple ``(values, vectors, order, residual)``, without gradient. Where ``residual`` is too large, call
        the function again without ``start``.

    Raises:
        ArgumentError: ``steps`` is not a positive integer.
        AsymmetricError: ``A`` is asymmetric beyond rounding error.
        NonFiniteError: the input contains NaN or Inf.
        ShapeError: ``start`` has another shape or dtype than ``A``.

    Example:
        >>> import spectralgrad as sg
        >>> A = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
        >>> basis = eigenbasis(A)
        >>> later = A + 0.01 * torch.eye(2)[[1, 0]]                  # the statistics of the next step
        >>> warm = eigenbasis(later, basis.vectors)
        >>> bool(warm.residual < 1e-2 < eigenbasis(later, torch.eye(2)).residual)
        True
        >>> V, w = warm.vectors, warm.values
        >>> root = (V * (w + 1e-8) ** -0.25) @ V.mT                 # A^(-1/4) for Shampoo
        >>> torch.allclose(root, sg.optim.inverse_root(later, 4, eps=1e-8), atol=1e-2)
        True

    Reference: Vyas et al., SOAP: Improving and stabilizing Shampoo using Adam, ICLR 2025, section 4 and its released
    code, which leaves the signs to the QR factorisation.
    """
    check_square(A, "eigenbasis")
    check_count(steps, "steps", "eigenbasis")
    if start is not None:
        check_square(start, "eigenbasis, start")
        check_finite(start, "eigenbasis, start")
        if start.shape != A.shape or start.dtype != A.dtype:
            raise ShapeError(
                f"eigenbasis: expected start with the shape and dtype of A, {tuple(A.shape)} {A.dtype}, "
                f"got {tuple(start.shape)} {start.dtype}"
            )
    with torch.no_grad(), full_precision(A):
        wide = checked_hermitian(widen(A.detach()), "eigenbasis", False, rounded_to(A))
        size = largest(wide)[..., None, None]
        size = torch.where(size > 0, size, 1)
        V, order = _exact(wide / size) if start is None else _continued(wide / size, widen(start.detach()), steps)
        values, residual = _measured(wide / size, V)
        values = narrow(values * size[..., 0], A.real.dtype)
    return Eigenbasis(values, narrow(V, A.dtype), order, residual)


def _exact(A: Tensor) -> tuple[Tensor, Tensor]:
    V = eigh(A).eigenvectors
    return V, torch.arange(A.shape[-1], device=A.device).expand(A.shape[:-1])


@on_host_without_double
def _continued(A: Tensor, V: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The new basis and the order of the old columns, both ascending."""
    order = (V.conj() * (A @ V)).sum(-2).real.argsort(-1, descending=True)
    V = V.gather(-1, order.unsqueeze(-2).expand(V.shape))
    for _ in range(steps):
        Q, R = torch.linalg.qr(A @ V)
        V = Q * _phases(R.diagonal(dim1=-2, dim2=-1)).unsqueeze(-2)
    return V.flip(-1), order.flip(-1)


def _measured(A: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """The diagonal of VᴴAV, and the norm of the off-diagonal part divided by the norm of A."""
    T = V.mH @ A @ V
    values = T.diagonal(dim1=-2, dim2=-1).real
    rest, norm = torch.linalg.matrix_norm(T - torch.diag_embed(values).to(T.dtype)), torch.linalg.matrix_norm(A)
    return values, quotient(rest, norm, norm > 0)


def _phases(x: Tensor) -> Tensor:
    """x/|x|, with 1 in place of 0/0."""
    return torch.where(x == 0, 1, x.sgn())
