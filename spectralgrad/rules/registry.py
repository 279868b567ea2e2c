"""The registry of methods: listing them, registering new ones, and turning names into objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ..errors import MethodError
from ..io import plugins
from . import classes
from .base import FUNCTIONS, OPERATIONS, ROOTS, Method
from .parsing import parse

METHODS: dict[str, type[Method]] = {
    cls.name: cls for cls in vars(classes).values() if isinstance(cls, type) and issubclass(cls, Method)
}
# Instances with default parameters; they are immutable, so all calls can share them.
_SHARED: dict[type[Method], Method] = {cls: cls() for cls in METHODS.values()}
Defaults = Mapping[str, Mapping[str, Any]]
GROUP = "spectralgrad.methods"  # entry-point group
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_RESERVED = ("batchnorm", "none")  # names with a special meaning in the lab


class MethodList(dict[str, str]):
    """Mapping from method names to one-line summaries; its repr is a table."""

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {line}" for name, line in self.items())


def methods(operation: str | None = None) -> MethodList:
    """List the methods with a one-line summary each: all of them, or those available for one operation.

    Args:
        operation: ``"eigh"``, ``"svd"``, ``"sqrt"``, ``"inv_sqrt"``, ``"power"``, ``"log"``, ``"exp"``, ``"function"``
            or ``"polar"``; by default all methods are listed.

    Returns:
        dictionary from names to summaries, printed as a table.

    Raises:
        MethodError: there is no such operation.

    Example:
        >>> methods("svd")["svd-taylor"]
        'geometric series of degree 9 in closed form; bound (K+1)/λ'
        >>> "newton-schulz" in methods("sqrt"), "newton-schulz" in methods("eigh")
        (True, False)
    """
    if operation is not None and not (isinstance(operation, str) and operation in OPERATIONS):
        known = ", ".join(sorted(OPERATIONS))
        raise MethodError(f"methods: expected an operation from {known}, got {operation!r}")
    for name in plugins.names(GROUP):
        _load(name)
    return MethodList({n: c.summary for n, c in METHODS.items() if operation is None or operation in c.operations})


def register_method(kind: type[Method]) -> type[Method]:
    """Register your own method so that functions, layers and the lab's ``Config`` accept its name. A class decorator.

    A package can instead declare an entry point with the method's name in the group ``spectralgrad.methods``, which is
    imported when that name is first used.

    Args:
        kind: a frozen dataclass derived from :class:`GapMethod` or :class:`Method`, with ``name``, ``summary``,
            ``reference``, a default for every field, and the methods that its ``operations`` require.

    Returns:
        the class.

    Raises:
        MethodError: the class does not meet these requirements, or the name is already used.

    Example:
        >>> from dataclasses import dataclass
        >>> import spectralgrad as sg
        >>> @sg.register_method
        ... @dataclass(frozen=True)
        ... class Tenth(sg.GapMethod):
        ...     name, summary, reference = "tenth", "gaps clipped at a tenth", "this example"
        ...     limit: float = 0.1
        ...     def gaps(self, w):
        ...         gap = w.unsqueeze(-1) - w.unsqueeze(-2)
        ...         return torch.where(gap == 0, 0.0, 1 / gap).clamp(-self.limit, self.limit)
        >>> sg.eigh(torch.eye(2), method="tenth:limit=0.5").eigenvalues
        tensor([1., 1.])
        >>> del METHODS["tenth"]
    """
    problem = _problem(kind)
    if problem:
        raise MethodError(f"register_method: {problem}")
    METHODS[kind.name] = kind
    return kind


def _problem(kind: Any) -> str:
    """Return why ``kind`` cannot be registered, or an empty string if it can."""
    if not isinstance(kind, type) or not issubclass(kind, Method):
        return f"expected a class derived from GapMethod or Method, got {kind!r}"
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        reserved = " or ".join(_RESERVED)
        return f"expected a name of lower-case letters, digits and hyphens other than {reserved}, got {name!r}"
    known = METHODS.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        return f"the name {name!r} is already used by {known.__module__}.{known.__qualname__}; choose another"
    if not isinstance(getattr(kind, "summary", None), str) or not isinstance(getattr(kind, "reference", None), str):
        return f"expected {kind.__name__} to define the strings summary and reference"
    if not kind.operations or not kind.operations <= OPERATIONS:
        return f"expected operations from {', '.join(sorted(OPERATIONS))}, got {kind.operations!r}"
    if _missing(kind):
        return f"expected {kind.__name__} to implement {_missing(kind)}, which its operations require"
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return f"expected a default value for {', '.join(needed)}" if needed else ""


def _missing(kind: type[Method]) -> str:
    """Return the names of the methods that a class must implement for its operations and does not."""
    by_function = ("function", "compose")  # by default function calls compose, and root calls function
    needs: dict[str, tuple[str, ...]] = {"eigh": ("decompose",), "svd": ("decompose_svd",), "polar": ("orthogonal",)}
    needs |= {operation: ("root", *by_function) if operation in ROOTS else by_function for operation in FUNCTIONS}
    wanted = {needs[o] for o in kind.operations if all(getattr(kind, n) is getattr(Method, n) for n in needs[o])}
    return " and ".join(sorted(names[0] for names in wanted))


def named(text: str, defaults: Defaults | None = None) -> Method:
    """Return the method described by a string, without checking it against an operation; see :func:`resolve`.

    Raises:
        MethodError: there is no such method.
    """
    name = text.partition(":")[0]
    if name not in METHODS:
        _load(name)
    return parse(text, METHODS, (defaults or {}).get(name, {}))


def spelling(method: Method) -> str | None:
    """Return the string that :func:`resolve` turns into an equal method; None if there is none.

    Parameters for which a layer has its own default are always written, so that a layer makes an equal method too.

    Example:
        >>> from spectralgrad import Exact, Taylor
        >>> spelling(Taylor(degree=19)), spelling(Exact())
        ('svd-taylor:degree=19', 'exact')
    """
    text = method.spelled(always=method.set_by_layers)
    if METHODS.get(method.name) is not type(method):
        return None
    try:
        back = parse(text, METHODS)
        same = all(bool(getattr(back, f.name) == getattr(method, f.name)) for f in fields(method))
    except Exception:  # a field that cannot be written as text or compared
        return None
    return text if same else None


def _load(name: str) -> None:
    """Register the method of the entry point called ``name``, if there is one."""
    if name in METHODS:
        return
    kind = plugins.load(GROUP, name)
    if kind is None:
        return
    problem = _problem(kind) or (f"its method has another name, {kind.name!r}" if kind.name != name else "")
    if problem:
        plugins.refuse(GROUP, name, problem)
    else:
        METHODS[name] = kind


def resolve(method: str | Method, operation: str, defaults: Defaults | None = None) -> Method:
    """Return the method object for a name or an object, after checking that it supports the operation.

    A name alone selects the paper's parameters; others can be appended: ``"svd-taylor:degree=19"``.

    Args:
        method: a name, with or without parameters, or an object.
        operation: what the method must support.
        defaults: parameters by name of the method, used where a string leaves them open. Layers use them for what
            depends on the application, such as the degree of ``svd-taylor``.

    Raises:
        MethodError: there is no such method, or it is not available for the operation.

    Example:
        >>> resolve("svd-taylor:degree=19", "eigh")
        Taylor(degree=19, faithful=False, clamp=None)
        >>> str(resolve("svd-clip", "eigh"))
        'svd-clip'
        >>> resolve("svd-taylor", "sqrt", {"svd-taylor": {"degree": 100}}).degree
        100
    """
    if isinstance(method, str):
        kind = METHODS.get(method)
        method = named(method, defaults) if kind is None or defaults else _SHARED.get(kind) or kind()
    if not isinstance(method, Method):
        raise MethodError(f"method: expected a name or a Method object, got {type(method).__name__}")
    if operation not in method.operations:
        raise MethodError(
            f"method {method.name!r} is not available for {operation}; choose from: {', '.join(methods(operation))}"
        )
    return method
