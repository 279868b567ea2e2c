"""Decompositions that the doctor did not see being called, found in the autograd graph.

Functions compiled by torch.jit.script and calls from other threads bypass ``TorchFunctionMode``. Their nodes are in the
graph nevertheless, so the doctor can tell that one of them spoils the gradient, though not where it is in the source.
Functions of torch that decompose inside, such as the nuclear norm, are known by name, and so is their line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .findings import Finding
from .measures import Backward
from .operations import Operation
from .places import Place, calling_place
from .report import Report

_NODES = {"LinalgEighBackward0": "torch.linalg.eigh", "LinalgSvdBackward0": "torch.linalg.svd"}
_SEEN = "spectralgrad.doctor"
_LIMIT = 200_000  # nodes visited in one backward pass
PLACE = Place("<TorchScript or another thread>", 0, "", "")
CONTAINERS: dict[Any, str] = {
    torch.linalg.cond: "torch.linalg.cond",
    torch.linalg.matrix_norm: "torch.linalg.matrix_norm",
    torch.linalg.norm: "torch.linalg.norm",
    torch.norm: "torch.norm",
    Tensor.norm: "Tensor.norm",
}
BACKWARDS = frozenset({Tensor.backward, torch.autograd.backward, torch.autograd.grad})


def mark(result: Any) -> None:
    """Mark the node of a decomposition as seen."""
    for x in result if isinstance(result, tuple) else (result,):
        node: Any = x.grad_fn if isinstance(x, Tensor) else None
        if node is not None and node.name() in _NODES:
            node.metadata[_SEEN] = True


def listen(roots: Any, report: Report) -> None:
    """Register hooks on the decompositions behind the tensors ``roots`` that were not seen."""
    for node in _nodes([roots] if isinstance(roots, Tensor) else list(roots)):
        _attend(node, PLACE, _NODES[node.name()], report)


def adopt(func: Any, A: Tensor, result: Any, report: Report) -> None:
    """Register hooks on the decompositions inside a call ``func(A)`` that returned ``result``."""
    for node in _nodes([result], end=A.grad_fn):
        finding = _attend(node, calling_place(), CONTAINERS[func], report)
        if finding is not None:
            finding.shape, finding.dtype = tuple(A.shape), str(A.dtype).removeprefix("torch.")


def _attend(node: Any, place: Place, name: str, report: Report) -> Finding | None:
    node.metadata[_SEEN] = True
    finding = report.at(place, Operation(name, "other", lambda _: {}))
    if finding is not None:
        finding.calls += 1
        node.register_hook(_hook(finding))
    return finding


def _nodes(roots: list[Any], end: Any = None) -> Iterator[Any]:
    """The decompositions behind ``roots`` that were not seen, up to the node ``end``."""
    waiting: list[Any] = [x.grad_fn for x in roots if isinstance(x, Tensor)]
    visited: set[Any] = {end}
    while waiting and len(visited) < _LIMIT:
        node = waiting.pop()
        if node is not None and node not in visited:
            visited.add(node)
            if node.name() in _NODES and _SEEN not in node.metadata:
                yield node
            waiting.extend(following for following, _ in node.next_functions)


def _hook(finding: Finding) -> Callable[..., None]:
    return lambda after, before: finding.note_backward(lambda: _found(before, after))


def _found(before: tuple[Tensor | None, ...], after: tuple[Tensor | None, ...]) -> Backward:
    finite = [all(bool(g.isfinite().all()) for g in gradients if g is not None) for gradients in (before, after)]
    return Backward(finite[0], finite[1], True)
