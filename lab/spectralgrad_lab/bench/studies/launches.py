"""Device kernels of one call of each public function and of four layers, beside the obvious composition in torch.

Counted on the pretended device, without Triton: operations of torch that are neither views nor mere allocations. On a
GPU a few of them, such as decompositions, are several kernels, here and in the composition alike. This says how much
work is launched, not how long it takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.errors import SpectralError

from .. import call_study
from . import pretended_device
from .alignment import by_svd
from .calls import CALLS, Call, matrix
from .composed_layers import LAYERS, features

BAR, SIZE = 1.5, 6
Passes = tuple[int, int]

# Six points with three coordinates: the cross-covariance of as many points as coordinates is singular.
_POINTS = Call(
    "procrustes",
    lambda A: sg.procrustes(A[:, :3], A[:, 3:]).rotation,
    lambda A: by_svd(A[:, :3], A[:, 3:])[0],
)


@dataclass(frozen=True)
class Row:
    """Kernels of a call, here and in torch: of the forward and of the backward pass."""

    name: str
    ours: Passes
    torch: Passes

    @property
    def ratio(self) -> float:
        """Ours over torch's, of both passes together."""
        return round(sum(self.ours) / sum(self.torch), 1)


CALLED: tuple[Any, ...] = (*(_POINTS if call.name == _POINTS.name else call for call in CALLS), *LAYERS)


def launches(call: Callable[[Tensor], Tensor], X: Tensor) -> Passes:
    """The kernels of a call and of its backward pass on the pretended device."""
    call(pretended_device.put(X))  # what is found out once is not counted
    leaf = pretended_device.put(X).requires_grad_()
    with pretended_device.counted() as forward:
        result = call(leaf)
    cotangent = torch.ones_like(result)
    with pretended_device.counted() as backward:
        result.backward(cotangent)
    return forward.launches.total(), backward.launches.total()


def jobs(only: str | None = None) -> list[tuple[str, Callable[[], Row]]]:
    """The calls, by name; each returns a row."""
    pretended_device.register()
    named: list[Any] = call_study.chosen(CALLED, only)
    return [(call.name, partial(_row, call)) for call in named]


def _row(call: Any) -> Row:
    alone = isinstance(call, Call)
    X = matrix(SIZE) if alone else features()
    ours, theirs = (call.ours, call.theirs) if alone else call.both(pretended_device.put)
    return Row(call.name, launches(ours, X), launches(theirs, X))


def table(rows: list[Row]) -> Iterator[str]:
    """The lines of the table, the same as in docs/gpu.md."""
    yield "| call | forward | backward | torch, forward | torch, backward | ratio |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        yield f"| `{row.name}` | {' | '.join(map(str, (*row.ours, *row.torch)))} | {row.ratio} |"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    call_study.add_choice(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Count, print the table, write the figures if asked to.

    Raises:
        SpectralError: torch has no backends in Python.
    """
    if not pretended_device.available:
        raise SpectralError("bench launches: expected torch 2.13, which has backends in Python")
    call_study.measured(options, jobs(options.only), table)
