"""Differentiable sums over the processes of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]


def reducer(sync: bool, group: Any = None) -> Reduce | None:
    """A function that sums a tensor over the processes of ``group``.

    Args:
        sync: False if the layer does not synchronise its statistics.
        group: a process group (default: all processes).

    Returns:
        the function, or None if ``sync`` is False or there is only one process.

    Example:
        >>> reducer(True) is None                        # no process group has been initialised
        True
    """
    if not sync or not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) < 2:
        return None
    return lambda x: _Sum.apply(x, group)


class _Sum(torch.autograd.Function):
    """Sum over processes. Its gradient is the sum of the gradients of all processes.

    It is no rule of :mod:`spectralgrad.dispatch.function`: communication has no transforms, as torch's own error says.
    """

    @staticmethod
    def forward(ctx, x, group):  # type: ignore[no-untyped-def]
        ctx.group = group
        result = x.clone(memory_format=torch.contiguous_format)
        # Detached, because the communication thread may be the last to release the tensor. With the graph attached,
        # which refers to the process group, that thread would then destroy the group, and so the thread itself.
        dist.all_reduce(result.detach(), group=group)
        return result

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return _Sum.apply(g, ctx.group), None
