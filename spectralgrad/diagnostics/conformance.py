"""The table of gradient errors: every method and other libraries, on many spectra, against a 50-digit reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from ..rules import SVDPI, Clip, Method, NewtonSchulz, Pade, SVDNewton, Taylor, Trunc, methods
from ..testing import Reference, gradient_of, paired_spectrum, relative_error, with_spectrum
from .other_implementations import Root, installed_peers, own_root, torch_autograd
from .table import number, render

CONDITIONS = (1e2, 1e6, 1e10)
GAPS = (1e-2, 1e-6, 1e-10, 1e-14, 1e-16)
FLOAT32 = ((1e2, 1e-2), (1e2, 1e-5), (1e2, 1e-6), (1e4, 1e-2))
SPREADS = (1e-2, 1e-10, 1e-14)
LARGE = ((1e2, 1e-2), (1e2, 1e-8), (1e2, 1e-16), (1e6, 1e-12))

# The methods of this library: name → column heading, method. A ° marks what the papers' released code computes.
RULES: dict[str, tuple[str, Method | str]] = {
    "exact": ("exact", "exact"),
    "svd-pade": ("pade", "svd-pade"),
    "svd-pade faithful": ("pade°", Pade(faithful=True)),
    "svd-taylor degree 9": ("taylor9", Taylor()),
    "svd-taylor degree 9 faithful": ("taylor9°", Taylor(faithful=True)),
    "svd-taylor degree 100": ("taylor100", Taylor(degree=100)),
    "svd-clip": ("clip", Clip()),
    "svd-trunc": ("trunc", Trunc()),
    "svd-pi": ("pi", SVDPI()),
    "svd-newton": ("newton", SVDNewton()),
    "newton-schulz": ("ns5", NewtonSchulz()),
    "mtp": ("mtp", "mtp"),
    "mpa": ("mpa", "mpa"),
    "svd-inv": ("inv", "svd-inv"),
}
_LEFT_OUT = ("svd", "svd-topn", "pi", "lorentzian", "masked")  # omitted to limit the width of the table
LEGEND = (
    "pade … inv are the methods svd-pade, svd-taylor, svd-clip, svd-trunc, svd-pi, svd-newton, newton-schulz, mtp,\n"
    "mpa and svd-inv. °: as in the released code. NaN: no finite gradient. Errors are the largest over several random\n"
    "draws of eigenvectors and cotangent. The stopping rules of svd-pi discard small eigenpairs, also in its forward\n"
    "pass."
)


@dataclass(frozen=True)
class Case:
    """One row of the table: the eigenvalues of its matrices and their type."""

    label: str
    eigenvalues: tuple[float, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return len(self.eigenvalues)


@dataclass(frozen=True)
class Result:
    """Relative Frobenius error of the gradient of one implementation on one case; NaN if it failed or is not finite."""

    case: str
    function: str
    size: int
    dtype: str
    ties: int
    contestant: str
    error: float
    note: str = ""


def cases(sizes: tuple[int, ...] = (8,)) -> list[Case]:
    """The rows of the table: pairs of eigenvalues at a relative gap, and one tight cluster, in float64 and float32."""
    table = []
    for n in sizes:
        grid = [(c, g) for c in CONDITIONS for g in GAPS] if n <= 16 else list(LARGE)
        table += [_paired(n, c, g, torch.float64) for c, g in grid]
        table += [_cluster(n, spread, torch.float64) for spread in SPREADS]
        table += [_paired(n, c, g, torch.float32) for c, g in FLOAT32]
        table += [_cluster(n, 1e-6, torch.float32), _cluster(n, 0.0, torch.float64)]
    return table


def _paired(n: int, condition: float, gap: float, dtype: torch.dtype) -> Case:
    label = f"{_short(dtype)} n={n} κ={_power(condition)} gap={_power(gap)}"
    return Case(label, tuple(paired_spectrum(n, condition, gap)), dtype)


def _cluster(n: int, spread: float, dtype: torch.dtype) -> Case:
    label = f"{_short(dtype)} n={n} " + (f"cluster {_power(spread)}" if spread else "identity")
    return Case(label, tuple(1 + spread * np.linspace(0, 1, n)), dtype)


def _power(x: float) -> str:
    mantissa, exponent = f"{x:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.float64: "f64"}[dtype]


def run(function: str = "inv_sqrt", sizes: tuple[int, ...] = (8,), progress: TextIO | None = None) -> list[Result]:
    """Measure every implementation on every case.

    Args:
        function: ``"inv_sqrt"`` or ``"sqrt"``.
        sizes: matrix sizes; the reference takes 0.05 s at size 8 and 10 s at size 64 if gmpy2 is installed.
        progress: stream for a progress line (default: none).

    Example:
        >>> results = run("sqrt", sizes=(2,))
        >>> all(r.error < 1e-12 for r in results if r.contestant == "exact" and "f64 n=2 κ=1e2" in r.case)
        True
    """
    table, results = cases(sizes), []
    for count, case in enumerate(table):
        if progress is not None:
            print(f"\r{count:3d}/{len(table)}  {case.label:<40}", end="", file=progress, flush=True)
        results += list(_measure(case, function))
    if progress is not None:
        print(f"\r{'':60}\r", end="", file=progress, flush=True)
    return results


def _measure(case: Case, function: str) -> Iterator[Result]:
    """The largest error of each implementation over a few random draws of eigenvectors and cotangent."""
    draws = [_draw(case, function, seed) for seed in range(3 if case.size <= 16 else 1)]
    ties = max(int((torch.linalg.eigh(A).eigenvalues.diff() == 0).sum()) for A, _, _ in draws)
    for name, root in contestants(function).items():
        outcomes = [_error(root, *draw) for draw in draws]
        error, note = max(outcomes, key=lambda outcome: (np.isnan(outcome[0]), outcome[0]))
        dtype = str(case.dtype).removeprefix("torch.")
        yield Result(case.label, function, case.size, dtype, ties, name, error, note)


def _draw(case: Case, function: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Matrix, cotangent and true gradient."""
    A = with_spectrum(np.array(case.eigenvalues), dtype=case.dtype, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    G = torch.randn(case.size, case.size, generator=generator, dtype=torch.float64).to(case.dtype)
    G = (G + G.mT) / 2
    return A, G, Reference(A).gradient(function, G)


def contestants(function: str) -> dict[str, Root]:
    """Name → implementation: plain torch, this library with each method (also those registered later), and peers."""
    known = {*_LEFT_OUT, *(name.partition(" ")[0] for name in RULES)}
    rules = {name: method for name, (_, method) in RULES.items()}
    rules.update({name: name for name in methods(function) if name not in known})
    table: dict[str, Root] = {"torch": torch_autograd(function)}
    table.update({name: own_root(function, method) for name, method in rules.items()})
    return {**table, **installed_peers(function)}


def _error(root: Root, A: Tensor, G: Tensor, truth: Tensor) -> tuple[float, str]:
    try:
        error = relative_error(gradient_of(root, A, G), truth)
    except Exception as problem:  # any exception of another library is a result, not an error of the table
        return float("nan"), f"{type(problem).__name__}: {problem}"
    return (error if np.isfinite(error) else float("nan")), ""


def as_table(results: list[Result]) -> str:
    """The results as text, with one row per case and one column per implementation."""
    names = list(dict.fromkeys(r.contestant for r in results))
    by_case: dict[str, dict[str, Result]] = {}
    for r in results:
        by_case.setdefault(r.case, {})[r.contestant] = r
    rows = []
    for label, row in by_case.items():
        ties = next(iter(row.values())).ties
        rows.append([label + (f", {ties} tied" if ties else ""), *(number(row[name].error) for name in names)])
    heads = [RULES[name][0] if name in RULES else name for name in names]
    return render(["gradient error", *heads], rows)


def as_json(results: list[Result]) -> dict[str, Any]:
    """The results and the versions that produced them, ready for json.dump; NaN becomes null."""
    rows = [{**asdict(r), "error": None if np.isnan(r.error) else r.error} for r in results]
    return {"torch": torch.__version__, "digits": 50, "results": rows}


def summary(results: list[Result]) -> str:
    """Two sentences on the results of plain torch and of ``exact``."""

    def worst(name: str, keep: Callable[[Result], bool]) -> float:
        errors = [r.error for r in results if r.contestant == name and keep(r)]
        return max((float("inf") if np.isnan(e) else e) for e in errors) if errors else float("nan")

    def modest(r: Result) -> bool:
        return r.dtype == "float64" and ("κ=1e2" in r.case or "cluster" in r.case or "identity" in r.case)

    failed = sum(np.isnan(r.error) for r in results if r.contestant == "torch")
    total = sum(r.contestant == "torch" for r in results)
    return (
        f"Plain autograd through torch.linalg.eigh: no finite gradient for {failed} of {total} matrices. "
        f"exact, float64, condition ≤ 1e2: largest error {number(worst('exact', modest))} at any gap."
    )


def main(function: str, sizes: tuple[int, ...]) -> list[Result]:
    """Measure, with a progress line if stderr is a terminal, and print the table."""
    results = run(function, sizes, sys.stderr if sys.stderr.isatty() else None)
    print(f"Relative error of the gradient of ⟨{_pretty(function)}, G⟩ against a 50-digit reference\n")
    print(as_table(results), "", LEGEND, summary(results), sep="\n")
    return results


def _pretty(function: str) -> str:
    return {"sqrt": "A^(1/2)", "inv_sqrt": "A^(-1/2)"}[function]
