"""The settings that all runs over numbered steps have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .settings import Settings, check_seed, setting

TRAINING, RUNNING = "training (Adam)", "execution"


@dataclass(frozen=True)
class StepSettings(Settings):
    """Base class of the configurations of :func:`~spectralgrad_lab.training.loop.step_loop.run_steps`.

    Subclasses add their own fields, and may replace the defaults of these.

    Example:
        >>> StepSettings(steps=100).log_every
        10
    """

    changeable: ClassVar[frozenset[str]] = frozenset(
        {"steps", "device", "threads", "checkpoint_minutes", "tensorboard"}
    )

    steps: int = setting(10_000, TRAINING, "training steps", minimum=1)
    batch_size: int = setting(1, TRAINING, "images per step, over all processes together", minimum=1)
    lr: float = setting(1e-4, TRAINING, "learning rate", minimum=0)
    seed: int = setting(0, TRAINING, "seed of initial weights and of all random choices, below 2³²", minimum=0)
    device: str = setting("auto", RUNNING, "auto, cpu, cuda or cuda:1")
    threads: int | None = setting(None, RUNNING, "threads of torch (default: chosen by torch)", minimum=1)
    checkpoint_minutes: float = setting(
        10.0, RUNNING, "minutes between checkpoints; one is always saved at the end", minimum=0
    )
    log_every: int = setting(10, RUNNING, "log mean losses every N steps", minimum=1)
    tensorboard: bool = setting(True, RUNNING, "write TensorBoard events if TensorBoard is installed")

    def _check_together(self) -> None:
        check_seed(self.seed)
