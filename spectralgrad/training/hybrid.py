"""The hybrid protocol: train with Newton–Schulz first, then switch the layers to an SVD method for the last stage."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ..dispatch.arguments import check_count, checked
from ..errors import MethodError, SpectralError
from ..nn.base import SpectralModule, spectral_layers
from ..rules import Method, named
from .milestones import LastDecay, epoch_of, last_decay, move

__all__ = ["HybridSwitch"]

_LOG = logging.getLogger(__name__)


class HybridSwitch:
    r"""Train spectral layers with Newton–Schulz, and switch them to another method before the last decay.

    Let w be the number of warm-up epochs and D the epoch of the last learning-rate decay. The layers use ``first``
    before epoch D − w, ``method`` in the warm-up epochs D − w to D − 1 (still at the old rate), and ``method`` from
    epoch D on (at the decayed rate).

    Making a switch already sets the method of every layer: to ``first``, whatever method the layer was made with, or to
    ``method`` if the scheduler is at a later epoch. Every change of a method is logged at level INFO by the logger
    ``spectralgrad.training.hybrid``, with the layer's name and both methods.

    Call :meth:`step` after ``scheduler.step()``. The method depends only on the epoch. To resume training, load the
    state of the switch, the model, the optimiser and the scheduler, in any order; without it, the layers start with
    ``first``. The optimiser is not modified.

    Args:
        model: every :class:`SpectralModule` in it is switched, except those whose operation is not available in one of
            the two methods; these are left unchanged, with a warning.
        scheduler: a MultiStepLR, alone or inside SequentialLR or ChainedScheduler; D is its last milestone. An epoch
            is a step of this scheduler.
        method: name or :class:`Method` for the last stage.
        warmup_epochs: w. The paper uses 1 of 30 epochs for AlexNet and 2 of 60 for ResNet-50.
        first: name or :class:`Method` for the epochs before.
        decay_epoch: D, instead of a scheduler with milestones.
        postpone: switch at epoch D and postpone the decay to D + w, which lengthens the first stage. The paper can be
            read both ways. This changes the scheduler's milestones.

    Attributes:
        switch_epoch: the first epoch with ``method``.
        decay_epoch: the epoch of the last decay.
        epoch: the epoch for which the layers are set.
        layers: name → layer, for the layers that are switched.

    Raises:
        SpectralError: the model has no spectral layer, the scheduler has no milestones, not exactly one of
            ``scheduler`` and ``decay_epoch`` is given, or the warm-up does not fit before the decay.
        MethodError: a method is unknown, or no layer supports both methods.

    Example:
        >>> from spectralgrad.nn import SpectralModule, spectral_layers
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), SpectralModule())
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
        >>> switch = HybridSwitch(model, scheduler, method="svd-pade", warmup_epochs=1)
        >>> for epoch in range(6):
        ...     optimizer.step()                             # an epoch of training
        ...     print(epoch, model[1].method.name, round(scheduler.get_last_lr()[0], 3))
        ...     scheduler.step()
        ...     switch.step()
        0 newton-schulz 0.1
        1 newton-schulz 0.1
        2 newton-schulz 0.01
        3 svd-pade 0.01
        4 svd-pade 0.001
        5 svd-pade 0.001

    Reference: Song, Sebe and Wang, ICCV 2021, section 3.4.
    """

    first: str | Method
    method: str | Method
    warmup_epochs: int
    layers: dict[str, SpectralModule]
    decay_epoch: int
    switch_epoch: int
    epoch: int

    @checked
    def __init__(
        self,
        model: nn.Module,
        scheduler: LRScheduler | None = None,
        *,
        method: str | Method = "svd-pade",
        warmup_epochs: int = 1,
        first: str | Method = "newton-schulz",
        decay_epoch: int | None = None,
        postpone: bool = False,
    ) -> None:
        if (scheduler is None) == (decay_epoch is None):
            got = "neither" if scheduler is None else "both"
            raise SpectralError(f"HybridSwitch: expected exactly one of scheduler and decay_epoch, got {got}")
        check_count(warmup_epochs, "warmup_epochs", "HybridSwitch", 0)
        check_count(decay_epoch, "decay_epoch", "HybridSwitch", 0)
        for argument, given in (("first", first), ("method", method)):
            _check_known(given, argument)
        self.first, self.method, self.warmup_epochs = first, method, warmup_epochs
        self.layers = _switchable(model, first, method)
        self._scheduler = scheduler
        self._decay: LastDecay | None = None if scheduler is None else last_decay(scheduler)
        self.decay_epoch = self._decay.epoch if self._decay else int(decay_epoch or 0)
        self.switch_epoch = self.decay_epoch - (0 if postpone else warmup_epochs)
        if self.switch_epoch < 0:
            raise SpectralError(
                f"HybridSwitch: expected warmup_epochs ≤ {self.decay_epoch}, the decay_epoch, got {warmup_epochs}"
            )
        if postpone:
            self._move_decay(self.decay_epoch + warmup_epochs)
        self.epoch = -1
        self.step()

    @property
    def switched(self) -> bool:
        """True if the layers use the method of the last stage."""
        return self.epoch >= self.switch_epoch

    @checked
    def step(self, epoch: int | None = None) -> None:
        """Set the layers for an epoch.

        Args:
            epoch: the epoch (default: the scheduler's; without a scheduler, the next one).
        """
        self.epoch = self.due_epoch if epoch is None else epoch
        self._set()

    @property
    def due_epoch(self) -> int:
        """The epoch that :meth:`step` sets by default: the scheduler's; without a scheduler, the next one."""
        return self.epoch + 1 if self._scheduler is None else epoch_of(self._scheduler)

    def state_dict(self) -> dict[str, Any]:
        """The epochs as plain numbers. The methods are not included; pass them again to the constructor."""
        return {"epoch": self.epoch, "switch_epoch": self.switch_epoch, "decay_epoch": self.decay_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; sets the layers and the scheduler's last milestone immediately."""
        missing = {"epoch", "switch_epoch", "decay_epoch"} - set(state)
        if missing:
            raise SpectralError(
                f"HybridSwitch: expected a state from HybridSwitch.state_dict(), got one without "
                f"{', '.join(sorted(missing))}"
            )
        self.switch_epoch = int(state["switch_epoch"])
        if self._scheduler is not None:
            self._decay = last_decay(self._scheduler)  # its milestones may have changed: its state may have been loaded
            self.decay_epoch = self._decay.epoch
        self._move_decay(int(state["decay_epoch"]))
        self.epoch = int(state["epoch"])
        self._set()

    def __repr__(self) -> str:
        name = str(self.layers[next(iter(self.layers))].method)
        return (
            f"HybridSwitch(epoch {self.epoch}, {len(self.layers)} layers by {name}; "
            f"switch at {self.switch_epoch}, last decay at {self.decay_epoch})"
        )

    def _set(self) -> None:
        changed = []
        for name, layer in self.layers.items():
            before = str(layer.method)
            layer.method = self.method if self.switched else self.first  # type: ignore[assignment]
            if str(layer.method) != before:
                changed.append(f"{name or type(layer).__name__}: {before} → {layer.method}")
        if changed:
            _LOG.info("HybridSwitch sets the method of layers for epoch %d: %s", self.epoch, "; ".join(changed))

    def _move_decay(self, epoch: int) -> None:
        if self._decay is not None and epoch != self._decay.epoch:
            self._decay = move(self._decay, epoch)
        self.decay_epoch = epoch


def _check_known(method: str | Method, argument: str) -> None:
    """Raise :class:`MethodError` for a misspelt name, which is no reason to skip a layer."""
    try:
        if isinstance(method, str):
            named(method)
    except MethodError as problem:
        raise MethodError(f"HybridSwitch: {argument}: {problem}") from None


def _switchable(model: nn.Module, *methods: str | Method) -> dict[str, SpectralModule]:
    """The spectral layers that support both methods; a warning names the others."""
    spectral = spectral_layers(model, required_by="HybridSwitch")
    refused = {name: why for name, layer in spectral.items() if (why := _refusal(layer, methods))}
    if len(refused) == len(spectral):
        raise MethodError(f"HybridSwitch: no layer can be switched; {next(iter(refused.values()))}")
    if refused:
        listed = "; ".join(f"{name!r}: {why}" for name, why in refused.items())
        warnings.warn(f"HybridSwitch leaves {len(refused)} layers unchanged. {listed}", stacklevel=3)
    return {name: layer for name, layer in spectral.items() if name not in refused}


def _refusal(layer: SpectralModule, methods: tuple[str | Method, ...]) -> str | None:
    """Why a layer does not accept one of the methods, or None.

    The methods are assigned to the layer, because a layer may accept fewer methods than its operation does.
    """
    before = layer.method
    try:
        for method in methods:
            layer.method = method  # type: ignore[assignment]
    except MethodError as problem:
        return str(problem)
    finally:
        layer.method = before
    return None
