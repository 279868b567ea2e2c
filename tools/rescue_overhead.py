"""Measure what ``override_linalg`` and ``doctor`` cost, as ratios to plain torch in the same run.

    python tools/rescue_overhead.py

Each line is a training step: plain, rescued and examined alternate, and the best of several rounds counts. Times
are those of the processor, so that other programs disturb them less.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import spectralgrad as sg

CONTEXTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "plain": contextlib.nullcontext,
    "rescue": sg.override_linalg,
    "doctor": sg.diagnostics.doctor,
}


def logarithm(shape: tuple[int, ...]) -> Callable[[], None]:
    """A step through V log(λ) Vᴴ for matrices of this shape."""
    B = torch.randn(shape)
    B = B @ B.mT + torch.eye(shape[-1])

    def step() -> None:
        w, V = torch.linalg.eigh(B.detach().requires_grad_())
        ((V * w.log().unsqueeze(-2)) @ V.mT).sum().backward()

    return step


def network() -> Callable[[], None]:
    """A step of three convolutions and one whitening of 64 channels."""
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2)]
    net, X = nn.Sequential(*layers, nn.ReLU()), torch.randn(16, 3, 32, 32)

    def step() -> None:
        y: Tensor = net(X).flatten(2)
        w, V = torch.linalg.eigh(y @ y.mT / y.shape[-1] + 1e-3 * torch.eye(64))
        ((V * w.rsqrt().unsqueeze(-2)) @ V.mT @ y).square().sum().backward()

    return step


def measure(step: Callable[[], None], rounds: int = 9, seconds: float = 0.05) -> dict[str, float]:
    """The best time of a step in each context; the contexts alternate."""
    best = dict.fromkeys(CONTEXTS, float("inf"))
    step()  # the first call loads and allocates
    start = time.thread_time()
    step()
    repeats = max(1, int(seconds / (time.thread_time() - start)))
    for _ in range(rounds):
        for name, context in CONTEXTS.items():
            with context():
                start = time.thread_time()
                for _ in range(repeats):
                    step()
                best[name] = min(best[name], (time.thread_time() - start) / repeats)
    return best


def main() -> None:
    """Print one line per step: the time of plain torch and the two ratios."""
    torch.manual_seed(0)
    steps = {
        "4x4, one matrix": logarithm((4, 4)),
        "32x32, 64 matrices": logarithm((64, 32, 32)),
        "128x128, 16 matrices": logarithm((16, 128, 128)),
        "network with one whitening": network(),
    }
    for name, step in steps.items():
        best = measure(step)
        ratios = "  ".join(f"{kind} {best[kind] / best['plain']:.2f}" for kind in ("rescue", "doctor"))
        print(f"{name:<28} plain {best['plain'] * 1e3:8.2f} ms  {ratios}")


if __name__ == "__main__":
    main()
