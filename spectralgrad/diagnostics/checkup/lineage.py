r"""Follows what is computed from the factors of a decomposition, to recognise functions composed by hand.

Every tensor that is derived from eigenvalues or eigenvectors alone carries a :class:`Trace`: which decomposition it
comes from, and whether it is f(λ), vectors, or vectors scaled by f(λ). A product of scaled vectors and vectors is the
matrix function :math:`Vf(\lambda)V^H`, or :math:`Uf(\sigma)V^H` for singular values. Traces are kept for as long as
their tensors live. What is not recognised is dropped: the advice is then less specific.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from .composed import Composed, Step

# Functions that change neither the values nor, up to batch dimensions and conjugation, what a tensor means.
_SAME = frozenset({
    "__getitem__", "alias", "as_subclass", "broadcast_to", "cdouble", "cfloat", "clone", "conj", "contiguous", "cpu",
    "detach", "double", "expand", "expand_as", "flatten", "float", "repeat", "requires_grad_", "reshape",
    "resolve_conj", "squeeze", "to", "type", "type_as", "unsqueeze", "view",
})  # fmt: skip
_TRANSPOSES = frozenset({
    "H", "T", "adjoint", "inverse", "linalg_inv", "mH", "mT", "movedim", "permute", "swapaxes", "swapdims", "t",
    "transpose",
})  # fmt: skip
_PRODUCTS = frozenset({"__matmul__", "__rmatmul__", "bmm", "einsum", "linalg_multi_dot", "matmul", "mm"})
_SCALINGS = frozenset({
    "__mul__", "__rmul__", "__truediv__", "div", "div_", "divide", "mul", "mul_", "multiply", "true_divide",
})  # fmt: skip
_ALIVE = 4096  # traces kept at most


@dataclass(frozen=True)
class Trace:
    """What a tensor is: ``role`` is values, vectors or scaled; ``side`` tells left from right singular vectors."""

    source: Any  # the decomposition, as the owner of the lineage identifies it
    role: str
    side: str
    size: int  # number of values of the decomposition
    steps: tuple[Step, ...] = ()
    part: bool = False  # only some of the values or vectors
    transposed: bool = False  # vectors are rows


class Lineage:
    """The traces of the tensors that are alive."""

    def __init__(self) -> None:
        self._traces: dict[int, tuple[weakref.ref[Tensor], Trace]] = {}

    def start(self, tensor: Tensor, trace: Trace) -> None:
        """Follow ``tensor`` from here on."""
        if len(self._traces) >= _ALIVE:
            return
        key = id(tensor)
        self._traces[key] = (weakref.ref(tensor, lambda _: self._traces.pop(key, None)), trace)

    def of(self, x: object) -> Trace | None:
        """Return the trace of ``x``; None if it is not a tensor that is followed."""
        found = self._traces.get(id(x))
        return found[1] if found is not None and found[0]() is x else None

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Composed | None:
        """Note what a call of torch computed; return the function that it completed, if it did."""
        if not self._traces:
            return None
        operands = list(_tensors(args))
        traces = [trace for x in operands if (trace := self.of(x)) is not None]
        if not traces:
            return None
        name = _name(func)
        if name in _PRODUCTS:
            ordered = list(reversed(traces)) if name == "__rmatmul__" else traces
            return self._product(ordered, len(operands), result, any_order=name == "einsum")
        trace = _elementwise(name, traces, operands, args, kwargs)
        if trace is not None:
            target = args[0] if name == "__setitem__" else result
            if isinstance(target, Tensor) and (target.is_floating_point() or target.is_complex()):
                self.start(target, replace(trace, part=trace.part or _is_part(trace, target)))
        return None

    def _product(self, traces: list[Trace], count: int, result: Any, any_order: bool) -> Composed | None:
        if len(traces) < count or len({trace.source for trace in traces}) > 1:
            return None
        steps = [trace.steps for trace in traces if trace.role != "vectors"]
        vectors = [trace for trace in traces if trace.role != "values"]
        part = any(trace.part for trace in traces)
        if len(vectors) == 2:
            if not any_order and (vectors[0].transposed or not vectors[1].transposed):
                return None  # Vᴴ f(λ) V, or V V
            sides = "".join(sorted({trace.side for trace in vectors}))
            return Composed(vectors[0].source, sides, bool(steps), _joined(steps), part)
        if len(vectors) == 1 and isinstance(result, Tensor) and len(steps) == 1:
            self.start(result, replace(vectors[0], role="scaled", steps=steps[0], part=part))
        return None


def _joined(steps: list[tuple[Step, ...]]) -> tuple[Step, ...]:
    """The function of a product in which no, one or both factors are scaled: (V f)(V f)ᴴ is V f² Vᴴ."""
    if len(steps) < 2:
        return steps[0] if steps else ()
    first, second = steps
    return (*first, Step("square")) if first == second else (*first, *second, Step("product", unknown=True))


def _elementwise(
    name: str, traces: list[Trace], operands: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Trace | None:
    """The trace of a result that is not a matrix product."""
    first = traces[0]
    if name in _SAME:
        return first
    if name in _TRANSPOSES:
        return None if first.role == "values" else replace(first, transposed=not first.transposed)
    if name in ("diag", "diag_embed"):
        return first if first.role == "values" else None
    by_role = {trace.role: trace for trace in traces}
    if name in _SCALINGS and len(traces) == 2 and {"vectors", "values"} == set(by_role):
        values, vectors = by_role["values"], by_role["vectors"]
        if values.source != vectors.source:
            return None
        steps = (*values.steps, Step("reciprocal")) if "div" in name else values.steps
        return replace(vectors, role="scaled", steps=steps, part=values.part or vectors.part)
    if first.role != "values" or any(trace.role != "values" or trace.source != first.source for trace in traces):
        return None
    if name.endswith("_like"):  # zeros_like and others do not use the values
        return None
    return replace(first, steps=(*first.steps, Step.of(name, args, kwargs, len(operands))))


def _is_part(trace: Trace, tensor: Tensor) -> bool:
    """True if neither of the last two dimensions has all the values or vectors."""
    return trace.size not in tensor.shape[-2:]


def _name(func: Any) -> str:
    """The name of a function of torch; of a property, the name of the property."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def _tensors(values: Any) -> Iterator[Tensor]:
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from _tensors(x)
