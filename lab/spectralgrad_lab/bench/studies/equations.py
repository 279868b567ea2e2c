"""The contests of linear equations: least squares and pseudo-inverses, forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from spectralgrad import lstsq, pinv

from .. import accuracy
from ..accuracy import Judge, Results, Verdict
from ..cases import Case, matrices
from ..outcomes import Contest, Contestant, checked

Solution = Callable[..., Tensor]


def least_squares(case: Case) -> Contest:
    """Gaussian matrices with one right-hand side, and the gradients in both."""
    M = matrices(case)
    B, G = matrices(case, seed=1)[..., :1], matrices(case, seed=2).mH[..., :1]

    def by_solution(M: Tensor, B: Tensor) -> Tensor:
        solution: Tensor = torch.linalg.lstsq(M, B).solution
        return solution

    contestants = [
        Contestant("ours", _both_ways(lambda M, B: lstsq(M, B).solution, (M, B), G), ours=True, exact=True),
        Contestant("torch", _both_ways(by_solution, (M, B), G)),
        Contestant("pinv", _both_ways(lambda M, B: torch.linalg.pinv(M) @ B, (M, B), G)),
    ]
    return Contest("lstsq", case, contestants, _judge(lambda M, B: torch.linalg.pinv(M) @ B, case, (M, B), G))


def pseudo_inverse(case: Case) -> Contest:
    """Gaussian matrices, and the gradient."""
    M, G = matrices(case), matrices(case, seed=1).mH
    contestants = [
        Contestant("ours", _both_ways(pinv, (M,), G), ours=True, exact=True),
        Contestant("torch", _both_ways(torch.linalg.pinv, (M,), G)),
    ]
    return Contest("pinv", case, contestants, _judge(torch.linalg.pinv, case, (M,), G))


def _both_ways(solution: Solution, inputs: Sequence[Tensor], G: Tensor) -> Callable[[], Results]:
    leaves = [x.clone().requires_grad_() for x in inputs]

    def both() -> Results:
        value = solution(*leaves)
        return value.detach(), *torch.autograd.grad(value, leaves, G)

    return both


def _judge(solution: Solution, case: Case, inputs: Sequence[Tensor], G: Tensor) -> Judge:
    """Value and gradients against torch's in float64, each within 30 max(m, n) ε times the condition number."""
    picked = checked(case)
    wide = [accuracy.widened(x[picked]) for x in inputs]
    truth = _both_ways(solution, wide, accuracy.widened(G[picked]))()
    allowed = 30 * max(case.shape) * torch.finfo(G.dtype).eps * torch.linalg.cond(wide[0])

    def judge(results: Results) -> Verdict:
        errors = [accuracy.distance(x, t) for x, t in zip(results, truth, strict=True)]
        return accuracy.verdict(torch.stack(errors), allowed.expand(len(errors), -1))

    return judge
