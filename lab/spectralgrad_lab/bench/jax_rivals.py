"""JAX as a contestant: compiled by jit, in the precision of the case, timed until the result is there.

JAX runs LAPACK in parallel over the batch, with threads of its own. It is imported when a contestant first runs, so
that a failing import is reported as that contestant's result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .accuracy import Results
from .outcomes import Contestant


def installed() -> bool:
    """True if JAX can be imported."""
    return find_spec("jax") is not None


def contestants(contest: str, *inputs: Tensor) -> list[Contestant]:
    """JAX's entry in a contest: one, or none if JAX is not installed or has nothing to compare.

    Args:
        contest: name of the contest.
        inputs: the matrices and, if the contest asks for a gradient, the cotangent.
    """
    if contest not in _FUNCTIONS or not installed():
        return []
    exact = len(inputs) == 1  # gradients go through the decomposition and are inexact near ties
    return [Contestant("jax", _timed(contest, inputs), exact=exact, own_threads=True, read=_tensors)]


def _timed(contest: str, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
    @cache
    def compiled() -> Callable[[], Any]:
        jax = _jax()
        arrays = [jax.numpy.asarray(x.numpy()) for x in inputs]
        function = _FUNCTIONS[contest](jax.numpy)
        ready = jax.jit(function if len(arrays) == 1 else _both_ways(jax, function))
        return lambda: jax.block_until_ready(ready(*arrays))

    return lambda: compiled()()


def _both_ways(jax: Any, function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Value, and gradient of ⟨value, G⟩."""

    def both(X: Any, G: Any) -> Any:
        value, pull = jax.vjp(function, X)
        return value, *pull(G)

    return both


@cache
def _jax() -> Any:
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def _tensors(arrays: Any) -> Results:
    return tuple(torch.from_numpy(np.array(x)) for x in arrays)


def _eigh(jnp: Any) -> Callable[[Any], Any]:
    return lambda A: tuple(jnp.linalg.eigh(A, symmetrize_input=False))


def _svd(jnp: Any) -> Callable[[Any], Any]:
    return lambda M: tuple(jnp.linalg.svd(M, full_matrices=False))


def _filtered(jnp: Any) -> Callable[[Any], Any]:
    def function(M: Any) -> Any:
        U, S, Vh = jnp.linalg.svd(M, full_matrices=False)
        return (U * (S / (1 + S))[..., None, :]) @ Vh

    return function


def _inverse_root(jnp: Any) -> Callable[[Any], Any]:
    def function(A: Any) -> Any:
        w, V = jnp.linalg.eigh(A)
        return (V / jnp.sqrt(w)[..., None, :]) @ jnp.swapaxes(V, -1, -2).conj()

    return function


def _polar(jnp: Any) -> Callable[[Any], Any]:
    def function(M: Any) -> Any:
        U, _, Vh = jnp.linalg.svd(M, full_matrices=False)
        return (U @ Vh,)

    return function


_FUNCTIONS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "eigh": _eigh,
    "eigvalsh": lambda jnp: lambda A: (jnp.linalg.eigvalsh(A),),
    "svd": _svd,
    "svd_grad": _filtered,
    "inv_sqrt": _inverse_root,
    "polar": _polar,
}
