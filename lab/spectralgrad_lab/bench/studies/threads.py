"""How much faster two threads are than one, for calls on batches, with a matrix product of torch as the yardstick.

Both run alternately and the minimum time of each is reported, with a gradient for the forward and the backward pass
together. What a shared or throttled processor costs all programs shows in the yardstick, which is the first row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import spectralgrad as sg

from .. import call_study
from ..timing import race

YARDSTICK = "matmul"
WORTH, ENOUGH = 0.5, 1.6  # milliseconds on one thread from which two should be this much faster
Function = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A function of a batch, the shapes it is timed on, and whether its gradient is computed too.

    Attributes:
        name: as in the table.
        function: the call.
        shapes: of the batches.
        definite: the matrices are positive definite; otherwise all entries are independent.
        backward: the gradient is computed as well.
        dtype: type of the matrices.
    """

    name: str
    function: Function
    shapes: tuple[Shape, ...]
    definite: bool = True
    backward: bool = False
    dtype: torch.dtype = torch.float32

    def job(self, shape: Shape) -> Callable[[], object]:
        """The call on a batch of this shape, without arguments."""
        torch.manual_seed(0)
        X = torch.randn(shape, dtype=self.dtype)
        if self.definite:
            X = X @ X.mH / shape[-1] + 0.1 * torch.eye(shape[-1], dtype=self.dtype)
        if not self.backward:
            return lambda: self.function(X)
        X.requires_grad_()
        G = torch.randn_like(self.function(X))
        return lambda: torch.autograd.grad(self.function(X), X, G)


@dataclass(frozen=True)
class Row:
    """Milliseconds of a call on one thread and on two."""

    name: str
    shape: Shape
    one: float
    two: float

    @property
    def ratio(self) -> float:
        """How many times faster two threads are."""
        return self.one / self.two

    @property
    def reached(self) -> bool:
        """False if the call is long enough for two threads and they help too little."""
        return self.one <= WORTH or self.ratio >= ENOUGH


def _vectors(A: Tensor) -> Tensor:
    return sg.eigh(A).eigenvectors


def _factor(M: Tensor) -> Tensor:
    return sg.svd(M).U


def _aligned(X: Tensor) -> Tensor:
    return sg.procrustes(X, X.flip(0)).rotation


def _whitened(features: Tensor) -> Tensor:
    return sg.nn.DecorrelatedBatchNorm2d(features.shape[1])(features)


SQUARE: tuple[Shape, ...] = ((4096, 3, 3), (2048, 8, 8), (512, 16, 16), (512, 32, 32), (128, 64, 64), (64, 128, 128))
MIDDLE = SQUARE[1:5]
RECTANGULAR: tuple[Shape, ...] = ((4096, 3, 3), (1024, 9, 9), (512, 16, 16), (128, 64, 32))
POINTS: tuple[Shape, ...] = ((1000, 50, 3),)
SAMPLES: tuple[Shape, ...] = ((64, 32, 400), (16, 128, 400))
FEATURES: tuple[Shape, ...] = ((32, 64, 16, 16), (128, 64, 32, 32))

CALLS = (
    Call(YARDSTICK, lambda A: A @ A, ((1024, 1024), (512, 64, 64)), definite=False),
    Call("eigh", _vectors, SQUARE),
    Call("eigh", _vectors, MIDDLE, backward=True),
    Call("eigh, complex", _vectors, MIDDLE, dtype=torch.complex64),
    Call("eigvalsh", sg.eigvalsh, MIDDLE),
    Call("svd", _factor, RECTANGULAR, definite=False),
    Call("svd", _factor, RECTANGULAR, definite=False, backward=True),
    Call("svdvals", sg.svdvals, RECTANGULAR, definite=False),
    Call("matrix_sqrt", sg.matrix_sqrt, MIDDLE),
    Call("matrix_inv_sqrt", sg.matrix_inv_sqrt, SQUARE),
    Call("matrix_inv_sqrt", sg.matrix_inv_sqrt, SQUARE, backward=True),
    Call("matrix_log", sg.matrix_log, MIDDLE),
    Call("matrix_log", sg.matrix_log, MIDDLE, backward=True),
    Call("matrix_exp", sg.matrix_exp, MIDDLE, backward=True),
    Call("polar", sg.polar, RECTANGULAR, definite=False),
    Call("polar", sg.polar, RECTANGULAR, definite=False, backward=True),
    Call("procrustes", _aligned, POINTS, definite=False),
    Call("procrustes", _aligned, POINTS, definite=False, backward=True),
    Call("covariance", sg.covariance, SAMPLES, definite=False, backward=True),
    Call("whitening layer", _whitened, FEATURES, definite=False),
    Call("whitening layer", _whitened, FEATURES, definite=False, backward=True),
)


def measure(call: Call, shape: Shape, seconds: float) -> Row:
    """Time a call on a batch of this shape."""
    job = call.job(shape)
    times = race({"one": (job, (1,)), "two": (job, (2,))}, seconds)
    one, two = (round(1e3 * times[name].seconds, 3) for name in ("one", "two"))
    return Row(call.name + (" with gradient" if call.backward else ""), shape, one, two)


def table(rows: list[Row]) -> Iterator[str]:
    """The lines of the table; calls for which a second thread helps too little are marked."""
    yield f"{'ms':32s}{'shape':>18s}{'one thread':>12s}{'two':>10s}{'ratio':>8s}"
    for row in rows:
        shape = "×".join(map(str, row.shape))
        yield f"{row.name:32s}{shape:>18s}{row.one:12.3f}{row.two:10.3f}{row.ratio:8.2f}{'' if row.reached else '*'}"
    short = sum(not row.reached for row in rows)
    long = sum(row.one > WORTH for row in rows)
    yield ""
    yield f"* below {ENOUGH}: {short} of the {long} calls that take more than {WORTH} ms on one thread"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    call_study.add_options(parser, 1.0, "row")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, print the table, write the figures if asked to. The yardstick is always there."""
    yardstick = [call for call in CALLS if call.name == YARDSTICK]
    calls = [*yardstick, *call_study.chosen([call for call in CALLS if call.name != YARDSTICK], options.only)]
    jobs = [(call.name, partial(measure, call, shape, options.seconds)) for call in calls for shape in call.shapes]
    call_study.measured(options, jobs, table)
