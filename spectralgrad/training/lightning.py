"""The hybrid protocol as a Lightning callback. Lightning is needed to use this module, but not to import it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import SpectralError
from ..rules import Method
from .hybrid import HybridSwitch


def _callback() -> Any:
    """Lightning's base class, from either package name; None if neither is installed."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    return None


Callback: Any = _callback()
if TYPE_CHECKING:
    _Base = object
else:
    _Base = object if Callback is None else Callback


class HybridSwitchCallback(_Base):
    """Drive a :class:`HybridSwitch` from a Lightning trainer.

    Uses the first scheduler of the module, unless ``decay_epoch`` is given. Epochs are steps of this scheduler: if
    Lightning steps it after every batch (``"interval": "step"``), ``warmup_epochs`` counts batches as well. The state
    is saved in Lightning's checkpoints.

    Args:
        method, warmup_epochs, first, decay_epoch, postpone: as in :class:`HybridSwitch`.

    Raises:
        SpectralError: Lightning is not installed, or training starts without a scheduler and without ``decay_epoch``.

    Example:
        >>> import pytest
        >>> _ = pytest.importorskip("lightning")
        >>> HybridSwitchCallback(decay_epoch=20, warmup_epochs=2).options["warmup_epochs"]
        2

    Reference: Song, Sebe and Wang, ICCV 2021, section 3.4.
    """

    def __init__(
        self,
        *,
        method: str | Method = "svd-pade",
        warmup_epochs: int = 1,
        first: str | Method = "newton-schulz",
        decay_epoch: int | None = None,
        postpone: bool = False,
    ) -> None:
        if Callback is None:
            raise SpectralError("HybridSwitchCallback needs Lightning: pip install lightning")
        super().__init__()
        self.options: dict[str, Any] = {
            "method": method,
            "warmup_epochs": warmup_epochs,
            "first": first,
            "decay_epoch": decay_epoch,
            "postpone": postpone,
        }
        self.switch: HybridSwitch | None = None
        self._state: dict[str, Any] | None = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Create the switch. Not earlier, because schedulers and a restored checkpoint are available only now."""
        scheduler = None
        if self.options["decay_epoch"] is None:
            configured = trainer.lr_scheduler_configs
            if not configured:
                raise SpectralError(
                    "HybridSwitchCallback: expected a module with a learning-rate scheduler, got none; pass decay_epoch"
                )
            scheduler = configured[0].scheduler
        restored, self._state = self._state, None
        # A restored scheduler already has the postponed milestone.
        options = {**self.options, "postpone": self.options["postpone"] and restored is None}
        self.switch = HybridSwitch(module, scheduler, **options)
        if restored is not None:
            self.switch.load_state_dict(restored)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Set the layers for the epoch."""
        self._follow(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """Set the layers again, because a scheduler may be stepped within an epoch."""
        self._follow(trainer.current_epoch)

    def _follow(self, epoch: int) -> None:
        if self.switch is not None:
            due = epoch if self.options["decay_epoch"] is not None else self.switch.due_epoch
            if due != self.switch.epoch:
                self.switch.step(due)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.switch is None else self.switch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = dict(state) or None
