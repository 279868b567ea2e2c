"""Measures the thresholds of :class:`spectralgrad.solvers.decompose.thresholds.Table` on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...io.files import write_json
from ...native import Kernel, kernel
from ...native.calls import UNCHECKED, Singular, Symmetric
from ...native.derivative_calls import Derivatives
from . import choice, lapack, lapack_pool
from .thresholds import BATCHES, NAMES, SIZES, Table, file

_POOL_SIZES = (32, 48, 64, 96, 128, 192, 256)
_SINGLE_SIZES = (*SIZES[3:], 768, 1024)
_FUSED_SIZES = (8, 16, 32, 64, 128, 256, 512)
_ENTRIES = 2**19  # number of entries of the batches on which roots are compared


def tune(progress: Callable[[str], None] = lambda line: None) -> Table:
    """Time kernel, pool and torch.linalg on this machine, store the thresholds in the user's cache and use them.

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
    single = tuple(_single_up_to(partial(_eigh, native, False), lapack.eigh, dtype, progress) for dtype in NAMES)
    svd_single = tuple(_single_up_to(partial(_svd, native, False), lapack.svd, dtype, progress) for dtype in NAMES)
    columns: dict[str, tuple[int | None, ...]] = {}
    for (dtype, name), largest, largest_svd in zip(NAMES.items(), single, svd_single, strict=True):
        columns[name] = _column(
            partial(_eigh, native, True), partial(_eigh_otherwise, native, largest), dtype, progress
        )
        columns[f"svd_{name}"] = _column(
            partial(_svd, native, True), partial(_svd_otherwise, native, largest_svd), dtype, progress
        )
    others = _pool_from(progress), _fused_up_to(native, progress)
    result = Table(**columns, single=single, svd_single=svd_single, pool=others[0], fused=others[1])
    _store(native.isa, result)
    choice.forget()
    return result


def _eigh(native: Kernel, lanes: bool, A: Tensor) -> tuple[Tensor, Tensor]:
    return Symmetric.of(native, A.shape, A.dtype, lanes).eigh(A)[0]


def _svd(native: Kernel, lanes: bool, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return Singular.of(native, A.shape, A.dtype, lanes).svd(A)[0]


def _name(solver: Any) -> str:
    name: str = solver.func.__name__
    return name.removeprefix("_")


def _column(
    solver: Callable[[Tensor], object],
    other_time: Callable[[Tensor], float],
    dtype: torch.dtype,
    progress: Callable[[str], None],
) -> tuple[int | None, ...]:
    """Return the crossovers for all of :data:`SIZES`."""
    column = []
    for d in SIZES:
        column.append(_crossover(solver, other_time, d, dtype))
        progress(f"{_name(solver)} {NAMES[dtype]} d = {d}: in lanes from batch {column[-1]}")
    return tuple(column)


def _crossover(
    solver: Callable[[Tensor], object], other_time: Callable[[Tensor], float], d: int, dtype: torch.dtype
) -> int | None:
    """Return the smallest of :data:`BATCHES` from which the kernel is faster than the alternatives, or None."""
    found: int | None = None
    for batch in reversed(BATCHES):
        if d * d * d * batch > 2**31:
            continue
        A = _matrices(batch, d, dtype)
        if _time(solver, A) > other_time(A):
            return found
        found = batch
    return found


def _single_up_to(
    solver: Callable[[Tensor], object],
    other: Callable[[Tensor], object],
    dtype: torch.dtype,
    progress: Callable[[str], None],
) -> int:
    """Return the largest size up to which one matrix is decomposed faster by the kernel than by torch."""
    found = SIZES[2]
    for d in _SINGLE_SIZES:
        A = _matrices(1, d, dtype)
        if _time(solver, A) > _time(other, A):
            break
        found = d
    progress(f"{_name(solver)} {NAMES[dtype]}: one matrix at a time in the kernel up to d = {found}")
    return found


def _eigh_otherwise(native: Kernel, single: int, A: Tensor) -> float:
    """Return the time without lanes: one matrix at a time in the kernel up to size ``single``, above it by LAPACK."""
    if A.shape[-1] <= single:
        return _time(partial(_eigh, native, False), A)
    return min([_time(lapack.eigh, A)] + ([_time(lapack_pool.eigh, A)] if len(A) > 1 else []))


def _svd_otherwise(native: Kernel, single: int, A: Tensor) -> float:
    return _time(partial(_svd, native, False) if A.shape[-1] <= single else lapack.svd, A)


def _pool_from(progress: Callable[[str], None]) -> int:
    """Return the smallest size from which a pool of LAPACK calls is faster than torch.linalg on a batch."""
    found = 2 * _POOL_SIZES[-1]
    for d in reversed(_POOL_SIZES):
        A = _matrices(8, d, torch.float64).to(torch.complex128)
        if _time(lapack_pool.eigh, A) > _time(lapack.eigh, A):
            break
        found = d
    progress(f"pool of LAPACK calls from d = {found}")
    return found


def _fused_up_to(native: Kernel, progress: Callable[[str], None]) -> int:
    """Return the largest size for which computing a root and its derivative in the kernel beats products in torch."""
    found = 4
    for d in _FUSED_SIZES:
        A = _matrices(max(2, _ENTRIES // d**2), d, torch.float32)
        if _time(lambda X: _fused(native, X), A) > _time(lambda X: _by_products(native, X), A):
            break
        found = d
    progress(f"roots and their derivatives inside the kernel up to d = {found}")
    return found


def _fused(native: Kernel, A: Tensor) -> Tensor:
    (_, s, V), _ = Symmetric.of(native, A.shape, A.dtype, True).root(A, True, (0.0, 1.0, UNCHECKED))
    return Derivatives.of(native, A.shape, A.dtype).root(V, s, A, True)


def _by_products(native: Kernel, A: Tensor) -> Tensor:
    w, V = _eigh(native, True, A)
    s = w.clamp_min(torch.finfo(w.dtype).tiny).sqrt()
    _ = (V / s.unsqueeze(-2)) @ V.mT
    weights = -1 / ((s.unsqueeze(-1) + s.unsqueeze(-2)) * s.unsqueeze(-1) * s.unsqueeze(-2))
    return V @ (weights * (V.mT @ A @ V)) @ V.mT


def _matrices(batch: int, d: int, dtype: torch.dtype) -> Tensor:
    X = torch.randn(batch, d, d, dtype=dtype)
    return X @ X.mH / d


def _time(solver: Callable[[Tensor], object], A: Tensor, seconds: float = 0.05) -> float:
    """Return the shortest of several runs, in seconds."""
    solver(A)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        solver(A)
        best = min(best, time.perf_counter() - start)
    return best


def _store(isa: str, result: Table) -> None:
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    write_json(path, {**known, isa: asdict(result)})
