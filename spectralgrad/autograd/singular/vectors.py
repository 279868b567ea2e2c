r"""The derivative of singular values and singular vectors, with any gap rule.

Derivation. With :math:`D=U^HdM\,V`, :math:`\Omega_U=U^HdU`, :math:`\Omega_V=V^HdV` and
:math:`D=\Omega_US+dS-S\Omega_V`, adding and subtracting the conjugate transpose separates the rotations of the left and
right vectors into a sum that involves the gap and a difference that does not:

.. math:: \Omega_U+\Omega_V=\frac{D+D^H}{\sigma_j-\sigma_i},\qquad
          \Omega_U-\Omega_V=\frac{D-D^H}{\sigma_j+\sigma_i}.

Only the first requires a gap rule :math:`\hat K(\sigma)`. Singular values are not squared, so neither range nor
accuracy is lost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import solvers
from ...dispatch import function, observation
from ...precision import full_precision, reciprocal, saturated
from ...solvers.products import composed
from .. import existence, gauge
from ..gap_rule import GapRule
from ..pairwise import differences, identity_mask, norm


def attach(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor, rule: GapRule) -> tuple[Tensor, Tensor, Tensor]:
    """Return the factors of ``M``, given without gradient, as functions of ``M`` differentiated by ``rule``."""
    if function.needs_no_gradient(M):
        return U, S, Vh
    result: tuple[Tensor, Tensor, Tensor] = function.apply(SVD, M, U, S, Vh, rule, "")
    return result


class SVD(function.DerivativeRule):
    """The factors of M: copies of given ones, or computed by the solver."""

    results = "U S Vh"
    keeps = "U S Vh rule"
    materialize_grads = False

    @staticmethod
    def forward(
        M: Tensor, U: Tensor | None, S: Tensor | None, Vh: Tensor | None, rule: GapRule, operation: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        if U is not None and S is not None and Vh is not None:
            return U.clone(), S.clone(), Vh.clone()
        return solvers.svd(M, operation)

    @staticmethod
    def backward(ctx: Any, gU: Tensor | None, gS: Tensor | None, gVh: Tensor | None) -> tuple[Tensor | None, ...]:
        factors = ctx.saved_tensors[:3]  # once, as in Eigh
        SVD.observed(ctx, factors, (gU, gS, gVh))
        return _backward(factors, (gU, gS, gVh), ctx.rule), None, None, None, None, None

    @staticmethod
    def observed(ctx: Any, factors: Factors, cotangents: Cotangents) -> None:
        """Tell diagnostics where no derivative exists."""
        if observation.wanted():
            observation.tell(ctx, lambda: existence.of_triplets(factors, cotangents))

    @staticmethod
    def jvp(ctx: Any, dM: Tensor, *_: None) -> Factors:
        U, S, Vh = ctx.saved_tensors[:3]
        with full_precision(U):
            V = Vh.mH
            D = U.mH @ dM @ V
            joint = ctx.rule.gaps(S).mT * (D + D.mH) / 2
            apart = _inverse_sums(S) * (D - D.mH) / 2
            inverse = _inverse(S).unsqueeze(-2)
            dU, dV = U @ (joint + apart), V @ (joint - apart)
            dU = dU + (dM @ V - U @ D) * inverse
            dV = dV + (dM.mH @ U - V @ D.mH) * inverse
            return dU, D.diagonal(dim1=-2, dim2=-1).real, dV.mH


Factors = tuple[Tensor, Tensor, Tensor]
Cotangents = tuple[Tensor | None, Tensor | None, Tensor | None]


def _backward(factors: Factors, cotangents: Cotangents, rule: GapRule) -> Tensor | None:
    U, S, Vh = factors
    gU, gS, gVh = cotangents
    present = [x for x in cotangents if x is not None]
    if not present:
        return None
    if not function.differentiating() and function.eager(*factors, *present):
        fused = solvers.svd_gradient(factors, cotangents, rule.fused_gaps, rule.filters_gauge, rule.saturates)
        if fused is not None:
            return fused
    with full_precision(U):
        if gS is not None and gU is None and gVh is None:
            return composed(U, gS, Vh)
        gU, gS, gVh = (torch.zeros_like(x) if g is None else g for x, g in zip(factors, cotangents, strict=True))
        return _formula(U, S, Vh, gU, gS, gVh, rule)


def _formula(U: Tensor, S: Tensor, Vh: Tensor, gU: Tensor, gS: Tensor, gVh: Tensor, rule: GapRule) -> Tensor:
    """The backward pass in differentiable operations."""
    V, gV = Vh.mH, gVh.mH
    P, Q = U.mH @ gU, V.mH @ gV
    joint = (P + Q) / 2
    sizes = gauge.column_norms(gU) + gauge.column_norms(gV)
    if rule.filters_gauge:
        joint = gauge.drop_noise(joint, sizes, S)
    joint = rule.weighed(rule.gaps(S).mT, joint)
    apart = _capped(_inverse_sums(S) * (P - Q) / 2, rule)
    core = joint + joint.mH + apart - apart.mH + torch.diag_embed(gS.to(U.dtype))
    gM = U @ core @ Vh
    if U.shape[-2] > S.shape[-1]:
        gM = gM + _capped((gU - U @ P) * _inverse(S).unsqueeze(-2), rule) @ Vh
    if V.shape[-2] > S.shape[-1]:
        gM = gM + U @ _capped((gV - V @ Q) * _inverse(S).unsqueeze(-2), rule).mH
    return gM


def _capped(x: Tensor, rule: GapRule) -> Tensor:
    """Clamp a part of the gradient without gaps (*, ·, k), if the rule saturates, so that no sum of parts overflows.

    Gap rules clamp their parts to 1/4k of the largest finite number (``weighed``), here it is 1/16k. With orthonormal
    U and V the whole is then less than the largest finite number.
    """
    return saturated(x, 1 / (16 * max(1, x.shape[-1]))) if rule.saturates else x


def _inverse_sums(S: Tensor) -> Tensor:
    r"""Return :math:`1/(\sigma_i+\sigma_j)` (*, d, d), and zero where the sum is negligible."""
    return solvers.inverse_sums(S, _negligible(S)[..., None, None])


def _inverse(S: Tensor) -> Tensor:
    return reciprocal(S, S > _negligible(S)[..., None])


def _negligible(S: Tensor) -> Tensor:
    """Return the threshold (*,) up to which a singular value counts as an exact zero.

    It is far below rounding error: singular values at rounding level are inverted, since their cotangents are
    correspondingly small.
    """
    info = torch.finfo(S.dtype)
    return (norm(S) * info.eps ** (5 / 3)).clamp_min(info.tiny)


def one_sided_at_ties(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the factors with the derivative of the released code of SVD-inv between tied singular vectors.

    For :math:`\sigma_i=\sigma_j>0` it is :math:`\Omega_U=D/\sigma_j` and :math:`\Omega_V=0`. Without a joint rotation,
    which a gap rule drops at a tie, :func:`decompose` gives :math:`\Omega_U=-\Omega_V=(D-D^H)/4\sigma`; this adds the
    difference.
    """
    U, Vh = function.apply(_OneSided, M, U, S, Vh)
    return U, S, Vh


class _OneSided(function.DerivativeRule):
    keeps = "U S Vh"

    @staticmethod
    def forward(M: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> tuple[Tensor, Tensor]:
        return U.clone(), Vh.clone()

    @staticmethod
    def backward(ctx, gU, gVh):  # type: ignore[no-untyped-def]
        U, S, Vh = ctx.saved_tensors[:3]
        with full_precision(U):
            P, Q = U.mH @ gU, Vh @ gVh.mH
            skew = (P - P.mH - Q + Q.mH) / 4
            return U @ (_tied_inverse(S) * (P - skew)) @ Vh, gU, None, gVh

    @staticmethod
    def jvp(ctx, dM, dU, dS, dVh):  # type: ignore[no-untyped-def]
        U, S, Vh = ctx.saved_tensors[:3]
        with full_precision(U):
            D = _tied_inverse(S) * (U.mH @ dM @ Vh.mH)
            skew = (D - D.mH) / 4
            return dU + U @ (D - skew), dVh + (Vh.mH @ skew).mH


def _tied_inverse(S: Tensor) -> Tensor:
    r"""Return :math:`1/\sigma_j` (*, d, d) for equal singular values that are not negligible, zero elsewhere."""
    tied = (differences(S) == 0) & ~identity_mask(S) & (S > _negligible(S)[..., None]).unsqueeze(-2)
    return reciprocal(S.unsqueeze(-2), tied)


def completed(U: Tensor) -> Tensor:
    """Append an orthonormal basis of the complement of the columns of ``U``, differentiable to second order.

    With B = (I − UUᴴ)C for a fixed basis C, the polar factor of B is the basis nearest to C; one Newton–Schulz
    step B(3I − BᴴB)/2 agrees with it up to third order around B = C.
    """
    m, k = U.shape[-2:]
    if m == k:
        return U
    C = torch.linalg.qr(U.detach(), mode="complete")[0][..., k:]
    B = C - U @ (U.mH @ C)
    identity = torch.eye(m - k, dtype=U.dtype, device=U.device)
    return torch.cat([U, B @ (1.5 * identity - 0.5 * (B.mH @ B))], dim=-1)
