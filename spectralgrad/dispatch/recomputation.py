"""Gradients of a function that is computed again inside a backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def gradients(
    results: Sequence[Tensor],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    cotangents: Sequence[Tensor | None],
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Return the gradients of the needed inputs; autograd has seen the results being computed. The graph is kept."""
    pairs = [(y, g) for y, g in zip(results, cotangents, strict=True) if g is not None and y.requires_grad]
    sources = [x for x, n in zip(inputs, needed, strict=True) if n and x is not None]
    if not pairs:
        return [None] * len(inputs)
    values, directions = zip(*pairs, strict=True)
    kept = {"retain_graph": True, "create_graph": create_graph, "allow_unused": True}
    found = iter(torch.autograd.grad(values, sources, directions, **kept))
    return [next(found) if n else None for n in needed]


def recomputed(
    call: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    cotangents: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return the gradients of the needed inputs of ``call`` as functions that autograd can differentiate again.

    They are taken with respect to views of the inputs. One of them may be a function of another; a view keeps that path
    out of these gradients, since the outer graph already accounts for it.
    """
    with torch.enable_grad():
        inputs = [None if x is None else x.view_as(x) for x in inputs]
        results = call(*inputs)
    return gradients(results, inputs, needed, cotangents, create_graph=True)
