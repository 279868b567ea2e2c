"""The table of errors: every method and other libraries, on many spectra, against a 50-digit reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import numpy as np
import torch

from ..rules import SVDPI, Clip, Method, NewtonSchulz, Pade, PolarExpress, SVDNewton, Taylor, Trunc, methods
from .conformance_cases import Case, Draw, cases, draw_polar, draw_root, polar_cases
from .other_implementations import Root, installed_peers, own_root, torch_autograd, torch_polar
from .table import number, render

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
POLAR_RULES: dict[str, tuple[str, Method | str]] = {
    "exact": ("exact", "exact"),
    "polar-express": ("express", "polar-express"),
    "polar-express faithful": ("express°", PolarExpress(faithful=True)),
    "polar-express 8 steps": ("express8", PolarExpress(steps=8)),
    "muon": ("muon", "muon"),
}
_LEFT_OUT = ("svd", "svd-topn", "pi", "lorentzian", "masked")  # omitted to limit the width of the table
LEGEND = (
    "pade … inv are the methods svd-pade, svd-taylor, svd-clip, svd-trunc, svd-pi, svd-newton, newton-schulz, mtp,\n"
    "mpa and svd-inv. °: as in the released code. NaN: no finite gradient. Errors are the largest over several random\n"
    "draws of eigenvectors and cotangent. The stopping rules of svd-pi discard small eigenpairs, also in its forward\n"
    "pass."
)
POLAR_LEGEND = (
    "torch: autograd through torch.linalg.svd. express, express8: the method polar-express with 5 and with 8 steps.\n"
    "°: as in the paper's listing. NaN: no finite gradient. Errors are the largest over several random draws of\n"
    "singular vectors and cotangent."
)


@dataclass(frozen=True)
class Result:
    """Relative Frobenius errors of one implementation on one case; NaN if it failed or is not finite.

    ``error`` is the error of the gradient, ``value_error`` the error of the value. A note has the message of a failure.
    """

    case: str
    function: str
    size: int
    dtype: str
    ties: int
    contestant: str
    error: float
    value_error: float
    note: str = ""


def run(function: str = "inv_sqrt", sizes: tuple[int, ...] = (8,), progress: TextIO | None = None) -> list[Result]:
    """Measure every implementation on every case.

    Args:
        function: ``"inv_sqrt"``, ``"sqrt"`` or ``"polar"``.
        sizes: matrix sizes; the reference takes 0.05 s at size 8 and 10 s at size 64 if gmpy2 is installed.
        progress: stream for a progress line (default: none).

    Example:
        >>> results = run("sqrt", sizes=(2,))
        >>> all(r.error < 1e-12 for r in results if r.contestant == "exact" and "f64 n=2 κ=1e2" in r.case)
        True
    """
    table, results = (polar_cases if function == "polar" else cases)(sizes), []
    for count, case in enumerate(table):
        if progress is not None:
            print(f"\r{count:3d}/{len(table)}  {case.label:<40}", end="", file=progress, flush=True)
        results += list(_measure(case, function))
    if progress is not None:
        print(f"\r{'':60}\r", end="", file=progress, flush=True)
    return results


def _measure(case: Case, function: str) -> Iterator[Result]:
    """The largest errors of each implementation over a few random draws of vectors and cotangent."""
    polar = function == "polar"
    seeds = range(3 if case.size <= 16 else 1)
    draws = [draw_polar(case, seed) if polar else draw_root(case, function, seed) for seed in seeds]
    spectra = [torch.linalg.svdvals(draw.A) if polar else torch.linalg.eigh(draw.A).eigenvalues for draw in draws]
    ties = max(int((w.diff() == 0).sum()) for w in spectra)
    for name, root in contestants(function).items():
        gradients, values, notes = zip(*(_errors(root, draw) for draw in draws), strict=True)
        error, value_error, note = _largest(gradients), _largest(values), next(filter(None, notes), "")
        dtype = str(case.dtype).removeprefix("torch.")
        yield Result(case.label, function, case.size, dtype, ties, name, error, value_error, note)


def _largest(errors: Iterable[float]) -> float:
    return max(errors, key=lambda error: (np.isnan(error), error))


def contestants(function: str) -> dict[str, Root]:
    """Name → implementation: plain torch, this library with each method (also those registered later), and peers."""
    named = _rules(function)
    known = {*_LEFT_OUT, *(name.partition(" ")[0] for name in named)}
    rules = {name: method for name, (_, method) in named.items()}
    rules.update({name: name for name in methods(function) if name not in known})
    own = {name: own_root(function, method) for name, method in rules.items()}
    if function == "polar":
        return {**torch_polar(), **own}
    return {"torch": torch_autograd(function), **own, **installed_peers(function)}


def _rules(function: str) -> dict[str, tuple[str, Method | str]]:
    return POLAR_RULES if function == "polar" else RULES


def _errors(root: Root, draw: Draw) -> tuple[float, float, str]:
    """The errors of gradient and value, and the message of a failure."""
    try:
        return *draw.errors(root), ""
    except Exception as problem:  # any exception of another library is a result, not an error of the table
        return np.nan, np.nan, f"{type(problem).__name__}: {problem}"


def as_table(results: list[Result], quantity: str = "gradient") -> str:
    """The results as text, with one row per case and one column per implementation.

    Args:
        results: what :func:`run` returns.
        quantity: ``"gradient"`` or ``"value"``.
    """
    names = list(dict.fromkeys(r.contestant for r in results))
    by_case: dict[str, dict[str, Result]] = {}
    for r in results:
        by_case.setdefault(r.case, {})[r.contestant] = r
    rows = []
    for label, row in by_case.items():
        ties = next(iter(row.values())).ties
        errors = (row[name].error if quantity == "gradient" else row[name].value_error for name in names)
        rows.append([label + (f", {ties} tied" if ties else ""), *map(number, errors)])
    rules = _rules(results[0].function) if results else {}
    heads = [rules[name][0] if name in rules else name for name in names]
    return render([f"{quantity} error", *heads], rows)


def as_json(results: list[Result]) -> dict[str, Any]:
    """The results and the versions that produced them, ready for json.dump; NaN becomes null."""
    rows = [{key: None if value != value else value for key, value in asdict(r).items()} for r in results]
    return {"torch": torch.__version__, "digits": 50, "results": rows}


def summary(results: list[Result]) -> str:
    """Two sentences on the results of plain torch and of ``exact``."""

    def worst(name: str, keep: Callable[[Result], bool]) -> float:
        errors = [r.error for r in results if r.contestant == name and keep(r)]
        return max((float("inf") if np.isnan(e) else e) for e in errors) if errors else float("nan")

    def modest(r: Result) -> bool:
        return r.dtype == "float64" and any(word in r.case for word in ("κ=1e1 ", "κ=1e2 ", "cluster", "identity"))

    failed = sum(np.isnan(r.error) for r in results if r.contestant == "torch")
    total = sum(r.contestant == "torch" for r in results)
    solver = "svd" if results and results[0].function == "polar" else "eigh"
    return (
        f"Plain autograd through torch.linalg.{solver}: no finite gradient for {failed} of {total} matrices. "
        f"exact, float64, condition ≤ 1e2: largest error {number(worst('exact', modest))} at any gap."
    )


def main(function: str, sizes: tuple[int, ...]) -> list[Result]:
    """Measure, with a progress line if stderr is a terminal, and print the table, for ``polar`` also one of values."""
    results = run(function, sizes, sys.stderr if sys.stderr.isatty() else None)
    pretty = {"sqrt": "A^(1/2)", "inv_sqrt": "A^(-1/2)", "polar": "Q"}[function]
    legend = POLAR_LEGEND if function == "polar" else LEGEND
    print(f"Relative error of the gradient of ⟨{pretty}, G⟩ against a 50-digit reference\n")
    print(as_table(results), "", sep="\n")
    if function == "polar":
        print("Relative error of Q itself, the polar factor\n")
        print(as_table(results, "value"), "", sep="\n")
    print(legend, summary(results), sep="\n")
    return results
