"""Newton–Schulz iterations for square roots and Lyapunov equations, which use matrix products only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...dispatch import function
from ...precision import full_precision, reciprocal, resolved
from ...solvers.symmetry import hermitian

OnResidual = Callable[[Tensor], None]


def newton_schulz(A: Tensor, steps: int = 5, normalize: str = "trace") -> tuple[Tensor, Tensor]:
    """Return approximations of the root and the inverse root, each (*, d, d), of positive semi-definite matrices.

    See :func:`spectralgrad.linalg.newton_schulz`, which checks its arguments.
    """
    size = _size(A)
    A = A / size  # so that norms and their derivatives neither overflow nor underflow
    scale = _scale(A, normalize)
    live = scale > 0
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    Y, Z = A * reciprocal(scale, live), identity.expand_as(A)
    for _ in range(steps):
        T = (3 * identity - Z @ Y) / 2
        Y, Z = Y @ T, T @ Z
    root = torch.where(live, scale, 1).sqrt() * size.sqrt()
    return Y * root, torch.where(live, Z / root, 0)


def _size(A: Tensor) -> Tensor:
    """Return the largest modulus of each matrix (*, 1, 1), without gradient; 1 for a zero matrix.

    It is at least the smallest normal number: torch divides complex numbers by multiplying with the reciprocal, which
    is infinite for a subnormal divisor.
    """
    if 0 in A.shape[-2:]:
        return A.real.new_ones((*A.shape[:-2], 1, 1))
    size = A.detach().abs().amax((-2, -1), keepdim=True)
    return torch.where(size > 0, resolved(size), 1)


def _scale(A: Tensor, normalize: str) -> Tensor:
    """Return the trace or the Frobenius norm (*, 1, 1)."""
    if normalize == "trace":
        return A.diagonal(dim1=-2, dim2=-1).real.sum(-1)[..., None, None]
    squares = (A.abs() if A.dtype.is_complex else A).square().sum((-2, -1), keepdim=True)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt(), 0)


def magnitude_and_norm(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors (*, 1, 1) of the Frobenius norm: the largest modulus, or 1 for a zero matrix, and what is left."""
    size = _size(A)
    return size, _scale(A / size, "frobenius")


class LyapunovResult(NamedTuple):
    """The solution X (*, d, d) and its relative residual ‖SX + XS − G‖/‖G‖ (*,)."""

    solution: Tensor
    residual: Tensor


def lyapunov(S: Tensor, G: Tensor, steps: int = 20, scale: Tensor | None = None) -> LyapunovResult:
    r"""Solve :math:`SX+XS=G` for positive definite S by the sign iteration of a block triangular matrix.

    .. math:: B\leftarrow\tfrac12B(3I-B^2),\quad
              C\leftarrow\tfrac12\bigl(-B^2C+BCB+C(3I-B^2)\bigr),\quad X=\tfrac12C_\infty,

    started from :math:`B_0=S/\nu`, :math:`C_0=G/\nu`, where :math:`\nu=\|S\|_F` unless ``scale`` is given. It uses
    matrix products only. The residual shows whether the number of steps was sufficient, which it is not if S is nearly
    singular.

    Args:
        S: positive definite matrices (*, d, d).
        G: right-hand sides (*, d, d).
        steps: number of iterations.
        scale: :math:`\nu` (*,), at least the spectral norm of S. The closer it is, the fewer steps are needed.

    Returns:
        named tuple ``(solution, residual)``.

    Example:
        >>> X, residual = lyapunov(torch.diag(torch.tensor([1.0, 3.0])), torch.ones(2, 2))
        >>> X
        tensor([[0.5000, 0.2500],
                [0.2500, 0.1667]])

    Reference: Song, Sebe and Wang, Fast Differentiable Matrix Square Root, ICLR 2022.
    """
    unit_s, unit_g = _size(S), _size(G)
    S, G = S / unit_s, G / unit_g
    norm = torch.linalg.matrix_norm(S)[..., None, None] if scale is None else scale[..., None, None] / unit_s
    inverse = reciprocal(norm, norm > 0)
    identity = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    B, C = S * inverse, G * inverse
    for _ in range(steps):
        B2 = B @ B
        T = 3 * identity - B2
        B, C = B @ T / 2, (B @ (C @ B) - B2 @ C + C @ T) / 2
    X = C / 2
    size = torch.linalg.matrix_norm(G)
    residual = torch.linalg.matrix_norm(S @ X + X @ S - G) * reciprocal(size, size > 0)
    return LyapunovResult(X * (unit_g / unit_s), residual)


def lyapunov_root(
    A: Tensor, inverse: bool, steps: int, normalize: str, lyapunov_steps: int, on_residual: OnResidual | None = None
) -> Tensor:
    """Return the Newton–Schulz root with the true gradient of the root, computed by :func:`lyapunov`.

    Args:
        A: positive semi-definite matrices (*, d, d).
        inverse: compute the inverse root.
        steps: as in :func:`newton_schulz`.
        normalize: as in :func:`newton_schulz`.
        lyapunov_steps: number of iterations of the backward pass.
        on_residual: callback that receives the relative residual (*,) in the backward pass.
    """
    S, Z = newton_schulz(A.detach(), steps, normalize)
    S = lyapunov_derivative(A, S, lyapunov_steps, on_residual=on_residual)
    return inverse_given(S, Z) if inverse else S


def lyapunov_derivative(
    A: Tensor, S: Tensor, steps: int, *, scale: Tensor | None = None, on_residual: OnResidual | None = None
) -> Tensor:
    """Return ``S``, an approximate root of ``A``, with the gradient of the root, by :func:`lyapunov`."""
    result: Tensor = function.apply(_LyapunovBackward, A, S, scale, steps, on_residual)
    return result


def inverse_given(S: Tensor, Z: Tensor) -> Tensor:
    """Return ``Z``, an approximate inverse of ``S``, with the derivative −Z dS Z."""
    result: Tensor = function.apply(_InverseOf, S, Z)
    return result


class _LyapunovBackward(function.DerivativeRule):
    """Identity on the approximate root S in the forward pass, the Lyapunov iteration for dA in the backward."""

    keeps = "result scale steps on_residual"

    @staticmethod
    def forward(A: Tensor, S: Tensor, scale: Tensor | None, steps: int, on_residual: OnResidual | None) -> Tensor:
        return S.clone()

    @staticmethod
    def backward(ctx, gS):  # type: ignore[no-untyped-def]
        S, scale = ctx.saved_tensors
        with full_precision(S):
            X, residual = lyapunov(S, hermitian(gS), ctx.steps, scale)
        if ctx.on_residual is not None:
            ctx.on_residual(residual.detach())
        return X, None, None, None, None

    @staticmethod
    def jvp(ctx, dA, *_):  # type: ignore[no-untyped-def]
        S, scale = ctx.saved_tensors
        with full_precision(S):
            return lyapunov(S, hermitian(dA), ctx.steps, scale).solution


class _InverseOf(function.DerivativeRule):
    """Identity on Z ≈ S⁻¹ in the forward pass, −Z dS Z in the derivatives."""

    keeps = "result"

    @staticmethod
    def forward(S: Tensor, Z: Tensor) -> Tensor:
        return Z.clone()

    @staticmethod
    def backward(ctx, gZ):  # type: ignore[no-untyped-def]
        (Z,) = ctx.saved_tensors
        with full_precision(Z):
            return -Z.mH @ gZ @ Z.mH, None

    @staticmethod
    def jvp(ctx, dS, _):  # type: ignore[no-untyped-def]
        (Z,) = ctx.saved_tensors
        with full_precision(Z):
            return -Z @ dS @ Z
