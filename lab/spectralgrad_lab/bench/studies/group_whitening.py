"""Speed of whitening in the translation network of TPAMI 2021: 256 channels in 8 groups, 64×64 maps, batches of 8.

Forward and backward pass of this library, of the clip rule through autograd, and of power iteration that autograd
unrolls. Results are checked first; implementations run alternately, and the minimum time of each is reported.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.io.files import path_argument, require_writable, write_json
from spectralgrad.nn.functional import whiten

from ...machine import machine
from ..timing import race, thread_count
from .layers import Figure

SHAPE, GROUPS, EPS = (8, 256, 64, 64), 8, 1e-2
LIMIT = 100.0
"""The largest gap that the clip rule of TPAMI 2021 lets through."""
OURS = ("exact", "svd-taylor", "svd-clip")
CLIP, POWER = "clip rule through autograd", "unrolled power iteration"
_TOLERANCE = 1e-3

Whiten = Callable[[Tensor], Tensor]


class ClippedEigh(torch.autograd.Function):
    r"""``torch.linalg.eigh`` whose gradient has :math:`1/(\lambda_j-\lambda_i)` clipped, in plain torch.

    Example:
        >>> A = torch.eye(2).requires_grad_()
        >>> w, V = ClippedEigh.apply(A)
        >>> V.sum().backward()
        >>> bool(torch.isfinite(A.grad).all())
        True
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> tuple[Tensor, Tensor]:
        w, V = torch.linalg.eigh(A)
        ctx.save_for_backward(w, V)
        return w, V

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (w, V), (gw, gV) = ctx.saved_tensors, gradients
        K = (w.unsqueeze(-2) - w.unsqueeze(-1)).reciprocal().clamp(-LIMIT, LIMIT)
        K.diagonal(dim1=-2, dim2=-1).zero_()
        inner = K * (V.mT @ gV) + torch.diag_embed(gw)
        return V @ ((inner + inner.mT) / 2) @ V.mT


def clip_through_autograd(X: Tensor, groups: int = GROUPS) -> Tensor:
    """Whitening of each sample in plain torch, with the clip rule.

    Args:
        X: features (N, C, H, W).
        groups: number of groups.

    Example:
        >>> X = torch.randn(2, 8, 9, 9)
        >>> torch.allclose(clip_through_autograd(X, 2), whiten(X, groups=2, eps=EPS), atol=1e-4)
        True
    """
    features = X.reshape(len(X), groups, X.shape[1] // groups, -1)
    features = features - features.mean(-1, keepdim=True)
    M = features @ features.mT / features.shape[-1] + EPS * torch.eye(features.shape[2], dtype=X.dtype)
    w, V = ClippedEigh.apply(M)  # type: ignore[no-untyped-call]
    return ((V * w.rsqrt().unsqueeze(-2)) @ V.mT @ features).reshape(X.shape)


def contestants(groups: int = GROUPS) -> dict[str, Whiten]:
    """The implementations by name."""
    power = sg.SVDPI(unrolled=True, eps=0.0, energy=2.0, tolerance=float("inf"))  # keeps all eigenvectors

    def ours(method: str | sg.Method) -> Whiten:
        return lambda X: whiten(X, groups=groups, eps=EPS, method=method)

    return {
        **{name: ours(name) for name in OURS},
        CLIP: lambda X: clip_through_autograd(X, groups),
        POWER: ours(power),
    }


def features(shape: tuple[int, ...] = SHAPE) -> Tensor:
    """Correlated features, as after a convolution and an activation."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(shape, generator=generator)
    mixing = torch.randn(shape[1], shape[1], generator=generator) / shape[1] ** 0.5
    return torch.relu(torch.einsum("ij,njhw->nihw", mixing, X))


def check(X: Tensor, groups: int = GROUPS) -> list[Figure]:
    """Relative errors: all values against float64, the exact gradient too, and the gradients of both clip rules.

    Args:
        X: features (N, C, H, W).
        groups: number of groups.
    """
    jobs, G = contestants(groups), torch.randn(X.shape, generator=torch.Generator().manual_seed(1))
    found = {name: _both_ways(job, X, G) for name, job in jobs.items()}
    wanted = _both_ways(jobs["exact"], X.double(), G.double())
    figures = [Figure(f"{name}: value", _error(found[name][0], wanted[0]), _TOLERANCE) for name in jobs]
    return [
        *figures,
        Figure("exact: gradient", _error(found["exact"][1], wanted[1]), _TOLERANCE),
        Figure("svd-clip: gradient against autograd's", _error(found["svd-clip"][1], found[CLIP][1]), _TOLERANCE),
    ]


def speed(X: Tensor, seconds: float, threads: int, groups: int = GROUPS) -> tuple[dict[str, float], list[Figure]]:
    """Milliseconds of each implementation, and the ratios that should be small.

    Args:
        X: features (N, C, H, W).
        seconds: time for all implementations together.
        threads: of torch.
        groups: number of groups.
    """
    G = torch.randn(X.shape, generator=torch.Generator().manual_seed(1))
    jobs = {name: (lambda job=job: _both_ways(job, X, G), (threads,)) for name, job in contestants(groups).items()}
    times = {name: timing.seconds for name, timing in race(jobs, seconds).items()}
    ratios = [
        Figure(f"{name} / {rival}", times[name] / times[rival], limit)
        for name in OURS
        for rival, limit in ((CLIP, 1.0), (POWER, 1 / 3))
    ]
    return {name: 1e3 * value for name, value in times.items()}, ratios


def _both_ways(job: Whiten, X: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    leaf = X.detach().requires_grad_()
    value = job(leaf)
    (gradient,) = torch.autograd.grad(value, leaf, G)
    return value.detach(), gradient


def _error(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the comparison (default: 60)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch (default: all)")
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="also write the figures as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Check, measure, print a table, write JSON if asked to."""
    require_writable(options.json)
    X = features()
    with thread_count(options.threads):
        errors = check(X)
        wrong = [figure.name for figure in errors if not figure.reached]
        if wrong:
            raise sg.SpectralError(f"results differ, so nothing was timed: {', '.join(wrong)}")
        times, ratios = speed(X, options.seconds, options.threads)
    print(f"whitening of {SHAPE} in {GROUPS} groups, forward and backward pass, {options.threads} threads\n")
    for name, milliseconds in times.items():
        print(f"{name:45s} {milliseconds:10.1f} ms")
    for figure in ratios:
        print(
            f"{figure.name:45s} {figure.value:10.3f}   at most {figure.limit:<6.3g} {'yes' if figure.reached else 'NO'}"
        )
    if options.json:
        record = {"machine": machine() | {"threads": options.threads}, "milliseconds": times}
        write_json(options.json, record | {"figures": [asdict(figure) for figure in (*errors, *ratios)]})
