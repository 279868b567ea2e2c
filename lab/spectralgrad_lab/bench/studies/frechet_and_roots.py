"""Two contests: the Fréchet distance of few samples with many features, and the roots of optimisers like Shampoo."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spectralgrad import frechet_distance
from spectralgrad.optim import inverse_root

from .. import accuracy
from ..accuracy import Judge, Results, Verdict
from ..cases import Case, matrices
from ..outcomes import Contest, Contestant, checked

_EPS = 1e-6  # added to covariances by the usual code, so that the root of their product has a gradient


def frechet(case: Case) -> Contest:
    """Samples (B, n, d): the squared distance and its gradient in the first."""
    X, Y = matrices(case), matrices(case, seed=1) + 0.1
    contestants = [
        Contestant("ours", _both_ways(lambda X: frechet_distance(X, Y), X), ours=True, exact=True),
        Contestant("eigvals", _both_ways(lambda X: by_eigenvalues(X, Y), X)),
    ]
    return Contest("frechet", case, contestants, _frechet_judge(X[checked(case)], Y[checked(case)]))


def fourth_root(case: Case) -> Contest:
    """A^(−1/4) of a batch without gradient."""
    A = matrices(case, definite=True)

    def composed() -> Results:
        w, V = torch.linalg.eigh(A)
        return ((V * w.pow(-0.25).unsqueeze(-2)) @ V.mH,)

    contestants = [
        Contestant("ours", lambda: (inverse_root(A, 4),), ours=True, exact=True),
        Contestant("torch", composed),
    ]
    return Contest("fourth_root", case, contestants, _root_judge(A[checked(case)]))


def by_eigenvalues(X: Tensor, Y: Tensor) -> Tensor:
    """The distance as FID code computes it in torch: by the eigenvalues of the product of two d×d covariances.

    Example:
        >>> X = torch.randn(9, 4, dtype=torch.float64)
        >>> round(by_eigenvalues(X, X + 1).item(), 4)
        4.0

    Reference: Heusel et al., GANs trained by a two time-scale update rule, NeurIPS 2017.
    """
    identity = torch.eye(X.shape[-1], dtype=X.dtype)
    means, moments = [], []
    for Z in (X, Y):
        mean = Z.mean(-2, keepdim=True)
        means.append(mean.squeeze(-2))
        moments.append((Z - mean).mT @ (Z - mean) / (Z.shape[-2] - 1) + _EPS * identity)
    cross = torch.linalg.eigvals(moments[0] @ moments[1]).sqrt().real.sum(-1)
    traces = sum(C.diagonal(dim1=-2, dim2=-1).sum(-1) for C in moments)
    return (means[0] - means[1]).square().sum(-1) + traces - 2 * cross


def _both_ways(distance: Callable[[Tensor], Tensor], X: Tensor) -> Callable[[], Results]:
    leaf = X.clone().requires_grad_()

    def both() -> Results:
        value = distance(leaf)
        return value.detach().unsqueeze(-1), *torch.autograd.grad(value.sum(), leaf)

    return both


def _frechet_judge(X: Tensor, Y: Tensor) -> Judge:
    """Value and gradient against the nuclear norm of a float64 SVD, each within 30 n ε."""
    wide = [Z.double() - Z.double().mean(-2, keepdim=True) for Z in (X, Y)]
    first, second = (Z / (Z.shape[-2] - 1) ** 0.5 for Z in wide)
    shift = X.double().mean(-2) - Y.double().mean(-2)
    U, S, Vh = torch.linalg.svd(first @ second.mT, full_matrices=False)
    turned = (U[..., :-1] @ Vh[..., :-1, :]) @ second  # the last pair belongs to the mean
    value = first.square().sum((-2, -1)) + second.square().sum((-2, -1)) - 2 * S.sum(-1) + shift.square().sum(-1)
    n = X.shape[-2]
    gradient = 2 * ((first - turned) / (n - 1) ** 0.5 + shift.unsqueeze(-2) / n)
    return _against((value.unsqueeze(-1), gradient), accuracy.THRESHOLD * n * torch.finfo(X.dtype).eps)


def _root_judge(A: Tensor) -> Judge:
    """The root of a float64 decomposition, within 30 √d ε κ(A)."""
    w, V = torch.linalg.eigh(accuracy.widened(A))
    allowed = accuracy.THRESHOLD * A.shape[-1] ** 0.5 * torch.finfo(A.dtype).eps * w[:, -1] / w[:, 0]
    return _against(((V * w.pow(-0.25).unsqueeze(-2)) @ V.mH,), allowed)


def _against(truth: Results, allowed: Tensor | float) -> Judge:
    def judge(results: Results) -> Verdict:
        errors = torch.stack([accuracy.distance(x, t) for x, t in zip(results, truth, strict=True)])
        return accuracy.verdict(errors, torch.as_tensor(allowed).expand_as(errors))

    return judge
