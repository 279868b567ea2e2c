"""Matrix roots and polar factors of this library, of plain torch and of other libraries, with one signature."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..linalg import matrix_functions, polar_factor
from ..rules import Method

Root = Callable[[Tensor], Tensor]


def torch_autograd(function: str) -> Root:
    """The matrix root with plain autograd through torch.linalg.eigh."""
    scalar = {"sqrt": torch.sqrt, "inv_sqrt": torch.rsqrt}[function]

    def root(A: Tensor) -> Tensor:
        w, V = torch.linalg.eigh(A)
        return (V * scalar(w).unsqueeze(-2)) @ V.mH

    return root


def torch_polar() -> dict[str, Root]:
    """Name → the polar factor with plain autograd through torch.linalg.svd, and torch.linalg.polar if torch has it."""

    def by_svd(M: Tensor) -> Tensor:
        U, _, Vh = torch.linalg.svd(M, full_matrices=False)
        return U @ Vh

    native = getattr(torch.linalg, "polar", None)
    if native is None:
        return {"torch": by_svd}
    return {"torch": by_svd, "linalg.polar": lambda M: native(M)[0]}


def own_root(function: str, method: Method | str) -> Root:
    """``matrix_sqrt``, ``matrix_inv_sqrt`` or ``polar`` with this method, without a rank tolerance.

    Example:
        >>> round(own_root("sqrt", "exact")(4 * torch.eye(1)).item(), 4)
        2.0
    """
    if function == "polar":
        return lambda M: polar_factor.polar(M, method=method, rtol=0.0)
    root = {"sqrt": matrix_functions.matrix_sqrt, "inv_sqrt": matrix_functions.matrix_inv_sqrt}[function]
    return lambda A: root(A, method=method, rtol=0.0, clamp=True)


def installed_peers(function: str) -> dict[str, Root]:
    """Name → implementation of ``function`` ("sqrt" or "inv_sqrt") for every peer that is installed."""
    return {name: _load(module, get, function) for name, (module, get) in _PEERS.items() if _found(module)}


def _found(module: str) -> bool:
    return find_spec(module.split(".")[0]) is not None


def _load(module: str, get: Callable[[Any, str], Root], function: str) -> Root:
    """The implementation, imported when it is called, so that a failing import is reported as the peer's result."""

    def root(A: Tensor) -> Tensor:
        return get(import_module(module), function)(A)

    return root


def _pot(backend: Any, function: str) -> Root:
    torch_backend = backend.TorchBackend()
    if function == "sqrt":
        return torch_backend.sqrtm
    return lambda A: torch_backend.inv(torch_backend.sqrtm(A))


_PEERS: dict[str, tuple[str, Callable[[Any, str], Root]]] = {
    "torchspd": ("torchspd", lambda m, f: m.sqrtm if f == "sqrt" else m.invsqrtm),
    "POT": ("ot.backend", _pot),
    "geoopt": ("geoopt.linalg", lambda m, f: m.sym_sqrtm if f == "sqrt" else m.sym_inv_sqrtm1),
    "pyriemann": ("pyriemann.utils.base", lambda m, f: m.sqrtm if f == "sqrt" else m.invsqrtm),
    "spd_learn": ("spd_learn.functional", lambda m, f: getattr(m, f"matrix_{f}").apply),
}
