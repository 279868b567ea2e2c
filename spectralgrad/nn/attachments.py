"""What a layer has beyond its class in the library, and would lose if it were replaced: methods, hooks, attributes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn

_HOOKS = tuple(name for name in vars(nn.Module()) if "hook" in name)
_DESCRIPTIVE = frozenset({"__init__", "__repr__", "_get_name", "extra_repr", "reset_parameters"})


def replaced_methods(layer: nn.Module, base: type[nn.Module], names: Iterable[str] | None = None) -> list[str]:
    """Return the methods of ``base`` that a subclass, or the layer as an object, replaces; only ``names`` if given."""
    order = type(layer).__mro__
    defined = set(vars(layer)).union(*(vars(kind) for kind in order[: order.index(base)]))
    chosen = defined - _DESCRIPTIVE if names is None else defined.intersection(names)
    return sorted(name for name in chosen if callable(getattr(base, name, None)))


def hooks(layer: nn.Module) -> list[str]:
    """Return the kinds of hooks that are registered, such as ``forward_pre_hooks``."""
    return [name.strip("_") for name in _HOOKS if isinstance(vars(layer).get(name), dict) and vars(layer)[name]]


def additions(layer: nn.Module, expected: set[str]) -> list[str]:
    """Return the names of parameters, buffers and modules beyond ``expected``, as parametrizations are."""
    return sorted({*layer._parameters, *layer._buffers, *layer._modules} - expected)


def attributes(old: nn.Module, new: nn.Module) -> dict[str, Any]:
    """Return the attributes of ``old`` that ``new`` does not set itself."""
    return {name: value for name, value in vars(old).items() if name not in vars(new)}


def move(old: nn.Module, new: nn.Module) -> None:
    """Give the hooks and attributes of ``old`` to ``new``.

    The dictionaries of hooks are handed over as objects, because the handles that remove hooks refer to them.
    """
    for name in _HOOKS:
        vars(new)[name] = vars(old)[name]
    for hook in new._load_state_dict_pre_hooks.values():
        if getattr(hook, "with_module", False):
            wrapped: Any = hook  # it passes the module, to which it has a weak reference
            wrapped.module = weakref.ref(new)
    vars(new).update(attributes(old, new))
