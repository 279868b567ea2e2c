r"""The contest of canonical correlations: the loss of deep CCA for batches that have fewer samples than features.

The reference is the gradient of the paper (Andrew et al., ICML 2013), in float64: with centred samples in the rows of X
and Y, :math:`T=C_x^{-1/2}C_{xy}C_y^{-1/2}=UDV^\top`, and the sum of the singular values as the value,

.. math:: (n-1)\,\bar X=Y\,C_y^{-1/2}VU^\top C_x^{-1/2}-X\,C_x^{-1/2}UDU^\top C_x^{-1/2} .
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spectralgrad import canonical_correlations

from .. import accuracy
from ..accuracy import Judge, Results, Verdict, widened
from ..cases import Case, matrices
from ..outcomes import Contest, Contestant, checked

_EPS = 1e-3  # as in public code


def contest(case: Case) -> Contest:
    """Samples (B, n, d) in two views: the sum of all correlations, and its gradient."""
    X, Y = matrices(case), matrices(case, seed=1)
    contestants = [
        Contestant(
            "ours", _both_ways(lambda X, Y: canonical_correlations(X, Y, eps=_EPS), X, Y), ours=True, exact=True
        ),
        Contestant("torch", _both_ways(by_covariances, X, Y)),
    ]
    some = checked(case)
    return Contest("cca", case, contestants, _judge(X[some], Y[some]))


def by_covariances(X: Tensor, Y: Tensor) -> Tensor:
    """The correlations as in public code: inverse roots of both covariances by ``torch.linalg.eigh``.

    Example:
        >>> X = torch.eye(4, dtype=torch.float64)[:, :2]
        >>> by_covariances(X, 3 * X).round(decimals=1)
        tensor([1., 1.], dtype=torch.float64)
    """
    near, far = (P - P.mean(-2, keepdim=True) for P in (X, Y))
    whiten, other = (_inverse_root(P) for P in (near, far))
    return torch.linalg.svdvals(whiten @ (near.mT @ far / (X.shape[-2] - 1)) @ other)


def _inverse_root(P: Tensor) -> Tensor:
    C = P.mT @ P / (P.shape[-2] - 1) + _EPS * torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    w, V = torch.linalg.eigh(C)
    return (V * w.rsqrt().unsqueeze(-2)) @ V.mT


def _both_ways(correlations: Callable[[Tensor, Tensor], Tensor], X: Tensor, Y: Tensor) -> Callable[[], Results]:
    """The sum, and its gradient in X; the one in Y is computed too."""
    leaves = [X.clone().requires_grad_(), Y.clone().requires_grad_()]

    def both() -> Results:
        value = correlations(*leaves).sum(-1)
        return value.detach().unsqueeze(-1), torch.autograd.grad(value.sum(), leaves)[0]

    return both


def _judge(X: Tensor, Y: Tensor) -> Judge:
    """Value and gradient, each within 30 n ε of the larger part of it, beside the rounding errors of the reference."""
    near, far = (widened(P) - widened(P).mean(-2, keepdim=True) for P in (X, Y))
    n = X.shape[-2]
    whiten, other = (_inverse_root(P) for P in (near, far))
    U, D, Vh = torch.linalg.svd(whiten @ (near.mT @ far / (n - 1)) @ other)
    joint = far @ other @ Vh.mT @ U.mT @ whiten
    own = near @ whiten @ (U * D.unsqueeze(-2)) @ U.mT @ whiten
    truth, sizes = (D.sum(-1, keepdim=True), (joint - own) / (n - 1)), (D.sum(-1), torch.linalg.matrix_norm(joint) / n)
    condition = max(float(P.square().sum((-2, -1)).max()) for P in (near, far)) / (n - 1) / _EPS
    allowed = accuracy.THRESHOLD * n * (torch.finfo(X.dtype).eps + torch.finfo(torch.float64).eps * condition)

    def judge(results: Results) -> Verdict:
        parts = zip(results, truth, sizes, strict=True)
        errors = torch.stack([(widened(x) - t).flatten(1).norm(dim=1) / size for x, t, size in parts])
        return accuracy.verdict(errors, torch.as_tensor(allowed).expand_as(errors))

    return judge
