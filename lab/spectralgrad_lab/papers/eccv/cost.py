"""The time that NOG and OLR take on this machine (Table 6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

from spectralgrad.optim import nearest_orthogonal, optimal_rate

from ...networks import build
from ...training.config.run_config import Config
from ..inputs import gaussian
from ..registry import computes
from ..value_conditions import Value

SHAPES = ((64, 27), (64, 576), (256, 512))
"""Weights of a first convolution, of the orthogonal convolution in its place, and of a larger layer."""


def milliseconds(job: Callable[[], object], repeats: int) -> float:
    """The fastest of some runs, which other work on the machine disturbs least."""
    job()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        taken.append(time.perf_counter() - start)
    return 1e3 * min(taken)


def backward_milliseconds(batch: int) -> float:
    """A backward pass of ResNet-50 with whitening after the first convolution, on 32×32 images."""
    net = build(Config(network="resnet50-cifar", layer="whitening"), channels=3, image_size=32, classes=100)
    loss = nn.functional.cross_entropy(net(torch.randn(batch, 3, 32, 32)), torch.arange(batch))
    return milliseconds(lambda: loss.backward(retain_graph=True), repeats=2)


@computes("eccv/O28")
def on_this_machine() -> Mapping[str, Value]:
    """NOG and OLR for three sizes, and for the first convolution their share of a backward pass, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pairs = [(gaussian(*s, dtype=torch.float32), gaussian(*s, seed=1, dtype=torch.float32)) for s in SHAPES]
        nog = [milliseconds(lambda G=G: nearest_orthogonal(G), 10) for _, G in pairs]  # type: ignore[misc]
        olr = [milliseconds(lambda W=W, G=G: optimal_rate(W, G), 10) for W, G in pairs]  # type: ignore[misc]
        backward = backward_milliseconds(batch := 4)
    finally:
        torch.set_num_threads(threads)
    return {
        "nog_ms": nog,
        "olr_ms": olr,
        "batch": batch,
        "backward_ms": backward,
        "nog_share": 100 * nog[0] / backward,
        "olr_share": 100 * olr[0] / backward,
    }
