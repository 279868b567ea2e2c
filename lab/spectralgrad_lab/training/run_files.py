"""Files beside a run: its result, its log, its TensorBoard events. A resumed run repeats nothing in them."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_json, write_text

from .records import Epoch, Result

CONFIG, LOG, RESULT = "config.toml", "log.csv", "result.json"
_CURVES = (
    "lr", "train_loss", "train_error", "test_loss", "test_error", "test_top5", "images_per_second", "step_ms",
    "condition",
)  # fmt: skip


class Files:
    """The files of a run in its folder, or nothing without one.

    Args:
        folder: made if it is not there.
        result: what they tell about; it is read anew at every :meth:`write`.
        step: at which training step the run begins, or goes on.
    """

    def __init__(self, folder: Path | None, result: Result, step: int = 0) -> None:
        self._folder, self._result = folder, result
        self.writer: Any = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._begin(folder)
            if result.config.tensorboard:
                self.writer = _tensorboard(folder, step)

    def _begin(self, folder: Path) -> None:
        """A run that has no result has nothing."""
        write_text(folder / CONFIG, self._result.config.to_toml())
        try:
            self.write()
        except OSError:
            if not (folder / RESULT).exists():
                (folder / CONFIG).unlink()
            raise

    def write(self, step: int | None = None) -> None:
        """Result and log as they are now; the newest epoch to TensorBoard, if ``step`` says which was its last."""
        if self._folder is None:
            return
        write_json(self._folder / RESULT, self._result.to_dict())
        write_text(self._folder / LOG, _log(self._result.epochs))
        if self.writer is not None and step is not None:
            values = dataclasses.asdict(self._result.epochs[-1])
            for name in _CURVES:
                if values[name] is not None and math.isfinite(values[name]):
                    self.writer.add_scalar(name, values[name], step)
            self.flush()

    def flush(self) -> None:
        """Have what TensorBoard was told in its file: before a checkpoint, after which it is not told again."""
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        """Write a last time."""
        self.write()
        if self.writer is not None:
            self.writer.close()


def _log(epochs: list[Epoch]) -> str:
    """One row per epoch, counted from 1; a missing value is an empty cell."""
    text = io.StringIO(newline="")
    rows = csv.DictWriter(text, [field.name for field in dataclasses.fields(Epoch)])
    rows.writeheader()
    for epoch in epochs:
        values = {**dataclasses.asdict(epoch), "epoch": epoch.epoch + 1}
        rows.writerow({name: _cell(value) for name, value in values.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _tensorboard(folder: Path, step: int) -> Any:
    """A writer that discards what an interrupted run wrote after its checkpoint; None where it is not installed."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    before = any(folder.glob("events.out.tfevents.*"))
    return SummaryWriter(str(folder), purge_step=step if before or step else None)
