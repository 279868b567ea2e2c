"""Measures the thresholds of :class:`spectralgrad.native.thresholds.Table` on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...native import kernel
from ...native.thresholds import BATCHES, NAMES, SIZES, Table, store
from . import choice, lapack, lapack_pool
from .measurements import MEASUREMENTS, Tensors, Way, eigh, last_of, positive, svd

_SINGLE_SIZES = (*SIZES[3:], 768, 1024)

Progress = Callable[[str], None]
Solver = Callable[..., Tensors]


def tune(progress: Progress = lambda line: None) -> Table:
    """Measure all thresholds between two ways on this machine, store them in the user's cache and use them.

    They decide between kernel, pool and torch.linalg, and where roots, gradients, polar factors and passes over
    features are computed. It takes some minutes, best on a machine that does nothing else.

    Args:
        progress: callback that receives one line of text for each measurement (default: none).

    Returns:
        the new table.

    Raises:
        RuntimeError: the native kernel is not available, so there is nothing to tune.
    """
    native = kernel()
    if native is None:
        raise RuntimeError("the native kernel is not available; run `spectralgrad info` for the reason")
    single = tuple(_single_up_to(eigh, lapack.eigh, dtype, progress) for dtype in NAMES)
    svd_single = tuple(_single_up_to(svd, lapack.svd, dtype, progress) for dtype in NAMES)
    found: dict[str, Any] = {"single": single, "svd_single": svd_single}
    for (dtype, name), largest, largest_svd in zip(NAMES.items(), single, svd_single, strict=True):
        found[name] = _column(eigh, (lapack.eigh, lapack_pool.eigh), largest, dtype, progress)
        found[f"svd_{name}"] = _column(svd, (lapack.svd,), largest_svd, dtype, progress)
    for measurement in MEASUREMENTS:
        found[measurement.name] = measurement.found(_faster)
        progress(f"{measurement.meaning} {found[measurement.name]}")
    result = Table(**found)
    store(native.isa, result)
    choice.forget()
    return result


def _single_up_to(solver: Solver, other: Way, dtype: torch.dtype, progress: Progress) -> int:
    """Return the largest size up to which one matrix is decomposed faster by the kernel than by torch."""
    one = partial(solver, lanes=False)
    found = last_of(_SINGLE_SIZES, lambda d: _faster(one, other, lambda: (positive(1, d, dtype),))) or SIZES[2]
    progress(f"{_name(solver)} {NAMES[dtype]}: one matrix at a time in the kernel up to d = {found}")
    return found


def _column(
    solver: Solver, others: Sequence[Way], single: int, dtype: torch.dtype, progress: Progress
) -> tuple[int | None, ...]:
    """Return the crossovers for all of :data:`SIZES`.

    The alternative is one matrix at a time in the kernel up to size ``single``, and above it the ``others``.
    """
    column = []
    for d in SIZES:
        ways = (partial(solver, lanes=False),) if d <= single else others
        column.append(_crossover(partial(solver, lanes=True), ways, d, dtype))
        progress(f"{_name(solver)} {NAMES[dtype]} d = {d}: in lanes from batch {column[-1]}")
    return tuple(column)


def _crossover(in_lanes: Way, others: Sequence[Way], d: int, dtype: torch.dtype) -> int | None:
    """Return the smallest of :data:`BATCHES` from which the kernel is faster in lanes, or None."""

    def wins(batch: int) -> bool:
        ways = others if batch > 1 else others[:1]  # one matrix is not for the pool
        return all(_faster(in_lanes, other, lambda: (positive(batch, d, dtype),)) for other in ways)

    return last_of((batch for batch in reversed(BATCHES) if d * d * d * batch <= 2**31), wins)


def _name(solver: Solver) -> str:
    return "svd" if solver is svd else "eigh"


def _faster(first: Way, second: Way, tensors: Callable[[], Tensors]) -> bool:
    """True if the first way takes no longer than the second on the tensors."""
    given = tensors()
    return _time(first, given) <= _time(second, given)


def _time(way: Way, given: Tensors, seconds: float = 0.05) -> float:
    """Return the shortest of several runs, in seconds."""
    way(*given)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        way(*given)
        best = min(best, time.perf_counter() - start)
    return best
