r"""Check results before they are timed, against float64 references in plain torch that use none of our code.

The reference of :math:`A^{-1/2}` and its gradient is :math:`V(\Gamma\circ V^TGV)V^T` with
:math:`\Gamma_{ij}=-1/(r_ir_j(r_i+r_j))`, :math:`r=\sqrt\lambda`; that of :math:`C^{1/2}` has
:math:`\Gamma_{ij}=1/(r_i+r_j)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_THRESHOLD = 30.0  # as in LAPACK's own tests

Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Verdict:
    """The worst relative error over the batch, and whether every error is within what the conditioning allows."""

    error: float
    right: bool


Judge = Callable[[Results], Verdict]


def eigenpairs(A: Tensor) -> Judge:
    """LAPACK's test: residual, orthogonality and eigenvalues within 30 d ε of the norm."""
    wide, eps = A.double(), torch.finfo(A.dtype).eps
    values, size = torch.linalg.eigvalsh(wide), torch.linalg.matrix_norm(wide)
    identity = torch.eye(A.shape[-1], dtype=torch.float64)

    def judge(results: Results) -> Verdict:
        w, V = (x.detach().double() for x in results)
        residual = torch.linalg.matrix_norm((V * w.unsqueeze(-2)) @ V.mT - wide) / size
        orthogonality = torch.linalg.matrix_norm(V.mT @ V - identity)
        distance = torch.linalg.vector_norm(w - values, dim=-1) / size
        errors = torch.stack([residual, orthogonality, distance])
        return _verdict(errors, torch.full_like(errors, _THRESHOLD * A.shape[-1] * eps))

    return judge


def inverse_root(A: Tensor, G: Tensor) -> Judge:
    """Value and gradient of ⟨A^(−1/2), G⟩, each within 30 √d ε κ(A)."""
    w, V = torch.linalg.eigh(A.double())
    r = w.sqrt()
    gamma = -1 / (r[:, :, None] * r[:, None, :] * (r[:, :, None] + r[:, None, :]))
    truth = (V / r[:, None, :]) @ V.mT, V @ (gamma * (V.mT @ G.double() @ V)) @ V.mT
    allowed = _THRESHOLD * A.shape[-1] ** 0.5 * torch.finfo(A.dtype).eps * w[:, -1] / w[:, 0]

    def judge(results: Results) -> Verdict:
        value, gradient = results
        errors = [_distance(value, truth[0]), _distance((gradient + gradient.mT) / 2, truth[1])]
        return _verdict(torch.stack(errors), allowed.expand(2, -1))

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
    allowed = _THRESHOLD * w.shape[-1] ** 0.5 * torch.finfo(X.dtype).eps * condition

    def judge(results: Results) -> Verdict:
        errors = [_distance(x, t) for x, t in zip(results, truth, strict=True)]
        return _verdict(torch.stack(errors), allowed.expand(2, -1))

    return judge


def polar_factor(M: Tensor) -> Judge:
    """Orthonormal rows, and the factor of a float64 decomposition, within 30 √d ε κ(M)."""
    U, S, Vh = torch.linalg.svd(M.double(), full_matrices=False)
    truth, identity = U @ Vh, torch.eye(S.shape[-1], dtype=torch.float64)
    allowed = _THRESHOLD * S.shape[-1] ** 0.5 * torch.finfo(M.dtype).eps * S[:, 0] / S[:, -1]

    def judge(results: Results) -> Verdict:
        Q = results[0].detach().double()
        Q, right = (Q, truth) if Q.shape[-2] <= Q.shape[-1] else (Q.mT, truth.mT)
        orthogonality = torch.linalg.matrix_norm(Q @ Q.mT - identity) / S.shape[-1] ** 0.5
        return _verdict(torch.stack([orthogonality, _distance(Q, right)]), allowed.expand(2, -1))

    return judge


def _distance(x: Tensor, truth: Tensor) -> Tensor:
    """Relative Frobenius error of each matrix of the batch."""
    return torch.linalg.matrix_norm(x.detach().double() - truth) / torch.linalg.matrix_norm(truth)


def _verdict(errors: Tensor, allowed: Tensor) -> Verdict:
    error = float(errors.max()) if bool(errors.isfinite().all()) else float("nan")
    return Verdict(error, bool((errors <= allowed).all()))
