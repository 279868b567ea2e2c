"""The contest of generalised eigenproblems A X = B X diag(w): the value X f(w) Xᴴ and its gradients in A and B."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spectralgrad import eigh

from .. import accuracy
from ..accuracy import Judge, Results, Verdict
from ..cases import Case, matrices
from ..outcomes import Contest, Contestant, checked

Eigenpairs = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def contest(case: Case) -> Contest:
    """Positive definite A and B of the same kind; f(w) = w/(1 + w)."""
    A, B, G = (matrices(case, definite=True, seed=seed) for seed in range(3))
    contestants = [
        Contestant("ours", _both_ways(lambda A, B: eigh(A, B), A, B, G), ours=True, exact=True),
        Contestant("torch", _both_ways(by_cholesky, A, B, G)),
    ]
    picked = checked(case)
    return Contest("generalised", case, contestants, _judge(A[picked], B[picked], G[picked]))


def by_cholesky(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs by the usual composition in torch, differentiated by autograd.

    Example:
        >>> w, X = by_cholesky(torch.diag(torch.tensor([8.0, 2.0])), torch.diag(torch.tensor([4.0, 2.0])))
        >>> w.round(decimals=5)
        tensor([1., 2.])
    """
    L = torch.linalg.cholesky(B)
    half = torch.linalg.solve_triangular(L, A, upper=False)
    w, Y = torch.linalg.eigh(torch.linalg.solve_triangular(L, half.mH, upper=False))
    return w, torch.linalg.solve_triangular(L.mH, Y, upper=True)


def _both_ways(eigenpairs: Eigenpairs, A: Tensor, B: Tensor, G: Tensor) -> Callable[[], Results]:
    leaves = [x.clone().requires_grad_() for x in (A, B)]

    def both() -> Results:
        w, X = eigenpairs(*leaves)
        value = (X * (w / (1 + w)).unsqueeze(-2).to(X.dtype)) @ X.mH
        return value.detach(), *torch.autograd.grad(value, leaves, G)

    return both


def _judge(A: Tensor, B: Tensor, G: Tensor) -> Judge:
    """Value and gradients against float64, each within 30 ε κ(B) max(d, 1/gap), 1/gap as in ``accuracy.filtered``."""
    wide = tuple(accuracy.widened(x) for x in (A, B, G))
    truth = _both_ways(by_cholesky, *wide)()
    w, spread = by_cholesky(*wide[:2])[0], torch.linalg.cond(wide[1])
    gaps = (w.unsqueeze(-1) - w.unsqueeze(-2)).abs() / w[:, -1:, None]
    amplified = torch.where(gaps > 0, 1 / gaps, 0).square().mean((-2, -1)).sqrt()
    allowed = 30 * torch.finfo(A.dtype).eps * spread * amplified.clamp_min(A.shape[-1])

    def judge(results: Results) -> Verdict:
        pairs = zip(results, truth, strict=True)
        return accuracy.verdict(torch.stack([accuracy.distance(*map(_hermitian, pair)) for pair in pairs]), allowed)

    return judge


def _hermitian(x: Tensor) -> Tensor:
    return (x + x.mH) / 2
