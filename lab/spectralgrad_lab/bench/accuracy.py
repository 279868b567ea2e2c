r"""Check results before they are timed, against float64 references in plain torch that use none of our code.

The reference of :math:`A^{-1/2}` and its gradient is :math:`V(\Gamma\circ V^HGV)V^H` with
:math:`\Gamma_{ij}=-1/(r_ir_j(r_i+r_j))`, :math:`r=\sqrt\lambda`; for :math:`C^{1/2}`, :math:`\Gamma_{ij}=1/(r_i+r_j)`.
The reference of :math:`Uf(\Sigma)V^H` is in :mod:`.studies.singular_filter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .studies import singular_filter

THRESHOLD = 30.0  # as in LAPACK's own tests

Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Verdict:
    """The worst relative error over the batch, and whether every error is within what the conditioning allows."""

    error: float
    right: bool


Judge = Callable[[Results], Verdict]


def eigenpairs(A: Tensor) -> Judge:
    """LAPACK's test: residual, orthogonality and eigenvalues within 30 d ε of the norm."""
    matrix, values = widened(A), eigenvalues(A)
    size = torch.linalg.matrix_norm(matrix)

    def judge(results: Results) -> Verdict:
        w, V = (widened(x) for x in results)
        residual = torch.linalg.matrix_norm((V * w.unsqueeze(-2)) @ V.mH - matrix) / size
        return _worst([values((w,)), _within(torch.stack([residual, _skewness(V)]), A)])

    return judge


def eigenvalues(A: Tensor) -> Judge:
    """Eigenvalues, ascending, within 30 d ε of the norm."""
    matrix = widened(A)
    values, size = torch.linalg.eigvalsh(matrix), torch.linalg.matrix_norm(matrix)

    def judge(results: Results) -> Verdict:
        return _within(torch.linalg.vector_norm(results[0].detach().double() - values, dim=-1) / size, A)

    return judge


def singular_triplets(M: Tensor) -> Judge:
    """LAPACK's test: residual, orthogonality of both factors and singular values within 30 max(m, n) ε."""
    matrix = widened(M)
    values, size = torch.linalg.svdvals(matrix), torch.linalg.matrix_norm(matrix)

    def judge(results: Results) -> Verdict:
        U, S, Vh = (widened(x) for x in results)
        residual = torch.linalg.matrix_norm((U * S.unsqueeze(-2)) @ Vh - matrix) / size
        distance = torch.linalg.vector_norm(S - values, dim=-1) / size
        return _within(torch.stack([residual, distance, _skewness(U), _skewness(Vh.mH)]), M)

    return judge


def filtered(M: Tensor, G: Tensor) -> Judge:
    """Value and gradient of ⟨U f(S) Vᴴ, G⟩, f(s) = s/(1 + s), each within 30 ε max(m, n, 1/gap).

    The reference divides by no gap, but a gradient that goes through U and V does: 1/gap is the root of the mean of
    (σ₁/(σᵢ − σⱼ))² over all pairs of a matrix.
    """
    truth = singular_filter.value_and_gradient(widened(M), widened(G))
    S = torch.linalg.svdvals(widened(M))
    gaps = (S.unsqueeze(-1) - S.unsqueeze(-2)).abs() / S[:, :1, None]
    amplified = torch.where(gaps > 0, 1 / gaps, 0).square().mean((-2, -1)).sqrt()
    allowed = THRESHOLD * torch.finfo(M.dtype).eps * amplified.clamp_min(max(M.shape[-2:]))

    def judge(results: Results) -> Verdict:
        errors = [distance(x, t) for x, t in zip(results, truth, strict=True)]
        return verdict(torch.stack(errors), allowed.expand(2, -1))

    return judge


def inverse_root(A: Tensor, G: Tensor) -> Judge:
    """Value and gradient of ⟨A^(−1/2), G⟩, each within 30 √d ε κ(A)."""
    w, V = torch.linalg.eigh(widened(A))
    r = w.sqrt()
    gamma = -1 / (r[:, :, None] * r[:, None, :] * (r[:, :, None] + r[:, None, :]))
    truth = (V / r[:, None, :]) @ V.mH, V @ (gamma * (V.mH @ widened(G) @ V)) @ V.mH
    allowed = THRESHOLD * A.shape[-1] ** 0.5 * torch.finfo(A.dtype).eps * w[:, -1] / w[:, 0]

    def judge(results: Results) -> Verdict:
        value, gradient = results
        errors = [distance(value, truth[0]), distance((gradient + gradient.mH) / 2, truth[1])]
        return verdict(torch.stack(errors), allowed.expand(2, -1))

    return judge


def covariance_root(X: Tensor, G: Tensor) -> Judge:
    """Value and gradient in X of ⟨C^(1/2), G⟩, C the covariance of X, each within 30 √d ε κ(C) on C's range."""
    n = X.shape[-1]
    centered = X.double() - X.double().mean(-1, keepdim=True)
    w, V = torch.linalg.eigh(centered @ centered.mT / n)
    rank = min(X.shape[-2], n - 1)
    r = torch.where(torch.arange(w.shape[-1]) >= w.shape[-1] - rank, w.clamp_min(0), 0).sqrt()
    total = r[:, :, None] + r[:, None, :]
    gamma = torch.where(total > 0, 1 / total, 0)  # dC vanishes on the null space
    dC = V @ (gamma * (V.mT @ G.double() @ V)) @ V.mT
    dX = 2 / n * dC @ centered
    truth = (V * r[:, None, :]) @ V.mT, dX - dX.mean(-1, keepdim=True)
    condition = w[:, -1] / w[:, -rank]
    allowed = THRESHOLD * w.shape[-1] ** 0.5 * torch.finfo(X.dtype).eps * condition

    def judge(results: Results) -> Verdict:
        errors = [distance(x, t) for x, t in zip(results, truth, strict=True)]
        return verdict(torch.stack(errors), allowed.expand(2, -1))

    return judge


def polar_factor(M: Tensor) -> Judge:
    """Orthonormal columns or rows, and the factor of a float64 decomposition, within 30 √d ε κ(M)."""
    U, S, Vh = torch.linalg.svd(widened(M), full_matrices=False)
    truth, tall = U @ Vh, M.shape[-2] >= M.shape[-1]
    allowed = THRESHOLD * S.shape[-1] ** 0.5 * torch.finfo(M.dtype).eps * S[:, 0] / S[:, -1]

    def judge(results: Results) -> Verdict:
        Q = widened(results[0])
        orthogonality = _skewness(Q if tall else Q.mH) / S.shape[-1] ** 0.5
        return verdict(torch.stack([orthogonality, distance(Q, truth)]), allowed.expand(2, -1))

    return judge


def whitened(X: Tensor, G: Tensor, reference: Callable[[Tensor], Tensor], picked: slice | Tensor) -> Judge:
    """Value and gradient in X of ⟨layer(X), G⟩ against the same layer in float64, within 30 √d ε κ of the covariance.

    The layer whitens all samples together; the positions ``picked`` are compared. ``reference`` may be
    differentiated by autograd: in float64, the gaps of a sample covariance leave nine digits.
    """
    leaf = widened(X).requires_grad_()
    value = reference(leaf)
    truth = [x[picked] for x in (value.detach(), *torch.autograd.grad(value, leaf, widened(G)))]
    spread = torch.linalg.cond(torch.cov(leaf.detach().transpose(0, 1).flatten(1)))
    allowed = THRESHOLD * X.shape[1] ** 0.5 * torch.finfo(X.dtype).eps * spread

    def judge(results: Results) -> Verdict:
        pairs = zip(results[:2], truth, strict=True)
        errors = torch.stack([distance(x.flatten(1), t.flatten(1)) for x, t in pairs])
        return verdict(errors, allowed.expand_as(errors))

    return judge


def widened(x: Tensor) -> Tensor:
    """The tensor in float64 or complex128, without gradient."""
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)


def _skewness(Q: Tensor) -> Tensor:
    """How far the columns are from orthonormal: ‖QᴴQ − I‖ of each matrix."""
    return torch.linalg.matrix_norm(Q.mH @ Q - torch.eye(Q.shape[-1], dtype=Q.dtype))


def distance(x: Tensor, truth: Tensor) -> Tensor:
    """Relative Frobenius error of each matrix of the batch, or Euclidean error of each row."""
    wide = widened(x)
    if truth.dim() == 2:
        return torch.linalg.vector_norm(wide - truth, dim=-1) / torch.linalg.vector_norm(truth, dim=-1)
    return torch.linalg.matrix_norm(wide - truth) / torch.linalg.matrix_norm(truth)


def _within(errors: Tensor, M: Tensor) -> Verdict:
    """Whether relative errors are below LAPACK's threshold for matrices M."""
    return verdict(errors, torch.full_like(errors, THRESHOLD * max(M.shape[-2:]) * torch.finfo(M.dtype).eps))


def verdict(errors: Tensor, allowed: Tensor) -> Verdict:
    """The worst of relative errors, and whether each is within what is allowed."""
    error = float(errors.max()) if bool(errors.isfinite().all()) else float("nan")
    return Verdict(error, bool((errors <= allowed).all()))


def _worst(verdicts: list[Verdict]) -> Verdict:
    errors = [verdict.error for verdict in verdicts]
    error = max(errors) if all(e == e for e in errors) else float("nan")
    return Verdict(error, all(verdict.right for verdict in verdicts))
