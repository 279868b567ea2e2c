"""The files of a run: result, log and TensorBoard events. A resumed run writes nothing twice."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_json, write_text

from ..config.settings import Settings
from .json_lines import StepLog
from .records import Epoch, Result
from .tensorboard_events import event_writer

CONFIG, LOG, RESULT, MEASUREMENTS = "config.toml", "log.csv", "result.json", "measurements.jsonl"
_CURVES = (
    "lr", "train_loss", "train_error", "test_loss", "test_error", "test_top5", "images_per_second", "step_ms",
    "condition",
)  # fmt: skip


class RunFiles:
    """Writes the files of a run; does nothing without a folder.

    Args:
        folder: created if it does not exist; None writes nothing.
        result: what to write; its current values are used at every :meth:`write`.
        step: the training step at which the run starts or resumes.
    """

    def __init__(self, folder: Path | None, result: Result, step: int = 0) -> None:
        self._folder, self._result = folder, result
        self.writer: Any = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            begin_files(folder, result.config, self.write)
            self._measurements = StepLog(folder / MEASUREMENTS, step)
            if result.config.tensorboard:
                self.writer = event_writer(folder, step)

    def write(self, step: int | None = None) -> None:
        """Write result and log; also send the last epoch to TensorBoard if its last ``step`` is given."""
        if self._folder is None:
            return
        write_json(self._folder / RESULT, self._result.to_dict())
        write_text(self._folder / LOG, _log(self._result.epochs))
        if self.writer is not None and step is not None:
            values = dataclasses.asdict(self._result.epochs[-1])
            values |= values["measured"]
            for name in (*_CURVES, *values["measured"]):
                if values[name] is not None and math.isfinite(values[name]):
                    self.writer.add_scalar(name, values[name], step)
            self.flush()

    def measured(self, step: int, found: Mapping[str, Mapping[str, float]]) -> None:
        """Write what a step measured: one line per layer, and TensorBoard scalars."""
        if self._folder is None:
            return
        self._measurements.append({"step": step, "layer": layer, **values} for layer, values in found.items())
        if self.writer is not None:
            for layer, values in found.items():
                for name, value in values.items():
                    self.writer.add_scalar(f"measured/{layer}/{name}", value, step)

    def flush(self) -> None:
        """Flush TensorBoard events to their file. Required before a checkpoint: a resumed run does not repeat them."""
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        """Write the final result and close the files."""
        self.write()
        if self.writer is not None:
            self.writer.close()


def begin_files(folder: Path, config: Settings, write: Callable[[], None]) -> None:
    """Write the first files of a run; if its result cannot be written, the configuration is removed too.

    Args:
        folder: of the run; it exists.
        config: of the run.
        write: writes the result.
    """
    write_text(folder / CONFIG, config.to_toml())
    try:
        write()
    except OSError:
        if not (folder / RESULT).exists():
            (folder / CONFIG).unlink()
        raise


def _log(epochs: list[Epoch]) -> str:
    """CSV with one row per epoch, counted from 1; missing values are empty cells."""
    text = io.StringIO(newline="")
    fields = [field.name for field in dataclasses.fields(Epoch) if field.name != "measured"]
    rows = csv.DictWriter(text, [*fields, *dict.fromkeys(name for epoch in epochs for name in epoch.measured)])
    rows.writeheader()
    for epoch in epochs:
        values = {**{name: getattr(epoch, name) for name in fields}, **epoch.measured, "epoch": epoch.epoch + 1}
        rows.writerow({name: _cell(value) for name, value in values.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
