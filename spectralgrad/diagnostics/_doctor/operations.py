"""The calls that the doctor examines: how to find their matrix, and the factors in their result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import linalg, solvers
from ...linalg import eigenvalues, matrix_functions, norms, polar_factor, singular_values, spectral_measures, subspaces
from ...precision import widen
from .measures import Factors


@dataclass(frozen=True)
class Operation:
    """A function that is examined.

    Attributes:
        name: as a user would write it.
        kind: ``eigh`` or ``svd`` if the result has vectors; ``values``; ``function`` of a Hermitian matrix or
            ``singular function`` of any matrix; ``other``.
        read: the factors of a result by name: values ``w`` and vectors ``U``, ``V`` as columns.
        ours: the function is one of this library, whose gradient is bounded at ties.
    """

    name: str
    kind: str
    read: Callable[[Any], Factors]
    ours: bool = False

    @property
    def is_svd(self) -> bool:
        """True if the values are singular values."""
        return "svd" in self.name or self.kind == "singular function"


def _eigh(result: Any) -> Factors:
    return {"w": result[0], "V": result[1]}


def _svd(result: Any) -> Factors:
    U, S, Vh = result
    return {"U": U, "w": S, "Vh": Vh}


def _old_svd(result: Any) -> Factors:
    U, S, V = result
    return {"U": U, "w": S, "V": V}


def _values(result: Any) -> Factors:
    return {"w": result}


def _nothing(result: Any) -> Factors:
    return {}


_KINDS = {  # of the functions that a file defines
    eigenvalues: "values",
    matrix_functions: "function",
    subspaces: "function",
    norms: "singular function",
    polar_factor: "singular function",
    singular_values: "singular function",
    spectral_measures: "singular function",
}


def _table() -> dict[Any, Operation]:
    t: Any = torch.linalg
    found = {
        t.eigh: Operation("torch.linalg.eigh", "eigh", _eigh),
        t.svd: Operation("torch.linalg.svd", "svd", _svd),
        torch.svd: Operation("torch.svd", "svd", _old_svd),
        Tensor.svd: Operation("Tensor.svd", "svd", _old_svd),
        t.eigvalsh: Operation("torch.linalg.eigvalsh", "values", _values),
        t.svdvals: Operation("torch.linalg.svdvals", "values", _values),
        linalg.eigh: Operation("sg.eigh", "eigh", _eigh, ours=True),
        linalg.svd: Operation("sg.svd", "svd", _svd, ours=True),
        linalg.eigsh: Operation("sg.eigsh", "eigh", _eigh, ours=True),
    }
    for name in ("eig", "qr", "cholesky", "inv", "pinv", "lstsq", "matrix_sqrth", "polar"):
        if hasattr(t, name):
            found[getattr(t, name)] = Operation(f"torch.linalg.{name}", "other", _nothing)
    for module, kind in _KINDS.items():
        read = _values if kind == "values" else _nothing
        found |= {getattr(module, name): Operation(f"sg.{name}", kind, read, ours=True) for name in module.__all__}
    return found


OPERATIONS = _table()


def values_of(A: Tensor, sample: int, singular: bool) -> Tensor | None:
    """Return the values of up to ``sample`` matrices whose function is computed, or None if that is impossible."""
    try:
        flat = A.detach().reshape(-1, *A.shape[-2:])
        some = widen(flat[:: max(1, -(-flat.shape[0] // sample))])
        return solvers.svdvals(some) if singular else solvers.eigh(some)[0]
    except (RuntimeError, ValueError):
        return None


def as_columns(factors: Factors) -> Factors:
    """The factors with the same number of left and right vectors as values, all as columns."""
    k = factors["w"].shape[-1]
    columns = {name: x for name, x in factors.items() if name in ("w", "U", "V")}
    if "Vh" in factors:
        columns["V"] = factors["Vh"].mH
    return {name: x if name == "w" else x[..., :k] for name, x in columns.items()}


def is_positive(A: Tensor, factors: Factors) -> bool:
    """True if A is Hermitian and, up to rounding, positive semi-definite: its left and right vectors agree."""
    if A.shape[-1] != A.shape[-2] or not A.numel():
        return False
    A, U, w, V = (x.detach() for x in (A, factors["U"], factors["w"], factors["V"]))
    eps = torch.finfo(w.dtype).eps
    size = w.amax(-1)
    close = (A - A.mH).abs().amax((-2, -1)) <= 8 * eps * size
    aligned = (U.conj() * V).sum(-2).real > 0
    return bool(close.all() and (aligned | (w <= w.shape[-1] * 8 * eps * size.unsqueeze(-1))).all())
