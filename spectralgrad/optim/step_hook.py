"""The base class of NOG and OLR: when in a step they act, in which order, and how they are removed."""

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

__all__ = ["ConditioningWarning"]

_attached: WeakKeyDictionary[Optimizer, list[Treatment]] = WeakKeyDictionary()


class ConditioningWarning(UserWarning):
    """A combination of treatments is known to give worse results; the message explains why.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", ConditioningWarning)    # raise an error instead
        >>> warnings.simplefilter("default", ConditioningWarning)
    """


class Treatment:
    """Base class: acts on chosen parameters at every step of an optimiser, through its step hooks.

    The hooks run inside ``optimizer.step()``: after the backward pass, DDP's reduction, gradient accumulation, clipping
    and the unscaling of a GradScaler. They do not run if the scaler skips the step. If the step has a closure, they run
    after each evaluation of it. The treatments of an optimiser act in increasing ``order``, regardless of the order in
    which they were attached.

    Args:
        optimizer: any torch optimiser except LBFGS.
        parameters: see :func:`targets`.

    Raises:
        SpectralError: a parameter is not in the optimiser or is already treated, or the optimiser is not supported.
    """

    order: ClassVar[int] = 0

    def __init__(self, optimizer: Optimizer, parameters: Chosen) -> None:
        name = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise SpectralError(f"{name}: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
        if isinstance(optimizer, LBFGS):
            raise SpectralError(
                f"{name}: expected a first-order optimiser, got LBFGS, which estimates curvature from differences of "
                "gradients; a treatment would falsify them"
            )
        self.targets: list[Target] = targets(parameters, optimizer, name)
        self._refuse_twice(optimizer)
        self._optimizer = ref(optimizer)
        self._handles: list[RemovableHandle] = []
        _attached.setdefault(optimizer, []).append(self)
        _arrange(optimizer)

    def before(self, optimizer: Optimizer) -> None:
        """Called before the parameters are updated, when the gradients of the step are final."""

    def after(self, optimizer: Optimizer) -> None:
        """Called after the parameters have been updated."""

    def remove(self) -> None:
        """Remove the hooks from the optimiser. Calling it again has no effect."""
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
                    "in this optimiser; call remove() on the other treatment first"
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
        # With a closure the gradients do not exist yet, so the closure is wrapped. args[0] is the optimiser itself.
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
    """The treatments attached to an optimiser, in the order in which they act."""
    return tuple(sorted(_attached.get(optimizer, ()), key=lambda treatment: treatment.order))


def _arrange(optimizer: Optimizer) -> None:
    """Register the hooks of all treatments again, in order; other hooks of the optimiser are not affected."""
    for treatment in treatments(optimizer):
        treatment._detach()
        treatment._attach(optimizer)
