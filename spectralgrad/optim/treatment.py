"""What NOG and OLR share: when in a step they act, in which order, and how they are taken off again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, ref

import torch
from torch.optim import LBFGS, Optimizer
from torch.utils.hooks import RemovableHandle

from ..errors import SpectralError
from .parameters import Chosen, Target, targets

_attached: WeakKeyDictionary[Optimizer, list[Treatment]] = WeakKeyDictionary()


class ConditioningWarning(UserWarning):
    """Two treatments of one parameter work against each other; the message says why.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", ConditioningWarning)    # to be stopped instead of told
        >>> warnings.simplefilter("default", ConditioningWarning)
    """


class Treatment:
    """Something done to chosen parameters at every step of an optimiser, by its step hooks.

    The hooks run inside ``optimizer.step()``: after the backward pass, the reduction of DDP, accumulation, clipping
    and the unscaling of a GradScaler, and not at all when the scaler skips the step. If the step is given a closure,
    they run after each evaluation of it. Treatments of one optimiser act in the order of ``order``, however they
    were attached.
    """

    order: ClassVar[int] = 0

    def __init__(self, optimizer: Optimizer, parameters: Chosen) -> None:
        name = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise SpectralError(f"{name}: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
        if isinstance(optimizer, LBFGS):
            raise SpectralError(
                f"{name}: LBFGS builds its curvature from differences of gradients, which a treated gradient or a "
                "shortened step would falsify; use a first-order optimiser"
            )
        self.targets: list[Target] = targets(parameters, optimizer, name)
        self._refuse_twice(optimizer)
        self._optimizer = ref(optimizer)
        self._handles: list[RemovableHandle] = []
        _attached.setdefault(optimizer, []).append(self)
        _arrange(optimizer)

    def before(self, optimizer: Optimizer) -> None:
        """Called when the gradients of the step are there."""

    def after(self, optimizer: Optimizer) -> None:
        """Called when the parameters have been updated."""

    def remove(self) -> None:
        """Take the treatment off; the optimiser is then as it was. Calling it again does nothing."""
        self._detach()
        optimizer = self._optimizer()
        others = _attached.get(optimizer, []) if optimizer is not None else []
        if self in others:
            others.remove(self)

    def _refuse_twice(self, optimizer: Optimizer) -> None:
        same = [t for t in treatments(optimizer) if isinstance(t, type(self))]
        known = {id(target.parameter) for t in same for target in t.targets}
        for target in self.targets:
            if id(target.parameter) in known:
                raise SpectralError(
                    f"{type(self).__name__}: the parameter of shape {tuple(target.parameter.shape)} is already treated "
                    "at this optimiser; remove() the other one first"
                )

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _attach(self, optimizer: Optimizer) -> None:
        self._handles = [
            optimizer.register_step_pre_hook(self._pre),
            optimizer.register_step_post_hook(self._post),
        ]

    def _pre(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._then(kwargs["closure"], optimizer)}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._then(args[1], optimizer), *args[2:]), kwargs
        with torch.no_grad():
            self.before(optimizer)
        return None

    def _then(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        @functools.wraps(closure)
        def treated() -> Any:
            loss = closure()
            with torch.no_grad():
                self.before(optimizer)
            return loss

        return treated

    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            self.after(optimizer)


def treatments(optimizer: Optimizer) -> tuple[Treatment, ...]:
    """What is attached to an optimiser, in the order in which it acts."""
    return tuple(sorted(_attached.get(optimizer, ()), key=lambda treatment: treatment.order))


def _arrange(optimizer: Optimizer) -> None:
    """Register the hooks anew in their order; hooks of others stay where they are."""
    for treatment in treatments(optimizer):
        treatment._detach()
        treatment._attach(optimizer)
