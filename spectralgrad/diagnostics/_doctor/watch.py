"""Watches the spectral calls of a training step and their gradients, without changing them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...dispatch import observation
from ...dispatch.function import transformed
from . import measures, missed_calls
from .data_flow import Lineage, Trace
from .findings import Finding
from .measures import Factors
from .operations import OPERATIONS, Operation, as_columns, is_positive, values_of
from .places import calling_place
from .report import Report


class Watch(TorchFunctionMode):
    """The context that :func:`doctor` returns."""

    def __init__(self, sample: int, places: int) -> None:
        super().__init__()
        self.report = Report(places)
        self._sample = sample
        self._lineage = Lineage()
        self._running: tuple[int, _Call | None] = (0, None)  # the thread and the call

    def __enter__(self) -> Report:  # type: ignore[override]
        self._observing = observation.observing(self._observer)
        self._observing.__enter__()
        super().__enter__()
        return self.report

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        self._observing.__exit__(None, None, None)

    def _observer(self) -> observation.Observer | None:
        """Return the observer of gradients for the decomposition being computed; None outside the watched calls."""
        thread, call = self._running
        return call.finding.note_flaws if call is not None and thread == threading.get_ident() else None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        operation = OPERATIONS.get(func)
        if operation is not None and args and kwargs.get("out") is None and _is_examined(operation, args[0]):
            result = self._call(operation, func, args, kwargs)
        else:
            if func in missed_calls.BACKWARDS and args and not transformed():
                missed_calls.listen(args[0], self.report)
            result = func(*args, **kwargs)
            if func in missed_calls.CONTAINERS and args and isinstance(args[0], Tensor) and not transformed():
                missed_calls.adopt(func, args[0], result, self.report)
        composed = self._lineage.follow(func, args, kwargs, result)
        if composed is not None:
            composed.source.finding.note_composed(composed)
        return result

    def _call(self, operation: Operation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        finding = self.report.at(calling_place(), operation)
        if finding is None:
            return func(*args, **kwargs)
        finding.calls += 1
        if transformed():
            self.report.unseen += 1
            return func(*args, **kwargs)
        call = _Call(finding, operation, self._sample)
        A = _matrix(args[0])
        if A is None:
            return self._run(call, func, args, kwargs)
        finding.shape, finding.dtype = tuple(A.shape), str(A.dtype).removeprefix("torch.")
        watched = A.requires_grad and torch.is_grad_enabled()
        given = A[...] if watched and A.layout == torch.strided else A  # an alias, whose gradient is of this call alone
        try:
            first = given if A is args[0] else (args[0][0], given)
            result = self._run(call, func, (first, *args[1:]), kwargs)
        except Exception as error:
            finding.note_failure(error, bad_input=not bool(A.detach().isfinite().all()))
            raise
        missed_calls.mark(result)
        call.look(A, result)
        if watched:
            call.listen(given, result)
        self._trace(call)
        return result

    def _run(self, call: _Call, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function; what its backward pass says about the derivative goes to the call."""
        before, self._running = self._running, (threading.get_ident(), call)
        try:
            return func(*args, **kwargs)
        finally:
            self._running = before

    def _trace(self, call: _Call) -> None:
        """Follow the factors, if the result has vectors."""
        if call.operation.kind not in ("eigh", "svd"):
            return
        size = call.factors["w"].shape[-1]
        for name, x in call.factors.items():
            role = "values" if name == "w" else "vectors"
            symbol = "s" if call.operation.is_svd else "w"
            self._lineage.start(x, Trace(call, role, name[0], size, transposed=name == "Vh", symbol=symbol))
        call.factors = {}  # the results belong to the caller


class _Call:
    """One call: its factors, and its cotangents while a backward pass is under way."""

    def __init__(self, finding: Finding, operation: Operation, sample: int) -> None:
        self.finding, self.operation, self._sample = finding, operation, sample
        self.factors: Factors = {}
        self._scalings: list[_Scaling] = []

    def look(self, A: Tensor, result: Any) -> None:
        """Measure the spectrum."""
        self.factors = self.operation.read(result)
        if self.operation.kind == "svd":
            self.finding.note_symmetry(is_positive(A, as_columns(self.factors)))
        w = self.factors.get("w")
        if w is None and self.operation.kind.endswith("function"):
            w = values_of(A, self._sample, self.operation.is_svd)
        if w is not None:
            self.finding.note_forward(measures.forward(w))

    def listen(self, A: Tensor, result: Any) -> None:
        """Register hooks that observe the cotangents of the result and the gradient of the matrix."""
        outputs = result if isinstance(result, tuple) else (result,)
        named = self.factors or {str(n): x for n, x in enumerate(outputs)}
        received: Factors = {}
        for name, x in named.items():
            if isinstance(x, Tensor) and x.requires_grad:
                x.register_hook(_keeper(received, name))
        kept = {name: x.detach() for name, x in self.factors.items()}

        def finish(gradient: Tensor | None) -> None:
            if gradient is not None:
                cotangents, scalings = dict(received), list(self._scalings)
                received.clear()
                self._scalings.clear()
                self.finding.note_backward(lambda: self._measured(kept, cotangents, scalings, gradient))

        A.register_hook(finish)

    def listen_scaled(self, vectors: Tensor, scaled: Tensor, rows: bool) -> None:
        """Register a hook on vectors scaled by f(λ), whose gradient shows what a composed function loses at ties."""
        if not transformed() and scaled.requires_grad and scaled.shape == vectors.shape:
            L = vectors.detach()
            scaled.register_hook(lambda g: self._scalings.append(_Scaling(L, g, rows)))

    def _measured(
        self, kept: Factors, cotangents: Factors, scalings: list[_Scaling], gradient: Tensor
    ) -> measures.Backward:
        cotangents = {name: g.detach() for name, g in cotangents.items()}
        factors = as_columns(kept) if "w" in kept else {}
        received = measures.Received(cotangents)
        if factors:
            w = factors["w"]
            received = measures.Received(as_columns({"w": torch.zeros_like(w), **cotangents}), _summed(scalings, w))
        setting = measures.Setting(self._sample, self.operation.ours, self.operation.is_svd, self.finding.loses)
        return measures.backward(factors, received, gradient.detach(), setting)


class _Scaling(NamedTuple):
    """Vectors, as columns or rows, and the cotangent of the vectors scaled by f(λ)."""

    vectors: Tensor
    cotangent: Tensor
    rows: bool

    def product(self) -> Tensor:
        """Lᴴ W̄ (…, d, d); data that were multiplied in are summed over."""
        L, g = (x.detach() if x.dim() > 1 else x.detach().unsqueeze(-1) for x in (self.vectors, self.cotangent))
        return g @ L.mH if self.rows else L.mH @ g


def _is_examined(operation: Operation, given: Any) -> bool:
    """True for tensors; eigsh also takes callables and other operators."""
    return isinstance(given, Tensor) or operation.name == "sg.eigsh"


def _matrix(given: Any) -> Tensor | None:
    """The tensor whose gradient is observed: the argument itself, or the values of a sparse matrix for eigsh."""
    if isinstance(given, tuple) and len(given) == 2:
        given = given[1]
    return given if isinstance(given, Tensor) else None


def _summed(scalings: list[_Scaling], w: Tensor) -> Tensor | None:
    """The sum (*, d, d) of what was noted, without products whose shape does not fit; None if there are none."""
    shape = (*w.shape, w.shape[-1])
    products = [scaling.product() for scaling in scalings]
    fitting = [x.sum_to_size(shape) for x in products if x.shape[x.dim() - len(shape) :] == shape]
    return torch.stack(fitting).sum(0) if fitting else None


def _keeper(received: Factors, name: str) -> Callable[[Tensor | None], None]:
    """A hook that keeps a cotangent; torch passes None for an output that the loss does not use."""

    def keep(g: Tensor | None) -> None:
        if g is not None:
            received[name] = g

    return keep
