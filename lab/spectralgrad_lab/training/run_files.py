"""The files of a run: result, log and TensorBoard events. A resumed run writes nothing twice."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectralgrad.io.files import write_json, write_text

from .records import Epoch, Result, json_ready

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
            self._begin(folder)
            _forget_measurements(folder / MEASUREMENTS, step)
            if result.config.tensorboard:
                self.writer = _tensorboard(folder, step)

    def _begin(self, folder: Path) -> None:
        """Write the first files; if the result cannot be written, the configuration is removed too."""
        write_text(folder / CONFIG, self._result.config.to_toml())
        try:
            self.write()
        except OSError:
            if not (folder / RESULT).exists():
                (folder / CONFIG).unlink()
            raise

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
        rows = [json_ready({"step": step, "layer": layer, **values}) for layer, values in found.items()]
        with (self._folder / MEASUREMENTS).open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
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


def _forget_measurements(path: Path, step: int) -> None:
    """Remove the measurements that a resumed run will make again, and a line that was not written to its end."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text("utf-8").splitlines(keepends=True):
        try:
            if int(json.loads(line)["step"]) < step and line.endswith("\n"):
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue
    write_text(path, "".join(kept))


def _tensorboard(folder: Path, step: int) -> Any:
    """A TensorBoard writer that discards events written after the checkpoint; None if TensorBoard is missing."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    before = any(folder.glob("events.out.tfevents.*"))
    return SummaryWriter(str(folder), purge_step=step if before or step else None)
