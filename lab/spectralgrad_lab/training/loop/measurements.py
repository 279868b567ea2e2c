"""Quantities of the papers' figures that a run measures on request, at the steps at which it records condition numbers.

Quantities of the matrices are in :func:`spectralgrad_lab.training.loop.spectra.measure`. ``smoothness`` is the
effective β-smoothness of the loss, with steps up to the current learning rate.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from torch import Tensor
from torch.nn import functional

from spectralgrad.nn import SpectralModule

from ..config.run_config import Config
from ..storage.run_files import RunFiles
from .conditioning import ConditionMonitor
from .failures import NUMERICAL
from .position import Tally
from .spectra import measure
from .step_times import StepTimer
from .steps import Stepper

_EVERY = 50  # steps, if condition numbers are not recorded


class Measurements:
    """Measures what ``config.record`` names, in the first process.

    Args:
        config: of the run.
        stepper: of the run; its network is measured.
        timer: of the steps; None if they are not timed.
        monitor: of the run, which does not count the passes of a measurement.
        batches: number of batches per epoch; there is at least one measurement per epoch.
        files: receives one line per layer and step, and the TensorBoard scalars.
    """

    def __init__(
        self,
        config: Config,
        stepper: Stepper,
        timer: StepTimer | None,
        monitor: ConditionMonitor,
        batches: int,
        files: RunFiles,
    ) -> None:
        self._wanted, self._every = config.recorded, min(config.monitor_every or _EVERY, batches)
        self._stepper, self._timer, self._monitor, self._files = stepper, timer, monitor, files
        self._armed = False
        self._found: dict[str, dict[str, float]] = {}
        if set(self._wanted) - {"smoothness"} and stepper.group.is_leader:
            for name, layer in stepper.components.spectral.items():
                layer.register_spectral_hook(self._look(name))

    def before(self, step: int, images: Tensor, labels: Tensor) -> None:
        """Called before a step: measure what takes passes of its own, and make the hooks see the step."""
        if not self._wanted or step % self._every:
            return
        if "smoothness" in self._wanted:
            self._found["loss"] = {"smoothness": self._smoothness(images, labels)}
            if self._timer is not None:
                self._timer.take()
        self._armed = True

    def after(self, tally: Tally) -> None:
        """Called after a step: add what it measured to the tally and to the files."""
        if self._timer is not None:
            tally.measure(self._timer.take())
        found, self._found, self._armed = self._found, {}, False
        if found:
            names = dict.fromkeys(name for values in found.values() for name in values)
            tally.measure({name: fmean(v[name] for v in found.values() if name in v) for name in names})
            self._files.measured(tally.step - 1, found)

    def _look(self, name: str) -> Callable[[SpectralModule, Tensor], None]:
        def see(layer: SpectralModule, matrices: Tensor) -> None:
            if self._armed:
                self._found[name] = measure(layer, matrices, self._wanted)

        return see

    def _smoothness(self, images: Tensor, labels: Tensor) -> float:
        stepper, device = self._stepper, self._stepper.group.device
        images, labels = images.to(device), labels.to(device)
        rate = float(stepper.components.optimizer.param_groups[0]["lr"])
        try:
            return self._monitor.smoothness(
                lambda: functional.cross_entropy(stepper.forward(stepper.components.net, images), labels), rate
            )
        except NUMERICAL as problem:
            stepper.watch.explain_error(problem)  # also forgets the layer in which the pass ended
            return float("inf")
