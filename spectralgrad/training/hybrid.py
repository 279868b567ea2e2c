"""Newton–Schulz first, an SVD method for the last stage: the hybrid protocol as an object that switches layers."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ..errors import MethodError, SpectralError
from ..nn.base import SpectralModule, spectral_layers
from ..rules import Method
from .milestones import LastDecay, epoch_of, last_decay, move


class HybridSwitch:
    r"""Train the spectral layers by Newton–Schulz and switch them to another method before the last decay.

    With w warm-up epochs and the last learning-rate decay at epoch D, the layers use ``first`` in the epochs before
    D − w, ``method`` in the warm-up from D − w to D − 1, still at the old rate, and ``method`` from D on, at the
    decayed one.

    Call :meth:`step` after ``scheduler.step()``. Which method is due depends on the epoch alone. To resume at any
    epoch load the switch's state, beside those of model, optimiser and scheduler, in any order; without it the layers
    start with ``first``. Nothing of the optimiser is touched.

    Args:
        model: every :class:`SpectralModule` in it is switched; those whose operation one of the two methods does not
            serve are left alone, with a warning.
        scheduler: a MultiStepLR, alone or inside SequentialLR or ChainedScheduler: its last milestone is D. Its steps
            are what is called epochs here.
        method: a name or :class:`Method` for the last stage.
        warmup_epochs: w. The paper: 1 for AlexNet (of 30 epochs), 2 for ResNet-50 (of 60).
        first: the method before it.
        decay_epoch: D, if there is no scheduler with milestones.
        postpone: switch at D and put the decay off to D + w instead. The paper can be read both ways; this one
            lengthens the first stage. It changes the scheduler's milestones.

    Attributes:
        switch_epoch: the first epoch of ``method``.
        decay_epoch: the epoch of the last decay.
        epoch: the epoch the layers are set for.
        layers: name → layer, those that are switched.

    Raises:
        SpectralError: no spectral layer, no milestones, or a warm-up longer than the stage.
        MethodError: no layer is served by both methods.

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
            raise SpectralError("HybridSwitch: expected either a scheduler or decay_epoch, and not both")
        if warmup_epochs < 0:
            raise SpectralError(f"HybridSwitch: expected warmup_epochs ≥ 0, got {warmup_epochs}")
        self.first, self.method, self.warmup_epochs = first, method, warmup_epochs
        self.layers = _switchable(model, first, method)
        self._scheduler = scheduler
        self._decay: LastDecay | None = None if scheduler is None else last_decay(scheduler)
        self.decay_epoch = self._decay.epoch if self._decay else int(decay_epoch or 0)
        self.switch_epoch = self.decay_epoch - (0 if postpone else warmup_epochs)
        if self.switch_epoch < 0:
            raise SpectralError(
                f"HybridSwitch: {warmup_epochs} warm-up epochs do not fit before the last decay at epoch "
                f"{self.decay_epoch}"
            )
        if postpone:
            self._move_decay(self.decay_epoch + warmup_epochs)
        self.epoch = -1
        self.step(0 if scheduler is None else None)

    @property
    def switched(self) -> bool:
        """Whether the layers use the method of the last stage."""
        return self.epoch >= self.switch_epoch

    def step(self, epoch: int | None = None) -> None:
        """Set the layers for an epoch: that of the scheduler, the one given, or, without either, the next."""
        self.epoch = self.due_epoch if epoch is None else epoch
        self._set()

    @property
    def due_epoch(self) -> int:
        """The epoch that :meth:`step` goes to: that of the scheduler, or the next."""
        return self.epoch + 1 if self._scheduler is None else epoch_of(self._scheduler)

    def state_dict(self) -> dict[str, Any]:
        """Epochs as plain numbers; the methods are said anew when the switch is built."""
        return {"epoch": self.epoch, "switch_epoch": self.switch_epoch, "decay_epoch": self.decay_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a run stopped; the layers are set at once, the scheduler's last milestone too."""
        missing = {"epoch", "switch_epoch", "decay_epoch"} - set(state)
        if missing:
            raise SpectralError(f"HybridSwitch: the state has no {', '.join(sorted(missing))}")
        self.switch_epoch = int(state["switch_epoch"])
        if self._scheduler is not None:
            self._decay = last_decay(self._scheduler)  # its own state may have been loaded in between
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
        for layer in self.layers.values():
            layer.method = self.method if self.switched else self.first

    def _move_decay(self, epoch: int) -> None:
        if self._decay is not None and epoch != self._decay.epoch:
            self._decay = move(self._decay, epoch)
        self.decay_epoch = epoch


def _switchable(model: nn.Module, *methods: str | Method) -> dict[str, SpectralModule]:
    """The spectral layers that both methods serve; a warning names the others."""
    spectral = spectral_layers(model, required_by="HybridSwitch")
    refused = {name: why for name, layer in spectral.items() if (why := _refusal(layer, methods))}
    if len(refused) == len(spectral):
        raise MethodError(f"HybridSwitch: no layer can be switched; {next(iter(refused.values()))}")
    if refused:
        listed = "; ".join(f"{name!r}: {why}" for name, why in refused.items())
        warnings.warn(f"HybridSwitch leaves {len(refused)} layers as they are. {listed}", stacklevel=3)
    return {name: layer for name, layer in spectral.items() if name not in refused}


def _refusal(layer: SpectralModule, methods: tuple[str | Method, ...]) -> str | None:
    """Why a layer does not take one of the methods; tried on the layer, which may be choosier than its operation."""
    before = layer.method
    try:
        for method in methods:
            layer.method = method  # type: ignore[assignment]
    except MethodError as problem:
        if "unknown method" in str(problem):
            raise
        return str(problem)
    finally:
        layer.method = before
    return None
