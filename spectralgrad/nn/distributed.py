"""Sums over the processes of a group, differentiable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]


def reducer(sync: bool, group: Any = None) -> Reduce | None:
    """What sums a tensor over the processes of ``group``; None if there is only this process.

    Args:
        sync: whether the layer wants it.
        group: a process group, by default all processes.

    Example:
        >>> reducer(True) is None                        # no process group was initialised
        True
    """
    if not sync or not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) < 2:
        return None
    return lambda x: _Sum.apply(x, group)


class _Sum(torch.autograd.Function):
    """The gradient of a sum over processes is the sum over processes of the gradients."""

    @staticmethod
    def forward(ctx, x, group):  # type: ignore[no-untyped-def]
        ctx.group = group
        result = x.clone(memory_format=torch.contiguous_format)
        # Without the graph that result will have: the thread of the connections may hold what it is given longest,
        # and would then close the group, itself included, in which it runs.
        dist.all_reduce(result.detach(), group=group)
        return result

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return _Sum.apply(g, ctx.group), None
