r"""Contests of Procrustes problems: the rotation and translation between two sets of points, and the distance left.

The reference is the formula in float64, in plain torch: with
:math:`C=\sum_i(y_i-\bar y)(x_i-\bar x)^\top=R\,V\mathrm{diag}(h)V^\top`
the gradient of :math:`\langle R,G\rangle` in C is
 :math:`RV\bigl((V^\top(R^\top G-G^\top R)V)_{ij}/(h_i+h_j)\bigr)V^\top`.
The gradient of the mean squared distance in X is :math:`2R^\top(Rx_i+t-y_i)/n`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spectralgrad import procrustes, rmsd

from ..accuracy import Judge, Results, Verdict, widened
from ..cases import Case, matrices
from ..outcomes import Contest, Contestant, checked


def contest(case: Case) -> Contest:
    """B pairs of ``case.size`` points with ``case.columns`` coordinates; forward and backward pass."""
    X, Y = matrices(case), matrices(case, seed=1)
    generator = torch.Generator().manual_seed(2)
    G = torch.randn(case.batch, case.columns, case.columns, generator=generator).to(case.dtype)
    contestants = [
        Contestant("ours", _both_ways(_ours, X, Y, G), ours=True, exact=True),
        Contestant("torch", _both_ways(by_svd, X, Y, G)),
    ]
    some = checked(case)
    return Contest("procrustes", case, contestants, aligned(X[some], Y[some], G[some]))


def distances(case: Case) -> Contest:
    """The mean squared distance of B pairs of ``case.size`` points after the best alignment, and its gradient."""
    X = matrices(case)
    Y = X.flip(-1) + 0.3 * matrices(case, seed=1)
    contestants = [
        Contestant("ours", _with_gradient(rmsd, X, Y), ours=True, exact=True),
        Contestant("torch", _with_gradient(distance_by_svd, X, Y)),
    ]
    some = checked(case)
    return Contest("rmsd", case, contestants, _distance_judge(X[some], Y[some]))


def _ours(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    found = procrustes(X, Y)
    return found.rotation, found.translation


def by_svd(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """The obvious composition: means, cross-covariance, ``torch.linalg.svd``, determinant.

    Example:
        >>> X = torch.eye(3)
        >>> torch.allclose(by_svd(X, X + 1.0)[1], torch.ones(3), atol=1e-5)
        True
    """
    x, y = X.mean(-2, keepdim=True), Y.mean(-2, keepdim=True)
    U, _, Vh = torch.linalg.svd((Y - y).mT @ (X - x))
    signs = torch.ones_like(U[..., 0])
    signs[..., -1] = torch.linalg.det(U.detach() @ Vh.detach()).sign()
    R = (U * signs.unsqueeze(-2)) @ Vh
    return R, (y - x @ R.mT).squeeze(-2)


def distance_by_svd(X: Tensor, Y: Tensor) -> Tensor:
    """The mean squared distance of the points that :func:`by_svd` aligns."""
    R, t = by_svd(X, Y)
    return (X @ R.mT + t.unsqueeze(-2) - Y).square().sum(-1).mean(-1)


def _distance_judge(X: Tensor, Y: Tensor) -> Judge:
    """The distance and its gradient in X, each within 30 √(nk) ε of the size of the points."""
    X, Y = widened(X), widened(Y)
    R, t = by_svd(X, Y)
    misses = X @ R.mT + t.unsqueeze(-2) - Y
    truth = misses.square().sum(-1).mean(-1)[..., None, None], 2 * misses @ R / X.shape[-2]
    size = torch.linalg.matrix_norm(X) + torch.linalg.matrix_norm(Y)
    count = X.shape[-1] * X.shape[-2]

    def judge(results: Results) -> Verdict:
        value, slope = widened(results[0])[..., None, None], widened(results[1])
        parts = [(value, truth[0], size**2 / X.shape[-2]), (slope, truth[1], 2 * size / X.shape[-2])]
        error = torch.stack([torch.linalg.matrix_norm(x - y) / scale for x, y, scale in parts]).max()
        return Verdict(float(error), bool(error <= 30 * count**0.5 * torch.finfo(results[0].dtype).eps))

    return judge


def aligned(X: Tensor, Y: Tensor, G: Tensor) -> Judge:
    """R and the gradient in X, each within 30 √(nk) ε times the condition σ₁/(h_{k−1} + h_k) of the rotation."""
    near, far = (widened(P) - widened(P).mean(-2, keepdim=True) for P in (X, Y))
    U, h, Vh = torch.linalg.svd(far.mT @ near)
    sign = torch.linalg.det(U @ Vh).sign()
    U, h = U.clone(), h.clone()
    U[..., -1] *= sign.unsqueeze(-1)
    h[..., -1] *= sign
    R, cotangent = U @ Vh, widened(G)
    W = Vh @ (R.mT @ cotangent - cotangent.mT @ R) @ Vh.mT
    sums = (h.unsqueeze(-1) + h.unsqueeze(-2)).masked_fill(torch.eye(h.shape[-1], dtype=torch.bool, device=h.device), 1)
    truth = R, far @ (R @ Vh.mT @ (W / sums) @ Vh)
    condition = h[..., 0] / (h[..., -2] + h[..., -1])
    allowed = 30 * (X.shape[-1] * X.shape[-2]) ** 0.5 * torch.finfo(X.dtype).eps * condition

    def judge(results: Results) -> Verdict:
        errors = torch.stack([_distance(x, t) for x, t in zip(results, truth, strict=True)])
        error = float(errors.max()) if bool(errors.isfinite().all()) else float("nan")
        return Verdict(error, bool((errors <= allowed).all()))

    return judge


def _distance(x: Tensor, truth: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(widened(x) - truth) / torch.linalg.matrix_norm(truth)


def _both_ways(
    function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], X: Tensor, Y: Tensor, G: Tensor
) -> Callable[[], Results]:
    """R, and the gradient of ⟨R, G⟩ in the points X; the gradient in Y is computed too."""
    leaves = [X.clone().requires_grad_(), Y.clone().requires_grad_()]

    def both() -> Results:
        rotation, _ = function(*leaves)
        return rotation.detach(), torch.autograd.grad(rotation, leaves, G)[0]

    return both


def _with_gradient(function: Callable[[Tensor, Tensor], Tensor], X: Tensor, Y: Tensor) -> Callable[[], Results]:
    """The distances, and their gradient in X; the one in Y is computed too."""
    leaves = [X.clone().requires_grad_(), Y.clone().requires_grad_()]

    def both() -> Results:
        value = function(*leaves)
        return value.detach(), torch.autograd.grad(value, leaves, torch.ones_like(value))[0]

    return both
