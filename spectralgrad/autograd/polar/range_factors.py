r"""The two factors of a polar decomposition on the range, with exact derivatives of any order.

Derivation. :math:`M=QH` with :math:`H=(M^HM)^{1/2}` and the partial isometry :math:`Q=MH^+`. Differentiating
:math:`H^2=M^HM` gives the Lyapunov equation

.. math:: H\,dH+dH\,H=dM^HM+M^HdM ,

whose weights :math:`1/(\sigma_i+\sigma_j)` contain no gap; its right-hand side vanishes within the null space of M. The
solution operator is self-adjoint, so :math:`\bar M=2MX` with :math:`HX+XH=\bar H`. Q is differentiated as the product
:math:`MH^+`. Both are derivatives within the matrices of the same rank.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function
from ...precision import full_precision, rank_tolerance
from ...solvers.products import composed
from ...solvers.symmetry import hermitian
from ..functions.square_root import inverse_and_projector, solve_lyapunov
from ..pairwise import norm


class PolarFactors(NamedTuple):
    """The isometry (*, m, n), singular values (*, n), zero off the range, and right vectors Vh (*, n, n); m ≥ n."""

    isometry: Tensor
    values: Tensor
    vectors: Tensor


def polar_on_range(M: Tensor, operation: str, rank: Tensor | None = None) -> PolarFactors:
    """Decompose matrices (*, m, n) with m ≥ n, without gradient; ``rank`` (*,) is theirs, where the caller knows it."""
    U, S, Vh = solvers.svd(M.detach(), operation)
    if rank is None:
        S = S * (S > rank_tolerance(M.shape[-2], M.dtype) * norm(S).unsqueeze(-1))
    else:
        S = S * (torch.arange(S.shape[-1], device=S.device) < rank.unsqueeze(-1))
    with full_precision(M):
        return PolarFactors(composed(U, S > 0, Vh), S, Vh)


def modulus(M: Tensor, factors: PolarFactors) -> Tensor:
    """Return (MᴴM)^(1/2), differentiable in ``M``."""
    result: Tensor = function.apply(_Modulus, M, factors.values, factors.vectors)
    return result


def isometry(M: Tensor, factors: PolarFactors) -> Tensor:
    """Return the partial isometry, differentiable in ``M``."""
    inverse, _ = inverse_and_projector(modulus(M, factors), factors.values, factors.vectors.mH)
    Q = M @ inverse
    return Q + (factors.isometry - Q).detach()  # the value from the SVD is orthogonal to rounding error


class _Modulus(function.DerivativeRule):
    results = "H"
    keeps = "M S Vh H"

    @staticmethod
    def forward(M: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        return composed(Vh.mH, S, Vh)

    @staticmethod
    def backward(ctx, gH):  # type: ignore[no-untyped-def]
        M, S, Vh, H = ctx.saved_tensors
        with full_precision(M):
            return 2 * M @ solve_lyapunov(H, hermitian(gH), S, Vh.mH), None, None

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, S, Vh, H = ctx.saved_tensors
        with full_precision(M):
            return solve_lyapunov(H, 2 * hermitian(M.mH @ dM), S, Vh.mH)
