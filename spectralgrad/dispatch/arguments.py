"""Checks of arguments, one for each kind, and a decorator that derives them from the annotations of a function.

======================== =======================================================================
annotation               what is accepted
======================== =======================================================================
``bool``                 True or False, also numpy's
``int``                  integers, also numpy's, but no bool
``float``                numbers except NaN, also numpy's and real tensors with one entry, but no bool
``Literal["a", "b"]``    these strings
``Callable[...]``        anything that can be called
``Sequence[X]``          sequences of X, but no string
``tuple[X, Y]``          tuples of this length
a class                  its instances
``X | Y | None``         any of these
======================== =======================================================================

Ranges are checked by the functions themselves, with :func:`check_range` and :func:`check_count`. The annotations are
read once, when a function is defined. A call checks the arguments that it gives; defaults are not checked. Dynamo of
torch 2.6 traces the checks as well; it knows neither ``in`` for a frozenset nor ``strict=False``.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from operator import index
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ..errors import DTYPES, ArgumentError, ShapeError, SpectralError
from . import status

P = ParamSpec("P")
R = TypeVar("R")
_COLLECTIONS = {Sequence: "sequence", Iterable: "collection", Mapping: "dictionary"}


class Kind(NamedTuple):
    """What an argument may be: types that are accepted without a further look, a test for others, and its words."""

    types: tuple[type, ...] | None  # None for functions: Dynamo of torch 2.6 does not know the type of a nested one
    accepts: Callable[[Any], bool]
    wanted: str
    error: type[SpectralError] = ArgumentError


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of each call against the annotations of ``function``. A decorator.

    Messages begin with the argument ``where``, if there is one, or with the name of the function or class.
    """
    check = argument_check(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        if torch.compiler.is_compiling() or getattr(next(iter(args or kwargs.values()), None), "is_cpu", True):
            return function(*args, **kwargs)
        return status.run(function, args, kwargs, function.__name__)

    return call


def argument_check(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
    """Return a function of the positional and keyword arguments of a call that raises an error if one is unfit."""
    method = function.__name__ == "__init__"
    names, kinds = tuple(inspect.signature(function).parameters), kinds_of(function)
    ordered = tuple(kinds.get(name, _ANYTHING) for name in names)

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for kind, value in zip(ordered, args):  # noqa: B905
            if (kind.types is None or type(value) not in kind.types) and not kind.accepts(value):
                refuse_first(args, kwargs)
        for name, value in kwargs.items():
            kind = kinds.get(name, _ANYTHING)
            if (kind.types is None or type(value) not in kind.types) and not kind.accepts(value):
                refuse_first(args, kwargs)

    def refuse_first(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        where = type(args[0]).__name__ if method else kwargs.get("where", function.__name__)
        for name, value in (*zip(names, args), *kwargs.items()):  # noqa: B905
            kind = kinds.get(name, _ANYTHING)
            if not _accepted(kind, value):
                meant = kind.error is ShapeError and "method" in kinds and kinds["method"].accepts(value)
                refuse(value, name, str(where), kind, "; a method is passed as method=" if meant else "")

    return check


def kinds_of(annotated: Any) -> dict[str, Kind]:
    """Return the kinds of the annotated parameters of a function or fields of a class."""
    named = {name: kind_of(annotation) for name, annotation in get_type_hints(annotated).items() if name != "return"}
    if inspect.isfunction(annotated):
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for parameter in inspect.signature(annotated).parameters.values():
            if parameter.kind in variadic:
                named.pop(parameter.name, None)
    return {name: kind for name, kind in named.items() if kind is not None}


def kind_of(annotation: Any) -> Kind | None:
    """Return the kind of an annotation; None if it says nothing that can be checked."""
    simple = _SIMPLE.get(annotation) if isinstance(annotation, type) else None
    if simple is not None:
        return simple
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _union([kind_of(part) for part in inner])
    if origin is Literal:
        return Kind((), lambda x: isinstance(x, str) and x in inner, " or ".join(map(repr, inner)))
    if origin is Callable:
        return _CALLABLE
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return _collection(Sequence, kind_of(inner[0]), False)
        return _tuple([kind_of(part) for part in inner])
    if origin in _COLLECTIONS:
        return _collection(origin, kind_of(inner[0]) if origin is Sequence else None, inner[0] is Any)
    if not isinstance(annotation, type) or origin is not None or annotation in (object, Any):
        return None
    error = getattr(annotation, "argument_error", ArgumentError)
    return Kind((annotation,), lambda x: isinstance(x, annotation), _name(annotation), error)


def _accepted(kind: Kind, value: object) -> bool:
    return (kind.types is not None and type(value) in kind.types) or kind.accepts(value)


def refuse(value: object, argument: str, where: str, kind: Kind, advice: str = "") -> None:
    """Raise the error of ``kind`` for an unfit argument."""
    if isinstance(value, np.ndarray) and "torch.Tensor" in kind.wanted:
        advice = f"; convert it with torch.from_numpy({argument})"
    raise kind.error(f"{where}: expected {argument} to be {kind.wanted}, got {described(value)}{advice}")


def described(value: object) -> str:
    """Return an argument as messages show it: its repr if that is short, otherwise its type and shape."""
    if isinstance(value, (Tensor, np.ndarray)):
        kind = "tensor" if isinstance(value, Tensor) else "numpy array"
        nested = isinstance(value, Tensor) and value.is_nested  # has no shape
        return f"a nested {kind}" if nested else f"a {kind} of {value.dtype} and shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else type(value).__name__


def check_range(
    value: float | None, argument: str, where: str, least: float = -math.inf, most: float = math.inf, ends: str = "[)"
) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is None or a number between ``least`` and ``most``.

    ``ends`` says whether the ends belong to the range; by default the first one does, and numbers are finite.
    """
    if value is None:
        return
    above = value > least or (value == least and ends[0] == "[" and math.isfinite(least))
    below = value < most or (value == most and ends[1] == "]")
    if not (above and below):
        raise ArgumentError(f"{where}: expected {argument} to be {_range(least, most, ends)}, got {value!r}")


def check_count(value: int | None, argument: str, where: str, least: int = 1, most: int | None = None) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is None or an integer from ``least`` to ``most``."""
    if value is not None and (not is_integer(value) or value < least or (most is not None and value > most)):
        wanted = f"≥ {least}" if most is None else f"from {least} to {most}"
        raise ArgumentError(f"{where}: expected {argument} to be an integer {wanted}, got {described(value)}")


def check_tolerance(rtol: float | None, operation: str) -> None:
    """Raise :class:`ArgumentError` unless ``rtol`` is None or a number from 0 to 1."""
    check_range(rtol, "rtol", operation, 0, 1, ends="[]")


def is_flag(value: object) -> bool:
    """True for True and False, also numpy's."""
    return isinstance(value, (bool, np.bool_))


def is_integer(value: object) -> bool:
    """True for integers, including numpy's and integer tensors with one element, but not for True and False."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    if isinstance(value, np.bool_) or not hasattr(value, "__index__"):
        return False
    try:
        index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return False
    return not isinstance(value, Tensor) or value.dtype != torch.bool


def is_number(value: object) -> bool:
    """True for real numbers except NaN, including numpy's and real 0-dimensional tensors, but not True and False."""
    if isinstance(value, (float, int)):
        return value == value and not isinstance(value, bool)
    if isinstance(value, Tensor):
        real = value.ndim == 0 and not value.dtype.is_complex and value.dtype != torch.bool
        return real and (torch.compiler.is_compiling() or not value.is_cpu or not bool(torch.isnan(value)))
    if isinstance(value, (complex, np.bool_, np.complexfloating, np.ndarray)) or not hasattr(value, "__float__"):
        return False
    try:
        return not math.isnan(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


def is_dtype(value: object) -> bool:
    """True for the floating-point and complex types that this library computes in or widens."""
    return isinstance(value, torch.dtype) and value in DTYPES


def is_device(value: object) -> bool:
    """True for devices and their names and numbers."""
    try:
        torch.device(value)  # type: ignore[call-overload]
    except (TypeError, RuntimeError):
        return False
    return not isinstance(value, bool)


def _union(parts: list[Kind | None]) -> Kind | None:
    """The kind of a union; its error is the one of its parts, apart from names and None, if these agree."""
    if _SIMPLE[torch.device] in parts:
        parts = [part for part in parts if part is not _SIMPLE[str]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):  # a part that cannot be checked
        return None
    errors = {part.error for part in known if part not in (_SIMPLE[str], _SIMPLE[type(None)])}
    error = errors.pop() if len(errors) == 1 else ArgumentError
    quick = [part.types for part in known]
    fast = None if None in quick else tuple(dict.fromkeys(t for some in quick for t in some or ()))
    wanted = " or ".join(part.wanted for part in known)
    tests = [part.accepts for part in known if fast is None or part is not _SIMPLE[type(None)]]
    if len(tests) == 1:
        return Kind(fast, tests[0], wanted, error)
    return Kind(fast, lambda x: (fast and type(x) in fast) or any(accepts(x) for accepts in tests), wanted, error)


def _tuple(parts: list[Kind | None]) -> Kind:
    def accepts(value: Any) -> bool:
        pairs = zip(parts, value) if isinstance(value, (tuple, list)) else ()  # noqa: B905
        return (
            isinstance(value, (tuple, list))
            and len(value) == len(parts)
            and all(part is None or _accepted(part, x) for part, x in pairs)
        )

    return Kind((), accepts, f"a tuple of {len(parts)}")


def _collection(origin: Any, items: Kind | None, tensors: bool) -> Kind:
    """The kind of a sequence, iterable or mapping; ``tensors`` may be one only if their rows are what is wanted."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, origin) or isinstance(value, (str, bytes)):
            return False
        if isinstance(value, (Tensor, np.ndarray)) and not (tensors and value.ndim):
            return False
        return items is None or all(_accepted(items, x) for x in value)

    error = ArgumentError if items is None else items.error
    what = f"a {_COLLECTIONS[origin]}" if items is None else f"a {_COLLECTIONS[origin]} with each item {items.wanted}"
    return Kind((), accepts, what, error)


def _name(kind: type) -> str:
    module = kind.__module__.partition(".")[0]
    name = {"Module": "nn.Module", "Optimizer": "optim.Optimizer"}.get(kind.__name__, kind.__name__)
    return f"a torch.{name}" if module == "torch" else f"a {name}"


def _range(least: float, most: float, ends: str) -> str:
    if math.isinf(least):
        return "a finite number"
    if math.isinf(most):
        finite = "a finite number" if ends[1] == ")" else "a number"
        return f"{finite} {'≥' if ends[0] == '[' else '>'} {least:g}"
    if ends == "[]":
        return f"a number from {least:g} to {most:g}"
    return f"a number x with {least:g} {'≤' if ends[0] == '[' else '<'} x {'≤' if ends[1] == ']' else '<'} {most:g}"


_SIMPLE: dict[type, Kind] = {
    bool: Kind((bool,), is_flag, "True or False"),
    int: Kind((int,), is_integer, "an integer"),
    float: Kind((), is_number, "a number"),
    str: Kind((str,), lambda x: isinstance(x, str), "a string"),
    type(None): Kind((type(None),), lambda x: x is None, "None"),
    torch.dtype: Kind((), is_dtype, "a floating-point or complex torch.dtype", ShapeError),
    torch.device: Kind((torch.device,), is_device, "a torch.device or its name"),
    Tensor: Kind((Tensor, Parameter), lambda x: isinstance(x, Tensor), "a torch.Tensor", ShapeError),
}
_CALLABLE = Kind(None, callable, "a function")
_ANYTHING = Kind((), lambda x: True, "anything")
