r"""The generalised problem A x = λ B x with positive definite B, reduced to an ordinary one by a Cholesky factor of B.

With :math:`DBD=LL^H` the pencil has the eigenvalues of :math:`C=L^{-1}DAD\,L^{-H}=Y\Lambda Y^H` and the vectors
:math:`X=DL^{-H}Y`, for which :math:`X^HBX=I`. The powers of two D make the diagonal of DBD about one, so that badly
scaled variables cost no accuracy (van der Sluis). The reduction loses as many digits as the condition number of DBD
has, so single precision is used only where B's is small, and double precision elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...dispatch import status
from ...errors import NotDefiniteError
from ...native.calls import UNCHECKED
from ...native.functions import in_memory
from ...precision import rank_tolerance
from ..call_counts import counts
from ..symmetry import mirrored
from . import choice
from .fallbacks import EIGH, eigenvalues
from .lapack import Factors

_FLAT = 100.0  # condition number of B up to which single precision loses no more than two digits


def eigh(A: Tensor, B: Tensor, operation: str) -> Factors:
    """Return ascending eigenvalues (*, d) and eigenvectors (*, d, d), orthonormal in the inner product of ``B``."""

    def decompose(C: Tensor, back: Tensor) -> Factors:
        w, Y = EIGH.solve(C, operation)
        return w, back.mH @ Y

    return _in_two_precisions(decompose, A, B, operation)


def eigvalsh(A: Tensor, B: Tensor, operation: str) -> Tensor:
    """Return the ascending eigenvalues (*, d) alone."""
    return _in_two_precisions(lambda C, _: (eigenvalues(C, operation),), A, B, operation)[0]


def _in_two_precisions(decompose: Callable[[Tensor, Tensor], Factors], A: Tensor, B: Tensor, operation: str) -> Factors:
    """Call ``decompose`` with C and L⁻¹D: in double precision, or for well-conditioned matrices in the input's.

    Both are computed for the whole batch if one matrix needs double precision, so that no matrix depends on the others.
    """
    A = mirrored(EIGH.readable(A, operation))
    B = EIGH.readable(B, f"{operation}, B")
    wide = torch.promote_types(A.dtype, torch.float64)
    single: Factors = ()
    if A.dtype != wide and not status.optimistic(A):  # which is best is read from values
        flat, back = _flat_factor(B)
        enough, C = bool(flat.all()), back @ A @ back.mH
        single = decompose(C if enough else torch.where(flat[..., None, None], C, 0), back)
        if enough:
            return single
    definite, back = _inverse_factor(B.to(wide), rank_tolerance(B.shape[-1], A.dtype))
    for position in status.positions(~definite)[:1]:
        w = torch.linalg.eigvalsh(B[position].to(wide))
        raise NotDefiniteError(float(w[0]), float(w[-1]), position, operation)
    double = decompose(back @ A.to(wide) @ back.mH, back)
    if A.dtype != wide and not single:
        return tuple(x.to(A.dtype if x.dtype.is_complex else A.dtype.to_real()) for x in double)
    if not single:
        return double
    return tuple(
        torch.where(flat.reshape(*flat.shape, *[1] * (x.dim() - flat.dim())), x, y.to(x.dtype))
        for x, y in zip(single, double, strict=True)
    )


def _flat_factor(B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mask (*,) of well-conditioned matrices and, for these, a factor that reduces B to the identity.

    If the kernel is used, it is B^(-1/2), which takes one call; otherwise L⁻¹D.
    """
    plan = choice.symmetric(B, "root")
    if plan is None:
        definite, back = _inverse_factor(B)
        condition = torch.linalg.matrix_norm(back).square() * torch.linalg.matrix_norm(B)
        return definite & (condition <= _FLAT), back
    counts.call(plan.batch)
    (root, s, _), _ = plan.root(in_memory(B), True, (0.0, 0.0, UNCHECKED))
    least, most = s[..., 0], s[..., -1]  # NaN where the kernel failed; zero for eigenvalues that are not positive
    return (least > 0) & (most.square() <= _FLAT * least.square()), root


def _inverse_factor(B: Tensor, tolerance: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the mask (*,) of matrices all of whose pivots are above the tolerance, and L⁻¹D.

    A pivot is the part of a diagonal entry of DBD, about one, that the columns before do not explain.
    """
    diagonal = B.diagonal(dim1=-2, dim2=-1).real
    halves = torch.frexp(torch.where(diagonal > 0, diagonal, 1))[1] // 2
    # With D = I, skipping the products changes no bit.
    ordinary = not status.optimistic(B) and not bool(halves.any())
    scale = torch.ldexp(torch.ones_like(diagonal), -halves)
    L, info = torch.linalg.cholesky_ex(B if ordinary else B * scale.unsqueeze(-1) * scale.unsqueeze(-2))
    pivots = L.diagonal(dim1=-2, dim2=-1).real.square()
    identity = torch.eye(B.shape[-1], dtype=B.dtype, device=B.device).expand_as(B)
    inverse = torch.linalg.solve_triangular(L, identity, upper=False)
    definite = (info == 0) & (pivots > tolerance).all(-1)
    return definite, inverse if ordinary else inverse * scale.unsqueeze(-2)
