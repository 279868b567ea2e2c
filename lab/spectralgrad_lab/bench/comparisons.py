"""What is compared: for each contest, who takes part and how the results are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TextIO

import torch
from torch import Tensor, nn

import spectralgrad
from spectralgrad import covariance_sqrt, eigh, matrix_inv_sqrt, polar, singular_value_function, svd
from spectralgrad.diagnostics.other_implementations import installed_peers, torch_autograd
from spectralgrad.nn import DecorrelatedBatchNorm2d

from . import accuracy, jax_rivals, timing
from .accuracy import Judge, Results
from .cases import Case, matrices
from .outcomes import Contest, Contestant, Outcome, checked, hold
from .rivals import new_in_torch, newton_schulz, plain_covariance
from .studies import alignment, correlations, equations, frechet_and_roots, generalised, singular_filter
from .studies.layers import composition


def run(plan: Iterable[tuple[str, Case]], seconds: float = 1.0, progress: TextIO | None = None) -> list[Outcome]:
    """Run contests.

    Args:
        plan: names in ``CONTESTS``, each with a case.
        seconds: time for each contest; every contestant runs at least twice, or once if it takes more than two seconds.
        progress: a stream for a progress line, or None.

    Example:
        >>> (outcome,) = run([("eigh", Case(2, 3, torch.float32))], seconds=0.01)
        >>> [entry.name for entry in outcome.entries if entry.right][:2]
        ['ours', 'torch']
    """
    plan, outcomes = list(plan), []
    for count, (name, case) in enumerate(plan):
        if progress is not None:
            line = f"{count:3d}/{len(plan)}  {name} {case.label} {case.precision} {case.spectrum}"
            print(f"\r{line:<70}", end="", file=progress, flush=True)
        with timing.thread_count(1):  # the references need no speed, and one thread is not disturbed by other programs
            contest = CONTESTS[name](case)
        outcomes.append(hold(contest, seconds))
    if progress is not None:
        print(f"\r{'':70}\r", end="", file=progress, flush=True)
    return outcomes


def _eigh(case: Case) -> Contest:
    A = matrices(case)
    contestants = [
        Contestant("ours", lambda: tuple(eigh(A)), ours=True, exact=True),
        Contestant("torch", lambda: torch.linalg.eigh(A), exact=True),
        *jax_rivals.contestants("eigh", A),
    ]
    return Contest("eigh", case, contestants, accuracy.eigenpairs(A[checked(case)]))


def _eigvalsh(case: Case) -> Contest:
    A = matrices(case)
    contestants = [
        Contestant("ours", lambda: (_own_eigenvalues(A),), ours=True, exact=True),
        Contestant("torch", lambda: (torch.linalg.eigvalsh(A),), exact=True),
        *jax_rivals.contestants("eigvalsh", A),
    ]
    return Contest("eigvalsh", case, contestants, accuracy.eigenvalues(A[checked(case)]))


def _own_eigenvalues(A: Tensor) -> Tensor:
    function = getattr(spectralgrad, "eigvalsh", None)
    return eigh(A).eigenvalues if function is None else function(A)


def _svd(case: Case) -> Contest:
    M = matrices(case)
    contestants = [
        Contestant("ours", lambda: tuple(svd(M)), ours=True, exact=True),
        Contestant("torch", lambda: torch.linalg.svd(M, full_matrices=False), exact=True),
        *jax_rivals.contestants("svd", M),
    ]
    return Contest("svd", case, contestants, accuracy.singular_triplets(M[checked(case)]))


def _svd_grad(case: Case) -> Contest:
    M = matrices(case)
    G = matrices(case, seed=1)
    contestants = [
        Contestant("ours", _both_ways(lambda X: singular_filter.apply(*svd(X)), M, G), ours=True, exact=True),
        Contestant("function", _both_ways(_filtered, M, G), ours=True, exact=True),
        Contestant("torch", _both_ways(lambda X: singular_filter.apply(*_torch_svd(X)), M, G)),
        *jax_rivals.contestants("svd_grad", M, G),
    ]
    return Contest("svd_grad", case, contestants, _on_checked(accuracy.filtered, case, M, G))


def _filtered(M: Tensor) -> Tensor:
    return singular_value_function(M, singular_filter.scalar)


def _torch_svd(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.linalg.svd(M, full_matrices=False)


def _inv_sqrt(case: Case) -> Contest:
    A = matrices(case, definite=True)
    G = _cotangent(A)
    roots = {"sqrth": new_in_torch().get("inv_sqrt"), **installed_peers("inv_sqrt")}
    contestants = [
        Contestant("exact", _both_ways(matrix_inv_sqrt, A, G), ours=True, exact=True),
        Contestant("taylor", _both_ways(partial(matrix_inv_sqrt, method="svd-taylor"), A, G), ours=True),
        Contestant("autograd", _both_ways(torch_autograd("inv_sqrt"), A, G)),
        Contestant("ns5", _both_ways(lambda X: newton_schulz(X, 5, inverse=True), A, G)),
        Contestant("ns10", _both_ways(lambda X: newton_schulz(X, 10, inverse=True), A, G)),
        *(Contestant(name, _both_ways(partial(matrix_inv_sqrt, method=name), A, G)) for name in ("mtp", "mpa")),
        *jax_rivals.contestants("inv_sqrt", A, G),
        *(Contestant(name, _both_ways(root, A, G)) for name, root in roots.items() if root is not None),
    ]
    return Contest("inv_sqrt", case, contestants, _on_checked(accuracy.inverse_root, case, A, G))


def _covariance(case: Case) -> Contest:
    X = matrices(case)
    G = _cotangent(X @ X.mT)

    def iterated(X: Tensor) -> Tensor:
        return newton_schulz(plain_covariance(X), 5)

    contestants = [
        Contestant("exact", _both_ways(covariance_sqrt, X, G), ours=True, exact=True),
        Contestant("ns5", _both_ways(iterated, X, G)),
    ]
    return Contest("covariance", case, contestants, _on_checked(accuracy.covariance_root, case, X, G))


def _polar(case: Case) -> Contest:
    M = matrices(case)
    newest = new_in_torch().get("polar")

    def by_svd() -> Results:
        U, _, Vh = _torch_svd(M)
        return (U @ Vh,)

    contestants = [
        Contestant("ours", lambda: (polar(M),), ours=True, exact=True),
        Contestant("svd", by_svd, exact=True),
        *([Contestant("polar", lambda: (newest(M),), exact=True)] if newest else []),
        *jax_rivals.contestants("polar", M),
    ]
    return Contest("polar", case, contestants, accuracy.polar_factor(M[checked(case)]))


def _whitening(case: Case) -> Contest:
    """Features (B, channels, positions) through a layer in training mode, with the gradients of its parameters."""
    X, G = (matrices(case, seed=seed).unsqueeze(-1) for seed in (0, 1))
    ours, torchs = DecorrelatedBatchNorm2d(case.size), nn.BatchNorm2d(case.size)
    weight, bias = (torch.nn.Parameter(value(case.size)) for value in (torch.ones, torch.zeros))

    def plain(X: Tensor) -> Tensor:
        return composition(X, weight, bias)

    contestants = [
        Contestant("ours", _both_ways(ours, X, G, tuple(ours.parameters())), ours=True, exact=True),
        Contestant("batchnorm", _both_ways(torchs, X, G, tuple(torchs.parameters()))),
        Contestant("autograd", _both_ways(plain, X, G, (weight, bias))),
    ]
    judge = accuracy.whitened(X, G, lambda leaf: composition(leaf, weight.double(), bias.double()), checked(case))
    return Contest("whitening", case, contestants, judge)


def _on_checked(judge: Callable[[Tensor, Tensor], Judge], case: Case, X: Tensor, G: Tensor) -> Judge:
    return judge(X[checked(case)], G[checked(case)])


def _cotangent(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    G = torch.randn(like.shape, generator=generator, dtype=accuracy.widened(like[:0]).dtype)
    return (G + G.mH).to(like.dtype) / 2


def _both_ways(
    function: Callable[[Tensor], Tensor], X: Tensor, G: Tensor, parameters: Sequence[Tensor] = ()
) -> Callable[[], Results]:
    """Forward and backward pass: the value, and the gradient of ⟨value, G⟩ in X and in the parameters."""
    leaves = [X.clone().requires_grad_(), *parameters]

    def both() -> Results:
        value = function(leaves[0])
        return value.detach(), *torch.autograd.grad(value, leaves, G)[:1]

    return both


CONTESTS: dict[str, Callable[[Case], Contest]] = {
    "eigh": _eigh,
    "eigvalsh": _eigvalsh,
    "svd": _svd,
    "svd_grad": _svd_grad,
    "inv_sqrt": _inv_sqrt,
    "covariance": _covariance,
    "polar": _polar,
    "procrustes": alignment.contest,
    "rmsd": alignment.distances,
    "cca": correlations.contest,
    "whitening": _whitening,
    "generalised": generalised.contest,
    "lstsq": equations.least_squares,
    "pinv": equations.pseudo_inverse,
    "lyapunov": equations.lyapunov,
    "frechet": frechet_and_roots.frechet,
    "fourth_root": frechet_and_roots.fourth_root,
}
