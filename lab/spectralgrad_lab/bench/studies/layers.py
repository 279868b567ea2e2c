"""Speed of the layers: whitening and batch normalization, groups, a ResNet-18 training step, evaluation after fusion.

Results are checked first; implementations run alternately, and the minimum time of each is reported.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

import spectralgrad as sg
from spectralgrad.io.files import path_argument, require_writable, write_json

from ...machine import machine
from ..timing import race, thread_count
from .networks import resnet18

SHAPE = (128, 64, 32, 32)


@dataclass(frozen=True)
class Figure:
    """A ratio of two times, or an error, and its upper limit."""

    name: str
    value: float
    limit: float

    @property
    def reached(self) -> bool:
        """True if the value is within the limit."""
        return self.value <= self.limit


def composition(X: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The straightforward implementation in plain torch; its gradient is NaN at ties."""
    features = X.transpose(0, 1).flatten(1)
    features = features - features.mean(1, keepdim=True)
    M = features @ features.T / features.shape[1]
    M = M + 1e-2 * torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
    w, V = torch.linalg.eigh(M)
    white = (V * w.rsqrt()) @ V.T @ features * weight.unsqueeze(1) + bias.unsqueeze(1)
    return white.view(X.shape[1], X.shape[0], *X.shape[2:]).transpose(0, 1)


def accuracy() -> list[Figure]:
    """Output covariance and gradient in float32 on features of rank 27, against float64."""
    torch.manual_seed(0)
    X = nn.functional.conv2d(torch.rand(32, 3, 34, 34), torch.randn(64, 3, 3, 3) / 27**0.5)
    G = torch.randn_like(X)
    layer = sg.nn.DecorrelatedBatchNorm2d(64, affine=False)
    Y = layer(X).double().transpose(0, 1).flatten(1)
    M = sg.covariance(X.double().transpose(0, 1).flatten(1), eps=1e-2)
    wanted = torch.eye(64, dtype=torch.float64) - 1e-2 * torch.linalg.inv(M)
    gradients = []
    for kind in (torch.float32, torch.float64):
        x = X.detach().to(kind, copy=True).requires_grad_()
        (g,) = torch.autograd.grad(layer(x), x, G.to(kind))
        gradients.append(g.double())
    error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    return [
        Figure("covariance of the output less I − εM⁻¹, float32", float((sg.covariance(Y) - wanted).abs().max()), 1e-4),
        Figure("gradient at rank 27, float32 against float64", float(error), 1e-4),
    ]


def layer_alone(seconds: float, threads: int) -> list[Figure]:
    """Forward and backward pass of the layer, compared with torch's batch normalization and plain torch."""
    torch.manual_seed(0)
    X, G = torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
    torchs = nn.BatchNorm2d(64)
    layers = {groups: sg.nn.DecorrelatedBatchNorm2d(64, groups=groups) for groups in (1, 16)}
    by_hand = sg.nn.DecorrelatedBatchNorm2d(64)
    check = composition(X.detach(), by_hand.weight, by_hand.bias)  # type: ignore[arg-type]
    assert torch.allclose(layers[1](X.detach()), check, atol=1e-4)

    def step(f: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            X.grad = None
            f(X).backward(G)

        return run

    jobs = {
        "torch": step(torchs),
        "whitening": step(layers[1]),
        "groups": step(layers[16]),
        "composition": step(lambda x: composition(x, by_hand.weight, by_hand.bias)),  # type: ignore[arg-type]
    }
    times = race({name: (job, (threads,)) for name, job in jobs.items()}, seconds)
    base, ours, naive, grouped = (times[k].seconds for k in ("torch", "whitening", "composition", "groups"))
    return [
        Figure(f"whitening layer / nn.BatchNorm2d, forward+backward at {SHAPE}", ours / base, 2.0),
        Figure("obvious composition / nn.BatchNorm2d (for comparison)", naive / base, float("inf")),
        Figure("groups=16 / groups=1", grouped / ours, 1.0),
    ]


def training_step(seconds: float, threads: int) -> list[Figure]:
    """A training step of ResNet-18 with the layer after the first convolution, compared with batch normalization."""
    torch.manual_seed(0)
    plain = resnet18("batchnorm")
    white = sg.nn.convert_decorrelated_batchnorm(copy.deepcopy(plain))
    X, y = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))

    def step(net: nn.Module) -> Callable[[], None]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def run() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X), y).backward()
            optimizer.step()

        return run

    times = race({"plain": (step(plain), (threads,)), "white": (step(white), (threads,))}, seconds)
    ratio = times["white"].seconds / times["plain"].seconds
    return [Figure("ResNet-18 step with whitening / with batch normalisation, batch 128", ratio, 1.03)]


def evaluation(seconds: float, threads: int) -> list[Figure]:
    """Evaluation after fusion, compared with the convolution alone."""
    torch.manual_seed(0)
    X = torch.randn(128, 3, 32, 32)
    alone = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.Identity()).eval()
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), sg.nn.DecorrelatedBatchNorm2d(64))
    net(X)
    expected = net.eval()(X)
    sg.nn.fuse_whitening(net)
    assert torch.allclose(net(X), expected, atol=1e-4)
    with torch.no_grad():
        times = race({"alone": (lambda: alone(X), (threads,)), "fused": (lambda: net(X), (threads,))}, seconds)
    ratio = times["fused"].seconds / times["alone"].seconds
    return [Figure("evaluation after fusing / convolution alone", ratio, 1.03)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each comparison (default: 20)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch (default: all)")
    parser.add_argument("--skip-resnet", action="store_true", help="leave out the whole training step")
    parser.add_argument("--json", type=path_argument, help="file for the figures")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, print a table, write layers.json if asked to."""
    require_writable(options.json)
    with thread_count(options.threads):
        figures = accuracy() + layer_alone(options.seconds, options.threads)
        figures += evaluation(options.seconds / 2, options.threads)
        if not options.skip_resnet:
            figures += training_step(6 * options.seconds, options.threads)
    for figure in figures:
        verdict = "yes" if figure.reached else "NO"
        print(f"{figure.name:75s} {figure.value:10.3g}   at most {figure.limit:<8.3g} {verdict}")
    if options.json:
        record = {
            "machine": machine() | {"threads": options.threads},
            "figures": [asdict(figure) for figure in figures],
        }
        write_json(options.json, record)
