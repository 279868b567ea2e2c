"""Registration of operators with torch.library.

``torch.library.custom_op`` registers the same, but looks up source files each time, which would take a fourth of the
time of ``import spectralgrad``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from . import host, status
from .compiled import not_compiled

_LIBRARY = torch.library.Library("spectralgrad", "FRAGMENT")

bodies: dict[str, Callable[..., Any]] = {}  # what each operator computes, by its name
_schemas: dict[str, str] = {}
_rules: dict[str, list[Callable[[str], None]]] = {}  # each registers a rule of an operator for one of another name
_UNCHECKED = "_unchecked"


def custom_operator(function: Callable[..., Any]) -> Any:
    """Register a function of the same name as a pure operator without derivatives, and return the operator.

    It may look at values, which a recorded CUDA graph cannot do. Torch before 2.9 has no tag for that: there
    ``torch.compile(mode="reduce-overhead")`` on a GPU raises CUDA's error. :func:`current` returns the operator, or in
    unchecked code another one without the tag.
    """
    name, unsafe = function.__name__, getattr(torch.Tag, "cudagraph_unsafe", None)
    _schemas[name], _rules[name] = torch.library.infer_schema(function, mutates_args=()), []
    bodies[name] = not_compiled(_observed(function))
    _define(name, name, [torch.Tag.pt2_compliant_tag, *([] if unsafe is None else [unsafe])])
    if not status.checking():
        _define_unchecked()
    return getattr(torch.ops.spectralgrad, name).default


def current(name: str) -> Any:
    """Return the operator of a function, for code that may be compiled: see :class:`.status.unchecked`."""
    return getattr(torch.ops.spectralgrad, name if status.checking() else name + _UNCHECKED).default


def _define(name: str, function: str, tags: list[torch.Tag]) -> None:
    _LIBRARY.define(name + _schemas[function], tags=tags)
    _LIBRARY.impl(name, bodies[function], "CompositeExplicitAutograd")


def _define_unchecked() -> None:
    """Register each operator without the tag, under another name, unless that has been done."""
    for name in _schemas.keys() - _twins:
        _define(name + _UNCHECKED, name, [torch.Tag.pt2_compliant_tag])
        _twins.add(name)
        for register in _rules[name]:
            register(name + _UNCHECKED)


_twins: set[str] = set()
status.on_entering(_define_unchecked)


def _observed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let the checks inside an operator belong to the call that it is part of, or to itself."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        named = [x for x in args if isinstance(x, str)]
        return status.run(function, args, kwargs, named[0] if named else function.__name__, whole=False)

    return wraps(function)(lambda *args, **kwargs: host.computed(watched, args, kwargs))


def fake_rule(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns new tensors of the shapes and types of the results. A decorator."""

    return lambda rule: _registered(operator, rule, lambda name: _LIBRARY.impl(name, rule, "Meta"))


def vmap_rule(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that computes for all elements of a mapped dimension. A decorator."""

    def with_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
        register = torch.library.register_vmap
        return _registered(operator, rule, lambda name: register(f"spectralgrad::{name}", rule, lib=_LIBRARY))

    return with_rule


def _registered(operator: Any, rule: Callable[..., Any], register: Callable[[str], None]) -> Callable[..., Any]:
    """Register a rule of an operator, and keep how that is done."""
    name = operator._schema.name.partition("::")[2]
    _rules[name].append(register)
    for registered in (name, name + _UNCHECKED) if name in _twins else (name,):
        register(registered)
    return rule
