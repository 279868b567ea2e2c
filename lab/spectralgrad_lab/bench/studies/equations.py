"""The contests of linear equations: least squares, pseudo-inverses and Lyapunov equations, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from spectralgrad import lstsq, pinv, solve_lyapunov

from .. import accuracy
from ..accuracy import Judge, Results, Verdict
from ..cases import GAUSSIAN, Case, matrices
from ..outcomes import Contest, Contestant, checked

Solution = Callable[..., Tensor]


def least_squares(case: Case) -> Contest:
    """Gaussian matrices with one right-hand side, and the gradients in both."""
    M = matrices(case)
    B, G = matrices(case, seed=1)[..., :1], matrices(case, seed=2).mH[..., :1]

    def by_solution(M: Tensor, B: Tensor) -> Tensor:
        solution: Tensor = torch.linalg.lstsq(M, B).solution
        return solution

    def by_inverse(M: Tensor, B: Tensor) -> Tensor:
        return torch.linalg.pinv(M) @ B

    contestants = [
        Contestant("ours", _both_ways(lambda M, B: lstsq(M, B).solution, (M, B), G), ours=True, exact=True),
        Contestant("torch", _both_ways(by_solution, (M, B), G)),
        Contestant("pinv", _both_ways(by_inverse, (M, B), G)),
    ]
    return Contest("lstsq", case, contestants, _judge(_by_autograd(by_inverse), case, (M, B), G))


def pseudo_inverse(case: Case) -> Contest:
    """Gaussian matrices, and the gradient."""
    M, G = matrices(case), matrices(case, seed=1).mH
    contestants = [
        Contestant("ours", _both_ways(pinv, (M,), G), ours=True, exact=True),
        Contestant("torch", _both_ways(torch.linalg.pinv, (M,), G)),
    ]
    return Contest("pinv", case, contestants, _judge(_by_autograd(torch.linalg.pinv), case, (M,), G))


def lyapunov(case: Case) -> Contest:
    """Positive definite coefficients and right-hand sides that are not symmetric, and the gradients in both."""
    A = matrices(case, definite=True)
    C, G = (matrices(replace(case, columns=case.size, spectrum=GAUSSIAN), seed=seed) for seed in (1, 2))
    contestants = [
        Contestant("ours", _both_ways(solve_lyapunov, (A, C), G), ours=True, exact=True),
        Contestant("torch", _both_ways(by_eigenpairs, (A, C), G)),
    ]
    return Contest("lyapunov", case, contestants, _judge(_by_adjoint, case, (A, C), G))


def by_eigenpairs(A: Tensor, C: Tensor) -> Tensor:
    """Return the solution by the usual composition in torch, differentiated by autograd.

    Example:
        >>> by_eigenpairs(torch.diag(torch.tensor([1.0, 3.0])), torch.ones(2, 2))
        tensor([[0.5000, 0.2500],
                [0.2500, 0.1667]])
    """
    w, V = torch.linalg.eigh(A)
    return V @ ((V.mH @ C @ V) / (w.unsqueeze(-1) + w.unsqueeze(-2))) @ V.mH


def _by_adjoint(A: Tensor, C: Tensor, G: Tensor) -> Results:
    """Return the solution and the gradients from the adjoint equation AH + HA = G, which divides by no gap."""
    X, H = by_eigenpairs(A, C), by_eigenpairs(A, G)
    product = -H @ X.mH - X.mH @ H
    return X, (product + product.mH) / 2, H


def _both_ways(solution: Solution, inputs: Sequence[Tensor], G: Tensor) -> Callable[[], Results]:
    leaves = [x.clone().requires_grad_() for x in inputs]

    def both() -> Results:
        value = solution(*leaves)
        return value.detach(), *torch.autograd.grad(value, leaves, G)

    return both


def _by_autograd(solution: Solution) -> Callable[..., Results]:
    return lambda *given: _both_ways(solution, given[:-1], given[-1])()


def _judge(truth: Callable[..., Results], case: Case, inputs: Sequence[Tensor], G: Tensor) -> Judge:
    """Value and gradients against float64 in plain torch, each within 30 max(m, n) ε times the condition number."""
    picked = checked(case)
    wide = [accuracy.widened(x[picked]) for x in (*inputs, G)]
    expected = truth(*wide)
    allowed = 30 * max(case.shape) * torch.finfo(G.dtype).eps * torch.linalg.cond(wide[0])
    symmetric = truth is _by_adjoint  # the gradient in A is defined for symmetric directions only

    def judge(results: Results) -> Verdict:
        value, gradient, *rest = results
        found = (value, (gradient + gradient.mH) / 2 if symmetric else gradient, *rest)
        errors = [accuracy.distance(x, t) for x, t in zip(found, expected, strict=True)]
        return accuracy.verdict(torch.stack(errors), allowed.expand(len(errors), -1))

    return judge
