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

import torch
from torch import Tensor

from ...dispatch.function import transformed
from . import einsum
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
_PRODUCTS = frozenset({"__matmul__", "__rmatmul__", "bmm", "linalg_multi_dot", "matmul", "mm"})
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
    first: int = 0  # how many, if they are the first ones
    signed: bool = False  # the last vector was multiplied by ±1
    symbol: str = "w"  # of the values in expressions
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
        if name == "einsum":
            return self._einsum(einsum.equation_of(args), operands, result)
        if name in _PRODUCTS:
            ordered = list(reversed(operands)) if name == "__rmatmul__" else operands
            if len(traces) < len(operands):
                self._with_another(ordered, result)
                return None
            composed = self._product([self._traces[id(x)][1] for x in ordered], result)
            made = self.of(result)
            if made is not None and made.role == "scaled":
                self._note_scaling(operands, result, made)
            return composed
        trace = self._signed(name, operands) or _elementwise(name, traces, operands, args, kwargs)
        if trace is None and name == "__setitem__":
            self._traces.pop(id(args[0]), None)  # it was overwritten
        if trace is not None:
            if trace.role == "scaled" and name in _SCALINGS:
                self._note_scaling(operands, result, trace)
            target = args[0] if name == "__setitem__" else result
            if isinstance(target, Tensor) and (target.is_floating_point() or target.is_complex()):
                self.start(target, _selected(trace, name, args, target))
        return None

    def _note_scaling(self, operands: list[Tensor], result: Any, trace: Trace) -> None:
        """Let the decomposition observe the gradient of vectors that were scaled by f(λ)."""
        vectors = [x for x in operands if (found := self.of(x)) is not None and found.role == "vectors"]
        if len(vectors) == 1 and vectors[0] is not result:
            trace.source.listen_scaled(vectors[0], result, trace.transposed)

    def _with_another(self, operands: list[Tensor], result: Any) -> None:
        """Follow x V and Vᴴ x, which have the same meaning for what follows, and V diag(1, …, 1, ±1)."""
        if len(operands) != 2 or not isinstance(result, Tensor):
            return
        left, right = (self.of(x) for x in operands)
        trace, other = (right, operands[0]) if left is None else (left, operands[1])
        if trace is None or trace.role == "values":
            return
        inner = trace.transposed == (left is None)  # the other factor is where f(λ) would be
        if not inner:
            self.start(result, trace)
        elif trace.role == "vectors" and not trace.part and other.shape[-2:] == (trace.size,) * 2:
            signs = other.diagonal(dim1=-2, dim2=-1)
            if _are_signs(signs, trace.size) and not bool((other - torch.diag_embed(signs)).any()):
                self.start(result, replace(trace, signed=True))

    def _signed(self, name: str, operands: list[Tensor]) -> Trace | None:
        """The trace of vectors whose last one is multiplied by ±1, by ``*`` or in place as in ``Vh[-1] *= -1``."""
        followed = [x for x in operands if (trace := self.of(x)) is not None and trace.role == "vectors"]
        if name == "__setitem__" and followed and followed[0] is operands[0] and _is_orthonormal(operands[0]):
            return replace(self._traces[id(operands[0])][1], signed=True)
        if name not in _SCALINGS or "div" in name or len(followed) != 1 or len(operands) != 2:
            return None
        trace = self._traces[id(followed[0])][1]
        other = operands[followed[0] is operands[0]]
        across = -1 if trace.transposed else -2  # the dimension in which a sign is repeated
        if self.of(other) is not None or not other.dim() or (other[None].shape[across] != 1):
            return None
        signs = other[None].squeeze(across)
        return replace(trace, signed=True) if _are_signs(signs, trace.size) else None

    def _einsum(self, equation: str, operands: list[Tensor], result: Any) -> Composed | None:
        """Follow an einsum, in which data may take part."""
        found = [self.of(x) for x in operands]
        traces = [trace for trace in found if trace is not None]
        roles = [einsum.Operand("data") if x is None else einsum.Operand(x.role, x.transposed) for x in found]
        reading = einsum.read(equation, roles)
        if reading is None or any(not _are_signs(operands[k], traces[0].size) for k in reading.signs):
            return None
        if reading.signs:
            traces = [replace(trace, signed=trace.role == "vectors") for trace in traces]
        if reading.meaning == "function":
            return self._product(traces, result, any_order=True)
        steps = [trace.steps for trace in traces if trace.role != "vectors"]
        if len({trace.source for trace in traces}) == 1 and len(steps) <= 1:
            (vectors,) = (trace for trace in traces if trace.role != "values")
            role, part = "scaled" if steps else "vectors", any(trace.part for trace in traces)
            rows = reading.meaning == "rows"
            kept = replace(vectors, role=role, steps=_joined(steps), part=part, first=_first(traces), transposed=rows)
            self.start(result, kept)
        return None

    def _product(self, traces: list[Trace], result: Any, any_order: bool = False) -> Composed | None:
        if len({trace.source for trace in traces}) > 1:
            return None
        steps = [trace.steps for trace in traces if trace.role != "vectors"]
        vectors = [trace for trace in traces if trace.role != "values"]
        part, first = any(trace.part for trace in traces), _first(traces)
        signed = any(trace.signed for trace in traces)
        if len(vectors) == 2:
            if not any_order and (vectors[0].transposed or not vectors[1].transposed):
                return None  # Vᴴ f(λ) V, or V V
            sides = "".join(sorted({trace.side for trace in vectors}))
            if signed and (sides != "UV" or steps or part):
                return None
            return Composed(
                vectors[0].source, sides, bool(steps), _joined(steps), part, first, signed, vectors[0].symbol
            )
        if len(vectors) == 1 and isinstance(result, Tensor) and len(steps) == 1:
            self.start(result, replace(vectors[0], role="scaled", steps=steps[0], part=part, first=first))
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
        part = values.part or vectors.part
        return replace(vectors, role="scaled", steps=steps, part=part, first=_first([values, vectors]))
    if first.role != "values" or any(trace.role != "values" or trace.source != first.source for trace in traces):
        return None
    if name.endswith("_like") or name.startswith("new_"):  # zeros_like and others do not use the values
        return None
    return replace(first, steps=(*first.steps, Step.of(name, args, kwargs, len(operands))))


def _selected(trace: Trace, name: str, args: tuple[Any, ...], tensor: Tensor) -> Trace:
    """The trace of a result, which may have only a part of the values or vectors."""
    if trace.size not in tensor.shape[-2:]:  # neither of the last two dimensions has all of them
        part = True
    else:
        sliced = name in ("__getitem__", "narrow") and trace.role != "values" and tensor.dim() == args[0].dim() > 1
        part = sliced and tensor.shape[-2 if trace.transposed else -1] < trace.size
    if trace.part or not part:
        return trace
    return replace(trace, part=True, first=_leading(args[1]) if name == "__getitem__" else 0)


def _leading(index: Any) -> int:
    """k of an index such as [:, :k]; 0 of any other."""
    cuts = [x for x in (index if isinstance(index, tuple) else (index,)) if x is not Ellipsis and x != slice(None)]
    match cuts:
        case [slice(start=None | 0, stop=int() as stop, step=None | 1)]:
            return max(stop, 0)
    return 0


def _first(traces: list[Trace]) -> int:
    """How many of the first values or vectors a product of ``traces`` has; 0 if the parts differ or are unknown."""
    found = {trace.first for trace in traces if trace.part}
    return found.pop() if len(found) == 1 else 0


def _is_orthonormal(x: Tensor) -> bool:
    if transformed() or x.dim() < 2:
        return False
    x = x.detach()
    gram = x.mH @ x if x.shape[-2] >= x.shape[-1] else x @ x.mH
    rounding = 64 * max(x.shape[-2:]) * torch.finfo(x.dtype).eps
    return bool(((gram - torch.eye(gram.shape[-1], dtype=x.dtype, device=x.device)).abs() <= rounding).all())


def _are_signs(x: Tensor, size: int) -> bool:
    """True if ``x`` is (1, …, 1, ±1) up to rounding, or a batch of them."""
    if transformed() or not x.numel() or x.shape[-1] != size or not x.is_floating_point():
        return False
    x = x.detach()
    expected = torch.ones_like(x)
    expected[..., -1] = x[..., -1].sign()
    return bool((x - expected).abs().max() <= 64 * size * torch.finfo(x.dtype).eps)


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
