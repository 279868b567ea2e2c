"""Registration of operators with torch.library.

``torch.library.custom_op`` registers the same, but looks up source files each time, which would take a fourth of the
time of ``import spectralgrad``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .compiled import not_compiled

_LIBRARY = torch.library.Library("spectralgrad", "FRAGMENT")


def custom_operator(function: Callable[..., Any]) -> Any:
    """Register a function of the same name as a pure operator without derivatives, and return the operator.

    It may look at values, which a recorded CUDA graph cannot do. Torch before 2.9 has no tag for that: there
    ``torch.compile(mode="reduce-overhead")`` on a GPU raises CUDA's error.
    """
    name, unsafe = function.__name__, getattr(torch.Tag, "cudagraph_unsafe", None)
    tags = [torch.Tag.pt2_compliant_tag, *([] if unsafe is None else [unsafe])]
    _LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=()), tags=tags)
    _LIBRARY.impl(name, not_compiled(function), "CompositeExplicitAutograd")
    return getattr(torch.ops.spectralgrad, name).default


def fake_rule(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns new tensors of the shapes and types of the results. A decorator."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        _LIBRARY.impl(operator, rule, "Meta")
        return rule

    return register


def vmap_rule(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that computes for all elements of a mapped dimension. A decorator."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        torch.library.register_vmap(operator, rule, lib=_LIBRARY)
        return rule

    return register
