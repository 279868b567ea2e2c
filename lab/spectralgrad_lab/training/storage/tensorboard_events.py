"""The TensorBoard writer of a run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any


def event_writer(folder: Path, step: int) -> Any:
    """A TensorBoard writer that discards events written after the checkpoint; None if TensorBoard is missing.

    Args:
        folder: of the run.
        step: at which the run starts or resumes.
    """
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    before = any(folder.glob("events.out.tfevents.*"))
    return SummaryWriter(str(folder), purge_step=step if before or step else None)
