"""Fallbacks: a matrix on which the solver fails is decomposed again, by itself, in several other ways.

These are tried in order (rescaled, in float64, by another LAPACK, by another algorithm, slightly perturbed), from the
least to the most intrusive. A result is accepted only if it passes LAPACK's own acceptance test on the original matrix.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...dispatch import status
from ...errors import NonFiniteError, SolverError, batch_positions
from ...native.functions import in_memory
from ...precision import exponent, ldexp, resolved
from ..acceptance import THRESHOLD, eigh_ratios, svd_ratios
from ..call_counts import counts
from ..symmetry import asymmetric, mirrored, not_finite, refuse_asymmetric
from . import choice, lapack
from .lapack import Factors

_FAILURES = (torch.linalg.LinAlgError, np.linalg.LinAlgError)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Problem:
    """A kind of decomposition: its drivers, and the test by which the result for one matrix is accepted."""

    name: str
    plan: Callable[[Tensor], Any]  # the calls of the kernel, or None
    method: str  # of the plan; it returns the factors and how many matrices failed
    fast: Callable[[Tensor], Factors]  # for batches that the kernel does not decompose; NaN where it fails
    driver: str
    others: tuple[str, ...]
    ratio: Callable[[Tensor, Factors], float]
    values: int  # index of the factor that holds the eigenvalues or singular values
    read: Callable[[Tensor], Tensor]  # the matrix that the driver sees: for eigh the mirrored lower triangle

    def solve(self, A: Tensor, operation: str, dtype: torch.dtype | None = None) -> Factors:
        """Decompose a batch by the kernel or the fastest driver; matrices that fail go through the fallbacks.

        For eigh, a ``dtype`` requires that the matrices are symmetric up to its rounding error.
        """
        found = self.by_kernel(A, operation, dtype)
        if found is not None:
            return found
        counts.call(A.shape[:-2].numel())
        A = self.readable(A, operation, dtype)  # raises for NaN, on which the drivers below may hang
        try:
            factors = self.fast(A)
        except _FAILURES:
            careful = not status.optimistic(A)
            factors = self.by_parts(A, operation) if careful else self.fast(without_values(A))
        self.repair(A, factors, operation)
        return factors

    def by_kernel(self, A: Tensor, operation: str = "", dtype: torch.dtype | None = None) -> Factors | None:
        """Decompose in the kernel, which checks for NaN and asymmetry itself; None if it is not used."""
        plan = self.plan(A)
        if plan is None:
            return None
        limit = () if dtype is None else (choice.asymmetry_limit(dtype),)
        factors, failed = getattr(plan, self.method)(in_memory(A), *limit)
        counts.call(plan.batch)
        if failed:
            operation = operation or self.name
            self.repair(self.readable(A, operation, dtype), factors, operation)
        return factors

    def _run(self, driver: str, A: Tensor) -> Factors:
        run: Callable[[Tensor], Factors] = getattr(lapack, driver)
        return run(A)

    def readable(self, A: Tensor, operation: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return ``A`` if the part that the driver reads is finite, otherwise raise :class:`NonFiniteError`.

        For eigh, a ``dtype`` requires that all of it is, and symmetric. An optimistic run gets zeros instead of a
        matrix that is not, because drivers refuse a whole batch.
        """
        if status.optimistic(A):
            bad = not_finite(A.shape[:-2], self.read(A)) if dtype is None else asymmetric(A, dtype)
            status.suspected(bad)
            return A.masked_fill(bad[..., None, None], 0)
        refuse_asymmetric(A, operation, dtype)
        if _certainly_finite(A) or bool(torch.isfinite(A).all()):
            return A
        read = self.read(A)
        bad = ~torch.isfinite(read).flatten(-2).all(-1)
        if bool(bad.any()):
            raise NonFiniteError(batch_positions(bad), A.shape[:-2], operation)
        return read

    def by_parts(self, A: Tensor, operation: str) -> Factors:
        """Decompose a batch that the driver refuses because of some of its matrices."""
        batch, matrices = A.shape[:-2], A.reshape(-1, *A.shape[-2:])
        parts = list(self._parts(matrices, range(len(matrices)), batch, operation))
        return tuple(torch.cat(part).reshape(*batch, *part[0].shape[1:]) for part in zip(*parts, strict=True))

    def _parts(self, matrices: Tensor, where: range, batch: torch.Size, operation: str) -> Iterator[Factors]:
        """Halve the batch until the driver takes a part, or one matrix is left, which goes through the fallbacks."""
        if len(where) == 1:
            position = tuple(int(i) for i in np.unravel_index(where[0], tuple(batch)))
            yield tuple(factor[None] for factor in self._climb(matrices[where[0]], position, operation))
            return
        for half in (where[: len(where) // 2], where[len(where) // 2 :]):
            try:
                factors = self.fast(matrices[half.start : half.stop])
            except _FAILURES:
                yield from self._parts(matrices, half, batch, operation)
            else:
                yield factors

    def repair(self, A: Tensor, factors: Factors, operation: str) -> list[tuple[int, ...]]:
        """Replace factors that are not finite by the fallbacks' results, in place; return the batch positions.

        The last factors may be left out.
        """
        if not status.optimistic(A) and all(map(_certainly_finite, factors)):
            return []
        bad = not_finite(A.shape[:-2], *factors)
        failed = batch_positions(bad) if status.suspected(bad) else []
        for position in failed:
            for factor, part in zip(factors, self._climb(A[position], position, operation), strict=False):
                factor[position] = part
        return failed

    def _climb(self, A: Tensor, position: tuple[int, ...], operation: str) -> Factors:
        """Return the first result that is accepted, of a matrix of ordinary size; values that overflow are ±inf."""
        given, tried = self.read(A), []
        e = exponent(given)
        A = ldexp(given, -e)
        for rung, attempt in self._rungs(A):
            tried.append(rung)
            try:
                factors = list(attempt())
            except _FAILURES:
                continue
            if self.ratio(A, tuple(factors)) < THRESHOLD:
                if rung != "plain" or bool(e):
                    counts.rescued("scale" if rung == "plain" else rung)
                factors[self.values] = ldexp(factors[self.values], e)
                return tuple(factors)
        counts.failed()
        raise SolverError(operation, position, given, tried, _dump(given, self.name))

    def _rungs(self, A: Tensor) -> Iterator[tuple[str, Callable[[], Factors]]]:
        yield "plain", lambda: self._run(self.driver, A)
        yield "scale", lambda: self._scaled(self.driver, A)
        wide = A.to(torch.promote_types(A.dtype, torch.float64))
        if wide.dtype != A.dtype:
            yield "float64", lambda: self._narrow(self._scaled(self.driver, wide), A)
        for other in self.others if A.is_cpu else reversed(self.others):  # numpy's is on the host, hence the last
            yield other, lambda other=other: self._narrow(self._scaled(other, wide), A)  # type: ignore[misc]
        yield "jitter", lambda: self._narrow(self._scaled(self.driver, _jitter(wide, A.dtype)), A)

    def _scaled(self, driver: str, A: Tensor) -> Factors:
        size = A.abs().amax()
        scale = torch.where(size > 0, resolved(size), 1)
        factors = list(self._run(driver, A / scale))
        factors[self.values] = factors[self.values] * scale
        return tuple(factors)

    def _narrow(self, factors: Factors, A: Tensor) -> Factors:
        real = A.real.dtype if A.dtype.is_complex else A.dtype
        return tuple(f.to(A.dtype if i != self.values else real) for i, f in enumerate(factors))


def without_values(A: Tensor) -> Tensor:
    """Return zeros instead of a batch that an optimistic run cannot decompose, and record that."""
    status.suspected(torch.ones(A.shape[:-2], dtype=torch.bool, device=A.device))
    return torch.zeros_like(A)


def _certainly_finite(x: Tensor) -> bool:
    """True if the sum is finite, which is cheap to test. For large finite entries it may overflow."""
    total = x.sum().item()
    return total - total == 0  # NaN if it is infinite


def eigh_ratio(A: Tensor, factors: Factors) -> float:
    """Return LAPACK's test ratio of one eigendecomposition: max(‖A − VΛVᴴ‖/(‖A‖ n u), ‖VᴴV − I‖/(n u))."""
    return float(eigh_ratios(A, *factors))


def svd_ratio(M: Tensor, factors: Factors) -> float:
    """Return LAPACK's test ratio of one singular value decomposition."""
    return float(svd_ratios(M, *factors))


def _jitter(A: Tensor, dtype: torch.dtype) -> Tensor:
    """Perturb the diagonal by at most eps times the largest entry, deterministically."""
    size = A.abs().amax() * torch.finfo(dtype).eps
    steps = torch.linspace(-1, 1, min(A.shape[-2:]), dtype=torch.float64, device=A.device)
    shifted = A.clone()
    shifted.diagonal().add_((size * steps).to(A.dtype))
    return shifted


def _dump(A: Tensor, name: str) -> str | None:
    folder = os.environ.get("SPECTRALGRAD_DUMP")
    if not folder:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".npy", dir=folder)
    with os.fdopen(handle, "wb") as file:
        np.save(file, A.cpu().numpy(), allow_pickle=False)
    return path


EIGH = Problem(
    name="eigh",
    plan=choice.symmetric,
    method="eigh",
    fast=lambda A: choice.eigh_by_lapack(A),
    driver="eigh",
    others=("eigh_numpy", "eigh_by_svd"),
    ratio=eigh_ratio,
    values=0,
    read=mirrored,
)
SVD = Problem(
    name="svd",
    plan=choice.singular,
    method="svd",
    fast=lambda M: choice.svd_by_lapack(M),
    driver="svd",
    others=("svd_numpy", "svd_by_eigh"),
    ratio=svd_ratio,
    values=1,
    read=lambda M: M,
)


def eigenvalues_by_kernel(A: Tensor, operation: str = "eigvalsh") -> Tensor | None:
    """Return ascending eigenvalues by the kernel, or None if it is not used; vectors are computed where it fails."""
    plan = choice.symmetric(A)
    if plan is None:
        return None
    w, failed = plan.eigvalsh(in_memory(A))
    counts.call(plan.batch)
    if failed:
        EIGH.repair(EIGH.readable(A, operation), (w,), operation)
    return w


def eigenvalues(A: Tensor, operation: str) -> Tensor:
    """Return ascending eigenvalues by the kernel or LAPACK; matrices that fail are decomposed with vectors."""
    found = eigenvalues_by_kernel(A, operation)
    if found is not None:
        return found
    counts.call(A.shape[:-2].numel())
    A = EIGH.readable(A, operation)
    try:
        w, failed = choice.eigvalsh_by_lapack(A)
    except _FAILURES:
        if not status.optimistic(A):
            factors = EIGH.by_parts(A, operation)
            EIGH.repair(A, factors, operation)
            return factors[0]
        w, failed = choice.eigvalsh_by_lapack(without_values(A))
    if failed:
        EIGH.repair(A, (w,), operation)
    return w
