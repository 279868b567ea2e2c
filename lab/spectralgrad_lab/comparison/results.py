"""The results file, one line per run, and its summaries: success rate, error, time, condition number."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from spectralgrad.io.files import naming

from ..training.config.folder_names import FREE_FIELDS, label
from ..training.config.run_config import FIELDS, Config
from ..training.storage.records import Result

RESULTS = "results.jsonl"
GRID = ("method", "layer", "group_size", "seed")
_LONGEST = 1 << 24  # bytes per line; a run of 10,000 epochs has 3 MB
_SHOWN = 10  # number of damaged lines that a warning lists
# Fields that a comparison resets for batchnorm, or that have no effect on it.
_SPECTRAL = {"layer", "pooling", "nog", "olr", "weights", "ol_weight", "eps", "form"}


class ResultsFile:
    """A file with one result per line, as JSON.

    It stays readable if a process is killed at any moment: lines are written whole, and incomplete ones are skipped.

    Args:
        path: the file; it need not exist yet.

    Example:
        >>> import tempfile
        >>> file = ResultsFile(Path(tempfile.mkdtemp()) / "results.jsonl")
        >>> file.append(Result(Config(seed=3), "done"))
        >>> [result.config.seed for result in file.read()]
        [3]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def append(self, result: Result) -> None:
        """Append a result to the file and sync it to disk.

        Raises:
            OSError: the disk is full; the next result starts a new line.
        """
        line = result.to_json() + "\n"
        if self._torn():
            line = "\n" + line
        with naming(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                left = line.encode("utf-8")
                while left:  # a disk that is nearly full accepts a part first, and raises at the next call
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            finally:
                os.close(handle)

    def _torn(self) -> bool:
        """True if the last line has no newline, because a process was killed while writing it."""
        if not self.path.exists() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    def read(self) -> list[Result]:
        """All results; the last one if there are several for the same run.

        Lines that are not valid results are skipped with a warning that names the file and the lines.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path.exists():
            return []
        found: dict[str, Result] = {}
        damaged: dict[int, str] = {}
        for number, line in self._lines():
            try:
                result = Result.from_json(line)
            except ValueError as problem:
                damaged[number] = str(problem).splitlines()[0][:200]
            else:
                found[run_key(result.config)] = result
        if damaged:
            warnings.warn(f"{self.path}, {_listed(damaged)}", stacklevel=2)
        return list(found.values())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Non-empty lines, numbered from 1; a line that is too long is truncated and thus invalid."""
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST):
                number += 1
                rest = line
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(_LONGEST)
                if line.strip():
                    yield number, line


def _listed(damaged: dict[int, str]) -> str:
    """Which lines are skipped, and why the first one is.

    Example:
        >>> _listed({3: "nested too deeply"}), _listed({3: "no", 5: "no", 8: "no"})
        ('line 3 is damaged and skipped: nested too deeply', 'line 3 is damaged and skipped: no; so are lines 5, 8')
    """
    (first, why), *others = damaged.items()
    said = f"line {first} is damaged and skipped: {why}"
    shown = ", ".join(str(number) for number, _ in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return f"{said}; so {'is line' if len(others) == 1 else 'are lines'} {shown}{more}" if others else said


def run_key(config: Config) -> str:
    """A key that identifies a run: every value on which its results depend.

    Example:
        >>> run_key(Config(threads=2)) == run_key(Config()), run_key(Config(seed=1)) == run_key(Config())
        (True, False)
    """
    values = {name: value for name, value in config.to_dict().items() if name not in FREE_FIELDS}
    if config.depends_on_folder:
        values["data"] = config.data
    return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Summary:
    """The runs of one method at one group size.

    Attributes:
        label: the method, or ``batchnorm``.
        group_size: channels whitened together; None for all of them, or for no spectral layer.
        extra: other values that distinguish these runs, such as ``eps=0.0001``.
        results: the runs.
        show_size: True if the group size is part of the name, because there are several.

    Example:
        >>> from spectralgrad_lab.training.storage.records import Epoch, Failure
        >>> done = Result(Config(), "done", [Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0)])
        >>> failed = Result(Config(seed=1), "failed", failure=Failure(0, 0, "the gradient is not finite"))
        >>> summary = summarize([done, failed])[0]
        >>> summary.success, summary.mean, summary.best, summary.step_ms
        (50.0, 40.0, 40.0, 20.0)
    """

    label: str
    group_size: int | None
    extra: str
    results: tuple[Result, ...]
    show_size: bool = False

    @property
    def name(self) -> str:
        """Method, group size and whatever else distinguishes it from the other summaries."""
        size = f"d={self.group_size or 'all'}" if self.show_size and self.label != "batchnorm" else ""
        return " ".join(word for word in (self.label, size, self.extra) if word)

    @property
    def method(self) -> str:
        """The name without the group size."""
        return f"{self.label} {self.extra}".strip()

    @property
    def done(self) -> tuple[Result, ...]:
        """The finished runs."""
        return tuple(result for result in self.results if result.status == "done")

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.status == "failed")

    @property
    def success(self) -> float:
        """Share of finished runs in per cent."""
        return 100 * len(self.done) / len(self.results) if self.results else math.nan

    @property
    def errors(self) -> list[float]:
        """Test errors after the last epoch of the finished runs."""
        return [result.final_error for result in self.done]

    @property
    def mean(self) -> float:
        return fmean(self.errors) if self.errors else math.nan

    @property
    def sd(self) -> float:
        """Sample standard deviation; NaN for fewer than two runs, or if an error is not finite."""
        return stdev(self.errors) if len(self.errors) > 1 and math.isfinite(sum(self.errors)) else math.nan

    @property
    def best(self) -> float:
        return min(self.errors, default=math.nan)

    @property
    def top5(self) -> float:
        """Mean top-5 error after the last epoch of the finished runs; NaN if none is recorded."""
        return _mean(result.final_top5 for result in self.done)

    @property
    def best_top5(self) -> float:
        """Mean over the finished runs of their lowest top-5 error; NaN if none is recorded."""
        return _mean(result.best_top5 for result in self.done)

    def measured(self, name: str) -> float:
        """Median of a measured quantity over all epochs of all runs; NaN if it was not measured."""
        return _median(epoch.measured.get(name, math.nan) for result in self.results for epoch in result.epochs)

    @property
    def step_ms(self) -> float:
        """Median over all epochs of all runs."""
        return _median(epoch.step_ms for result in self.results for epoch in result.epochs)

    @property
    def condition(self) -> float:
        """Median over all epochs of all runs."""
        return _median(epoch.condition for result in self.results for epoch in result.epochs)


def summarize(results: Sequence[Result]) -> list[Summary]:
    """Group results by method and group size, in order of first appearance."""
    varied = _varied([result.config for result in results])
    groups: dict[tuple[str, int | None, str], list[Result]] = {}
    for result in results:
        config = result.config
        size = config.group_size if config.layer != "batchnorm" else None
        own = [name for name in varied if name not in _SPECTRAL or label(config) != "batchnorm"]
        extra = ", ".join(f"{name}={getattr(config, name)}" for name in own)
        groups.setdefault((label(config), size, extra), []).append(result)
    show_size = len({size for name, size, _ in groups if name != "batchnorm"}) > 1
    return [Summary(*names, tuple(found), show_size) for names, found in groups.items()]


def shared_settings(results: Sequence[Result]) -> dict[str, Any]:
    """The settings that all runs share, without those that a comparison varies and those that do not affect results."""
    configs = [result.config for result in results]
    left_out = {*GRID, *FREE_FIELDS, *_varied(configs)}
    return {name: configs[0].text(name) for name in FIELDS if name not in left_out} if configs else {}


def _varied(configs: list[Config]) -> list[str]:
    """Other fields that differ between runs, because one file holds the results of several comparisons."""
    shown = {"method", "group_size", "seed", "hybrid", *FREE_FIELDS}
    spectral = [config for config in configs if label(config) != "batchnorm"]
    counted = {name: spectral if name in _SPECTRAL else configs for name in FIELDS if name not in shown}
    return [name for name, found in counted.items() if len({getattr(c, name) for c in found}) > 1]


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan
