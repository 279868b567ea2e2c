"""Roots of positive semi-definite matrices and derivatives of matrix functions, in the kernel or in torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...dispatch import status
from ...errors import batch_positions, of_scaled
from ...native.functions import in_memory
from ...precision import exponent, full_precision, ldexp, rank_tolerance, reciprocal
from ..call_counts import counts
from ..decompose import choice
from ..decompose.fallbacks import EIGH
from ..products import composed, congruence, from_basis, in_basis
from ..symmetry import hermitian, mirrored, noise, refuse_asymmetric, refuse_negative


def positive_part(
    w: Tensor, operation: str, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Set negative eigenvalues to zero; return the eigenvalues and the mask of the range.

    Without ``clamp``, an eigenvalue that is negative beyond the rounding error of ``dtype`` raises
    :class:`IndefiniteError`; None stands for the type of ``w``. A negative ``rtol`` stands for the default tolerance.
    """
    d = w.shape[-1]
    size = w.abs().amax(-1) if d else w.new_zeros(w.shape[:-1])
    least = (rank_tolerance(d, w.dtype) if rtol < 0 else rtol) * size
    if w.numel() and not clamp:
        refuse_negative(w, size, operation, dtype or w.dtype)
        if rtol < 0 and dtype not in (None, w.dtype):
            least = torch.maximum(least, noise(w, size))
    values = w.clamp_min(0)
    return values, values > least.unsqueeze(-1)


def root_and_eigenpairs(
    A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return A^(1/2) or A^(-1/2) on the range, √λ with zeros off the range, and the eigenvectors."""
    found = root_by_kernel(A, operation, inverse, rtol, clamp, dtype)
    if found is not None:
        return found
    w, V = EIGH.solve(A, operation, dtype)
    if not status.optimistic(w) and not bool(torch.isfinite(w).all()):  # the norm overflows although no entry does
        e = exponent(A)
        w, V = EIGH.solve(ldexp(A, -e[..., None, None]), operation)
        return *_scaled_root(w, V, e, operation, inverse, rtol, clamp, dtype), V.contiguous()
    return *_composed_root(w, V, operation, inverse, rtol, clamp, dtype), V.contiguous()


def root_by_kernel(
    A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the root, its eigenvalues and the eigenvectors by one call of the kernel, or None if it is not used."""
    plan = choice.symmetric(A, "root")
    if plan is None or (status.optimistic(A) and dtype not in (None, A.dtype)):
        return None  # how large the rounding errors of a half type are is known only to the composition
    zero, negative, asymmetry = choice.tolerances(plan.d, A.dtype, dtype)
    limits = zero if rtol < 0 else rtol, math.inf if clamp else negative, asymmetry
    results, doubtful = plan.root(in_memory(A), inverse, limits)
    counts.call(plan.batch)
    if doubtful:
        repair(A, results, operation, inverse, rtol, clamp, dtype)
    return results


def repair(
    A: Tensor,
    results: tuple[Tensor, Tensor, Tensor],
    operation: str,
    inverse: bool,
    rtol: float,
    clamp: bool,
    dtype: torch.dtype | None,
) -> None:
    """Complete, in place, what the kernel left undone: matrices failed, overflowed or have negative eigenvalues.

    Errors for NaN and asymmetric input come first; then the failed matrices are decomposed again; then eigenvalues that
    are negative beyond rounding raise an error. What the kernel composed stands, except where rounding of a half type,
    unknown to the kernel, explains the negative eigenvalues.
    """
    S, s, V = results
    refuse_asymmetric(A, operation, dtype)
    A = EIGH.readable(A, operation)
    e = exponent(mirrored(A))
    A = ldexp(A, -e[..., None, None])  # so that no eigenvalue overflows
    w = (V * (mirrored(A) @ V)).sum(-2)  # Rayleigh quotients, as the kernel returns only roots of the eigenvalues
    failed = EIGH.repair(A, (w, V), operation)
    root, values = _scaled_root(w, V, e, operation, inverse, rtol, clamp, dtype)
    again = (values > 0) != (s > 0) if dtype not in (None, A.dtype) else torch.zeros_like(s, dtype=torch.bool)
    for position in {*failed, *batch_positions((e > 0) | again.any(-1))}:
        S[position], s[position] = root[position], values[position]


def _scaled_root(
    w: Tensor,
    V: Tensor,
    e: Tensor,
    operation: str,
    inverse: bool,
    rtol: float,
    clamp: bool,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """Return the root and √λ of matrices 2ᵉ V diag(w) Vᴴ."""
    with of_scaled(e):
        S, s = _composed_root(w, V, operation, inverse, rtol, clamp, dtype)
    half = e.unsqueeze(-1) / 2
    return ldexp(S, (-half if inverse else half).unsqueeze(-1)), ldexp(s, half)


def _composed_root(
    w: Tensor, V: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Return the root and √λ, computed from eigenpairs."""
    values, support = positive_part(w, operation, rtol, clamp, dtype)
    s = torch.where(support, values, 0).sqrt()
    scale = torch.where(support, values.rsqrt(), 0) if inverse else s
    with full_precision(V):
        return composed(V, scale, V.mH), s


def root_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
    r"""Return the derivative of the root in the direction of the Hermitian part of G; ``s`` is √λ, zero off the range.

    The divided differences are :math:`1/(s_i+s_j)`, or :math:`-1/(s_is_j(s_i+s_j))` for the inverse root and
    :math:`f(\lambda)/\lambda=s^{-3}` between range and null space. The inverse root's are applied as two factors, whose
    product could overflow where the result does not. With ``terms`` = n > 0 the derivative is SVD-Taylor's: n terms of
    its series multiply an off-diagonal entry by :math:`1-x^n`, where :math:`x=\min/\max` of the two eigenvalues.
    """
    found = root_derivative_by_kernel(V, s, G, inverse, terms)
    if found is not None:
        return found
    weights = inverse_sums(s)
    if terms:
        weights = weights * _series_share(s, terms)
    if not inverse:
        return congruence(V, weights, hermitian(G))
    z = reciprocal(s, s > 0)
    rows, columns = z.unsqueeze(-1), z.unsqueeze(-2)
    first = torch.where((rows > 0) & (columns > 0), -rows * columns, (rows + columns).square())
    with full_precision(V):
        return from_basis(V, first * in_basis(V, hermitian(G)) * weights)


def root_derivative_by_kernel(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor | None:
    """Return the derivative of a root by one call of the kernel, or None if it is not used."""
    plan = choice.derivatives(V, "series" if terms else "root")
    if plan is None or not s.dtype == V.dtype == G.dtype:  # hooks on saved tensors may change types
        return None
    return plan.root(in_memory(V), in_memory(s), in_memory(G), inverse, terms)


def inverse_sums(s: Tensor, least: Tensor | float = 0) -> Tensor:
    """Return 1/(sᵢ + sⱼ) (*, d, d), for s ≥ 0 the divided differences of the root; 0 for sums up to ``least``."""
    total = s.unsqueeze(-1) + s.unsqueeze(-2)
    return reciprocal(total, total > least)


def _series_share(s: Tensor, terms: int) -> Tensor:
    """Return 1 − xⁿ off the diagonal and 1 on it, accurate where x = (s_i/s_j)² is near one."""
    rows, columns = s.unsqueeze(-1), s.unsqueeze(-2)
    larger = torch.maximum(rows, columns)
    y = (rows - columns).abs() / torch.where(larger > 0, larger, 1)
    share = -torch.expm1(2 * terms * torch.log1p(-y))
    return share.masked_fill(torch.eye(s.shape[-1], dtype=torch.bool, device=s.device), 1)


def function_derivative(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
    """Return V (Γ ∘ Vᴴ sym(G) V) Vᴴ, the derivative of a matrix function, for a real symmetric Γ."""
    found = function_derivative_by_kernel(V, gamma, G)
    return congruence(V, gamma, hermitian(G)) if found is None else found


def function_derivative_by_kernel(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor | None:
    """Return V (Γ ∘ Vᴴ sym(G) V) Vᴴ by one call of the kernel, or None if it is not used."""
    plan = choice.derivatives(V, "function")
    if plan is None or not gamma.dtype == V.dtype == G.dtype:
        return None
    return plan.function(in_memory(V), in_memory(gamma), in_memory(G))
