"""Failures: one bad matrix raises an error that names it, or is NaN alone in unchecked code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor

import spectralgrad as sg

from .checks import Check, Skip, Wrong
from .target import Target
from .transforms import agree, matrices

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "eigh": lambda A: sg.eigh(A).eigenvectors.abs(),
    "eigvalsh": sg.eigvalsh,
    "svd": lambda A: sg.svd(A).U.abs(),
    "svdvals": sg.svdvals,
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_inv_sqrt": sg.matrix_inv_sqrt,
    "matrix_log": sg.matrix_log,
    "matrix_exp": sg.matrix_exp,
    "matrix_power": lambda A: sg.matrix_power(A, 0.3),
    "matrix_sqrt, newton-schulz": lambda A: sg.matrix_sqrt(A, method="newton-schulz"),
    "polar": sg.polar,
    "spectral_projector": lambda A: sg.spectral_projector(A, 2),
    "nuclear_norm": sg.nuclear_norm,
}
_BAD = {"NaN": float("nan"), "inf": float("inf")}


def _spoiled(value: float) -> tuple[Tensor, Tensor]:
    """A batch of three matrices, and the same with one entry of the matrix at position 1 replaced."""
    A = matrices()
    bad = A.clone()
    bad[1, 2, 1] = bad[1, 1, 2] = value
    return A, bad


def _raised(call: Callable[[Tensor], Tensor], value: float, target: Target) -> str:
    _, bad = _spoiled(value)
    try:
        call(target.put(bad.to(target.wide)))
    except sg.SpectralError as error:
        if "position 1" not in str(error):
            raise Wrong(f"the error does not name position 1: {error}") from error
        return f"{type(error).__name__}"
    raise Wrong("no error was raised")


def _unchecked(call: Callable[[Tensor], Tensor], value: float, target: Target) -> str:
    if target.checks_at_once:
        raise Skip("matrices are computed on the CPU, where calls are checked in any case")
    A, bad = (x.to(target.wide) for x in _spoiled(value))
    leaf = target.put(bad).requires_grad_()
    with sg.solvers.unchecked():
        found = call(leaf)
        found.sum().backward()
    try:
        sg.solvers.check()
    except sg.SpectralError as error:
        if "position 1" not in str(error):
            raise Wrong(f"check() does not name position 1: {error}") from error
    else:
        raise Wrong("check() reports nothing")
    agree(found[::2], call(A)[::2])
    if leaf.grad is None:
        raise Wrong("there is no gradient")
    for what, x in {"result": found, "gradient": leaf.grad}.items():
        nan = x.detach().isnan().reshape(3, -1).any(-1).tolist()
        if nan != [False, True, False]:
            raise Wrong(f"the {what} is NaN in matrices {[i for i, bad in enumerate(nan) if bad]} instead of [1]")
    return ""


def checks(quick: bool) -> Iterator[Check]:
    """Every function with a batch in which one matrix is bad, checked and unchecked."""
    for name, call in FUNCTIONS.items():
        for word, value in _BAD.items():
            yield Check("failures", f"{word} raises, {name}", partial(_raised, call, value))
            yield Check("failures", f"{word} unchecked, {name}", partial(_unchecked, call, value))
