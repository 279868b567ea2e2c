r"""The contest of Procrustes problems: the rotation and translation between two sets of points, and their gradient.

The reference is the formula in float64, in plain torch: with
:math:`C=\sum_i(y_i-\bar y)(x_i-\bar x)^\top=R\,V\mathrm{diag}(h)V^\top`
the gradient of :math:`\langle R,G\rangle` in C is
 :math:`RV\bigl((V^\top(R^\top G-G^\top R)V)_{ij}/(h_i+h_j)\bigr)V^\top`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spectralgrad import procrustes

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
    sums = (h.unsqueeze(-1) + h.unsqueeze(-2)).masked_fill(torch.eye(h.shape[-1], dtype=torch.bool), 1)
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
