"""Watches the spectral calls of a training step and their gradients, without changing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...dispatch.function import transformed
from . import hidden, measures
from .findings import Finding
from .lineage import Lineage, Trace
from .measures import Factors
from .operations import OPERATIONS, Operation, as_columns, eigenvalues, is_positive
from .places import calling_place
from .report import Report


class Watch(TorchFunctionMode):
    """The context that :func:`doctor` returns."""

    def __init__(self, sample: int, places: int) -> None:
        super().__init__()
        self.report = Report(places)
        self._sample = sample
        self._lineage = Lineage()

    def __enter__(self) -> Report:  # type: ignore[override]
        super().__enter__()
        return self.report

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        operation = OPERATIONS.get(func)
        if operation is not None and args and isinstance(args[0], Tensor) and kwargs.get("out") is None:
            result = self._call(operation, func, args, kwargs)
        else:
            if func in hidden.BACKWARDS and args and not transformed():
                hidden.listen(args[0], self.report)
            result = func(*args, **kwargs)
            if func in hidden.CONTAINERS and args and isinstance(args[0], Tensor) and not transformed():
                hidden.adopt(func, args[0], result, self.report)
        composed = self._lineage.follow(func, args, kwargs, result)
        if composed is not None:
            composed.source.finding.note_composed(composed)
        return result

    def _call(self, operation: Operation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        finding = self.report.at(calling_place(), operation)
        if finding is None:
            return func(*args, **kwargs)
        A = args[0]
        finding.calls += 1
        finding.shape, finding.dtype = tuple(A.shape), str(A.dtype).removeprefix("torch.")
        if transformed():
            self.report.unseen += 1
            return func(*args, **kwargs)
        watched = A.requires_grad and torch.is_grad_enabled()
        given = A[...] if watched else A  # an alias, so that its gradient is the one of this call alone
        try:
            result = func(given, *args[1:], **kwargs)
        except Exception as error:
            finding.note_failure(error, bad_input=not bool(A.detach().isfinite().all()))
            raise
        hidden.mark(result)
        call = _Call(finding, operation, self._sample)
        call.look(A, result)
        if watched:
            call.listen(given, result)
        self._trace(call)
        return result

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

    def look(self, A: Tensor, result: Any) -> None:
        """Measure the spectrum."""
        self.factors = self.operation.read(result)
        if self.operation.kind == "svd":
            self.finding.note_symmetry(is_positive(A, as_columns(self.factors)))
        w = self.factors.get("w")
        if w is None and self.operation.kind == "function":
            w = eigenvalues(A, self._sample)
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
                cotangents = dict(received)
                received.clear()
                self.finding.note_backward(lambda: self._measured(kept, cotangents, gradient))

        A.register_hook(finish)

    def _measured(self, kept: Factors, cotangents: Factors, gradient: Tensor) -> measures.Backward:
        cotangents = {name: g.detach() for name, g in cotangents.items()}
        factors = as_columns(kept) if self.operation.kind in ("eigh", "svd") else {}
        if factors:
            cotangents = as_columns({"w": torch.zeros_like(factors["w"]), **cotangents})
        return measures.backward(factors, cotangents, gradient.detach(), self._sample, self.operation.ours)


def _keeper(received: Factors, name: str) -> Callable[[Tensor | None], None]:
    """A hook that keeps a cotangent; torch passes None for an output that the loss does not use."""

    def keep(g: Tensor | None) -> None:
        if g is not None:
            received[name] = g

    return keep
