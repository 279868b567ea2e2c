"""The table of operations: the kinds of input each accepts, its methods, and the function that checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ...linalg import matrix_functions
from ...nn.functional import covariance_pooling, whiten
from ...rules import methods
from . import references
from .cases import Case
from .checks import Finding
from .families import FAMILIES, Kind
from .hermitian import functional, judge_eigh, judge_learned_power, judge_projector
from .homogeneous import HOMOGENEOUS
from .rectangular import Rectangle, judge_covariance, judge_covariance_sqrt, judge_polar, judge_svd, layer
from .references import Spectrum
from .scaling import Homogeneous, judge_scales

_POSITIVE: tuple[Kind, ...] = ("positive",)
_HERMITIAN: tuple[Kind, ...] = ("positive", "hermitian")
_FEATURES: tuple[Kind, ...] = ("features",)
_ANY: tuple[Kind, ...] = ("positive", "hermitian", "features")


Judge = Callable[[Case, Any, str], Iterator[Finding]]
# One round in this number, over all families, is also compared with other scales, each time with the next method.
SCALED_ROUNDS = 16


class Operation(NamedTuple):
    """The kinds of input that an operation accepts, its methods, the preparation of a reference, and its checks."""

    kinds: tuple[Kind, ...]
    methods: tuple[str, ...]
    prepare: Callable[[torch.Tensor], Any]
    judge: Judge


def _function(operation: str, kinds: tuple[Kind, ...], f: references.Function, call: Any) -> Operation:
    return Operation(kinds, tuple(methods(operation)), Spectrum, functional(f, call))


_OPERATIONS: dict[str, Operation] = {
    "eigh": Operation(_HERMITIAN, tuple(methods("eigh")), Spectrum, judge_eigh),
    "svd": Operation(_ANY, tuple(methods("svd")), Rectangle, judge_svd),
    "matrix_sqrt": _function(
        "sqrt", _POSITIVE, references.SQRT, lambda A, method: matrix_functions.matrix_sqrt(A, method=method)
    ),
    "matrix_inv_sqrt": _function(
        "inv_sqrt", _POSITIVE, references.INV_SQRT, lambda A, method: matrix_functions.matrix_inv_sqrt(A, method=method)
    ),
    "matrix_power 0.375": _function(
        "power", _POSITIVE, references.POWER, lambda A, method: matrix_functions.matrix_power(A, 0.375, method=method)
    ),
    "matrix_power learned": Operation(_POSITIVE, tuple(methods("power")), Spectrum, judge_learned_power),
    "matrix_power 2": _function(
        "power", _HERMITIAN, references.SQUARE, lambda A, method: matrix_functions.matrix_power(A, 2, method=method)
    ),
    "matrix_power -1": _function(
        "power", _HERMITIAN, references.INVERSE, lambda A, method: matrix_functions.matrix_power(A, -1, method=method)
    ),
    "matrix_log": _function(
        "log", _POSITIVE, references.LOG, lambda A, method: matrix_functions.matrix_log(A, method=method)
    ),
    "matrix_exp": _function(
        "exp", _HERMITIAN, references.EXP, lambda A, method: matrix_functions.matrix_exp(A, method=method)
    ),
    "matrix_function": _function(
        "function",
        _HERMITIAN,
        references.TANH,
        lambda A, method: matrix_functions.matrix_function(A, torch.tanh, method=method),
    ),
    "spectral_projector": Operation(_HERMITIAN, ("",), Spectrum, judge_projector),
    "polar": Operation(_ANY, ("",), Rectangle, judge_polar),
    "covariance": Operation(_FEATURES, ("",), Rectangle, judge_covariance),
    "covariance_sqrt": Operation(_FEATURES, tuple(methods("sqrt")), Rectangle, judge_covariance_sqrt),
    "covariance_pooling": Operation(
        _FEATURES,
        tuple(methods("sqrt")),
        Rectangle,
        layer(lambda X, method: covariance_pooling(X, method=method), any_scale=True),
    ),
    "whiten": Operation(
        _FEATURES,
        tuple(methods("inv_sqrt")),
        Rectangle,
        layer(lambda X, method: whiten(X, method=method), any_scale=False),
    ),
    "whiten on range": Operation(
        _FEATURES, ("exact",), Rectangle, layer(lambda X, method: whiten(X, eps=0.0, method=method), any_scale=False)
    ),
}


def _at_other_scales(operation: Operation | None, scaled: Homogeneous) -> Operation:
    """The operation with the comparison of :mod:`.scaling` added; some have no other check."""

    def judge(case: Case, prepared: Any, method: str) -> Iterator[Finding]:
        if operation is not None:
            yield from operation.judge(case, prepared, method)
        block, turn = divmod(case.number // len(FAMILIES), SCALED_ROUNDS)
        if turn == block % SCALED_ROUNDS and case.kind in scaled.kinds:
            yield from judge_scales(scaled, case, method)

    if operation is None:
        return Operation(scaled.kinds, ("",), lambda matrices: None, judge)
    return operation._replace(judge=judge)


OPERATIONS: dict[str, Operation] = {
    name: _at_other_scales(_OPERATIONS.get(name), HOMOGENEOUS[name]) if name in HOMOGENEOUS else _OPERATIONS[name]
    for name in dict.fromkeys([*_OPERATIONS, *HOMOGENEOUS])
}
