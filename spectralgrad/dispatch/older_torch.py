"""What older versions of torch do not do by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .torch_internals import maps_missing_cotangents, vmapped


def with_vmap_rule(rule: Any) -> Any:
    """Return an autograd function whose rule for vmap accepts cotangents that are None, as in newer torch.

    Torch 2.6 maps over every cotangent, ``set_materialize_grads(False)`` or not. Here a number stands in for a
    cotangent that is missing, until ``backward`` is called. Zeros would not do: some derivatives multiply a cotangent
    with infinity.
    """
    if maps_missing_cotangents or rule.materialize_grads or not rule.generate_vmap_rule:
        return rule

    def vmap(info: Any, in_dims: Any, *operands: Any) -> Any:
        missing: list[list[bool]] = []

        def without_numbers(ctx: Any, *cotangents: Any) -> Any:
            return rule.backward(ctx, *(None if m else g for m, g in zip(missing[-1], cotangents, strict=True)))

        def with_numbers(ctx: Any, *cotangents: Tensor | None) -> Any:
            missing.append([g is None for g in cotangents])
            try:
                dims = out_dims() if isinstance(out_dims(), tuple) else (out_dims(),)
                pairs = zip(cotangents, dims, strict=True)
                return mapped.backward(ctx, *(_number(dim, info.batch_size) if g is None else g for g, dim in pairs))
            finally:
                missing.pop()

        mapped, out_dims = vmapped(_changed(rule, without_numbers), in_dims, info.batch_size, info.randomness)
        mapped.materialize_grads = False
        return with_vmap_rule(_changed(mapped, with_numbers)).apply(*operands), out_dims()

    return type(rule.__name__, (rule,), {"generate_vmap_rule": False, "vmap": staticmethod(vmap)})


def _changed(rule: Any, backward: Callable[..., Any]) -> Any:
    return type(rule.__name__, (rule,), {"backward": staticmethod(backward)})


def _number(dim: int | None, batch: int) -> Tensor:
    """Return a tensor that can be mapped over a dimension; its values are not used."""
    return torch.zeros([batch] * (0 if dim is None else dim + 1))
