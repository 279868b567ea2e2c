"""The observers of a backward pass, which get the derivatives that do not exist.

A diagnostic is a source of observers. While one is on, a call that may be differentiated asks it for an observer, so
that the diagnostic knows which call a backward pass belongs to. Calls from before are asked about when their backward
pass runs. What is said about a derivative (:mod:`spectralgrad.autograd.existence`) is computed only if someone listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Observer = Callable[[list[Any]], None]
Source = Callable[[], Observer | None]

sources: list[Source] = []  # of the diagnostics that are on
_used = False  # until the first diagnostic of a process, backward passes ask no further


@contextmanager
def observing(source: Source) -> Iterator[None]:
    """Context in which ``source`` is asked for an observer of every call; it may return None."""
    global _used
    _used = True
    sources.append(source)
    try:
        yield
    finally:
        sources.remove(source)


def record(ctx: Any) -> None:
    """Keep the observers of a call in its context. Callers check :data:`sources` first, which costs nothing."""
    ctx.observers = {source: source() for source in sources}


def wanted() -> bool:
    """True if someone may want to know what :func:`tell` would compute."""
    return _used and not torch.compiler.is_compiling()


def tell(ctx: Any, judge: Callable[[], list[Any]]) -> None:
    """Give the result of ``judge`` to the observers of a call, if it is not empty.

    After a pass that can be differentiated (``create_graph=True``) the call is not judged again: a further pass is one
    of second derivatives, in which a part of their cotangent arrives by another way.
    """
    if getattr(ctx, "judged", False):
        return
    ctx.judged = torch.is_grad_enabled()
    told = {**{source: source() for source in sources}, **getattr(ctx, "observers", {})}
    listening = [observer for observer in told.values() if observer is not None]
    if not listening:
        return
    try:
        with torch.no_grad():
            found = judge()
    except RuntimeError:  # under vmap tensors cannot be converted to Python numbers
        return
    for observer in listening if found else []:
        observer(found)
