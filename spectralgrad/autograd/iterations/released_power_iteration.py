r"""Power iteration with deflation as the code of NeurIPS 2019 releases it (``ZCANormPIunstable``).

One step is :math:`v_{k+1}=Mv_k/\ell_k` with :math:`\ell_k=\max(\|Mv_k\|,10^{-5})`. The released backward pass is

.. math:: \bar u_k=(I-v_{k+1}v_{k+1}^H)\bar v_{k+1}/\ell_k,\qquad
          \bar M\mathrel{+}=\bar u_kv_k^H,\qquad \bar v_k=M\bar u_k .

The last product is with :math:`M^H` in the true gradient. It is the same for a Hermitian M, but the deflated matrix
:math:`M-Mvv^H` is Hermitian only if v has converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ...dispatch import function
from .power_iteration import PowerIteration

SHORTEST = 1e-5
"""Products Mv are divided by no less than this."""


@dataclass(frozen=True)
class ReleasedPowerIteration(PowerIteration):
    """Random starts, new in each call, and no comparison with a solver; ``energy`` and ``tolerance`` are not used.

    Deflation stops when a Rayleigh quotient is larger than the one before or below :attr:`eps`. Nothing is scaled, so
    that matrices beyond about 1e19 in float32 overflow to NaN as in the released code; that is how its training ends.
    """

    def _exponent(self, A: Tensor) -> Tensor | None:
        return None

    def run(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return eigenvalues, eigenvectors and the mask of kept pairs, as in the base class; discarded pairs are zero.

        Every matrix and every eigenvector has a start of its own from torch's default generator.
        """
        starts = torch.randn(A.shape, dtype=A.dtype, device=A.device)
        keep = torch.ones(A.shape[:-2], dtype=torch.bool, device=A.device)
        M, last, found = A, torch.inf, []
        for i in range(A.shape[-1]):
            v = starts[..., i : i + 1]
            v = function.apply(_Iterated, M, v / torch.linalg.vector_norm(v, dim=-2, keepdim=True), self.iterations)
            Mv, square = M @ v, v.mH @ v
            w = ((v.mH @ Mv) / torch.where(square == 0, 1, square))[..., 0, 0].real  # v is zero where M is
            if i > 0:  # NaN does not stop, as in the released code
                keep = keep & ~((w.detach() > last) | (w.detach().unsqueeze(-1) < self.eps).squeeze(-1))
            found.append((w, v, keep))
            if function.eager(A) and not bool(keep.any()):
                break
            M, last = M - Mv @ v.mH, w.detach()
        return _gathered(A, found)


def _gathered(A: Tensor, found: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """The pairs in reverse order, so that eigenvalues ascend; zeros instead of those that are not kept or missing."""
    zeros = A[..., : A.shape[-1] - len(found)].detach() * 0
    missing = zeros[..., 0, :].real if A.shape[-1] else A.real.sum(-1)
    values = [torch.where(keep, w, 0).unsqueeze(-1) for w, _, keep in reversed(found)]
    vectors = [torch.where(keep[..., None, None], v, 0) for _, v, keep in reversed(found)]
    kept = [keep.unsqueeze(-1) for *_, keep in reversed(found)]
    return torch.cat([missing, *values], -1), torch.cat([zeros, *vectors], -1), torch.cat([missing != 0, *kept], -1)


def _steps(M: Tensor, v: Tensor, iterations: int) -> list[tuple[Tensor, Tensor]]:
    """The iterates :math:`v_k`, each with the length by which it was divided; the start has none, hence 1."""
    iterates = [(v, v.real.new_ones(()))]
    for _ in range(iterations):
        Mv = M @ iterates[-1][0]
        length = torch.linalg.vector_norm(Mv, dim=-2, keepdim=True).clamp_min(SHORTEST)
        length = length.masked_fill(length.isinf(), torch.nan)  # the released quotient is 0/0 then
        iterates.append((Mv / length, length))
    return iterates


def _across(v: Tensor, x: Tensor) -> Tensor:
    """The part of x across the unit vectors v."""
    return x - v @ (v.mH @ x)


class _Iterated(function.DerivativeRule):
    """The last iterate, with the derivative at the top of this module."""

    keeps = "M v iterations"

    @staticmethod
    def forward(M: Tensor, v: Tensor, iterations: int) -> Tensor:
        return _steps(M, v, iterations)[-1][0].clone()

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        M, v = ctx.saved_tensors
        iterates = _steps(M, v, ctx.iterations)
        total = torch.zeros_like(M)
        for (before, _), (after, length) in zip(iterates[-2::-1], iterates[:0:-1], strict=True):
            u = _across(after, g) / length
            total = total + u @ before.mH
            g = M @ u
        return total, g, None

    @staticmethod
    def jvp(ctx, dM, dv, _):  # type: ignore[no-untyped-def]
        M, v = ctx.saved_tensors
        iterates = _steps(M, v, ctx.iterations)
        t = torch.zeros_like(v) if dv is None else dv
        for (before, _), (after, length) in pairwise(iterates):
            t = M.mH @ t if dM is None else dM @ before + M.mH @ t
            t = _across(after, t) / length
        return t
