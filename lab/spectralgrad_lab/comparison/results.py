"""The results file, a row a run, and what it comes to: success rate, error, time, condition number."""

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

from ..training.config import FIELDS, Config
from ..training.folder_names import FREE_FIELDS, label
from ..training.records import Result

RESULTS = "results.jsonl"
GRID = ("method", "layer", "group_size", "seed")
_LONGEST = 1 << 24  # bytes of a row; one of 10,000 epochs has 3 MB
_SHOWN = 10  # damaged lines that a warning lists
_SPECTRAL = {"layer", "pooling", "nog", "olr", "weights"}  # a comparison's batch normalisation has none of these


class ResultsFile:
    """Results in a file of JSON lines. It survives a kill at any moment: a line is written at once, and read if whole.

    Args:
        path: the file; it need not be there yet.

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
        """Add a row: one write to the end of the file, then onto the disk.

        Raises:
            OSError: there is no room for all of it; the next row begins a new line.
        """
        line = result.to_json() + "\n"
        if self._torn():
            line = "\n" + line
        with naming(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                left = line.encode("utf-8")
                while left:  # a disk that gets full takes a part first, and says why the next time
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            finally:
                os.close(handle)

    def _torn(self) -> bool:
        """Whether the last line has no end: somebody was killed while writing it."""
        if not self.path.exists() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    def read(self) -> list[Result]:
        """All rows, the last of several for the same run.

        Lines that hold no result are left out with a warning that names the file and the lines.

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
                found[key(result.config)] = result
        if damaged:
            warnings.warn(f"{self.path}, {_listed(damaged)}", stacklevel=2)
        return list(found.values())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Non-empty lines, numbered from 1; a line that is too long is cut, and so is not a valid result."""
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
    """Which lines are left out, and why the first is.

    Example:
        >>> _listed({3: "nested too deeply"}), _listed({3: "no", 5: "no", 8: "no"})
        ('line 3 is damaged and left out: nested too deeply', 'line 3 is damaged and left out: no; so are lines 5, 8')
    """
    (first, why), *others = damaged.items()
    said = f"line {first} is damaged and left out: {why}"
    shown = ", ".join(str(number) for number, _ in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return f"{said}; so {'is line' if len(others) == 1 else 'are lines'} {shown}{more}" if others else said


def key(config: Config) -> str:
    """What makes a run the same run: every value that a number of it depends on.

    Example:
        >>> key(Config(threads=2)) == key(Config()), key(Config(seed=1)) == key(Config())
        (True, False)
    """
    values = {name: value for name, value in config.to_dict().items() if name not in FREE_FIELDS}
    if config.located:
        values["data"] = config.data
    return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Summary:
    """The runs of one method at one group size.

    Attributes:
        label: the method, or ``batchnorm``.
        group_size: channels whitened together; None for all of them, or for no spectral layer.
        extra: what else tells these runs from others, such as ``eps=0.0001``.
        results: the runs.
        sized: whether the group size is part of the name, since others differ in it.

    Example:
        >>> from spectralgrad_lab.training.records import Epoch, Failure
        >>> done = Result(Config(), "done", [Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0)])
        >>> failed = Result(Config(seed=1), "failed", failure=Failure(0, 0, "the gradient is not finite"))
        >>> summary = summarise([done, failed])[0]
        >>> summary.success, summary.mean, summary.least, summary.step_ms
        (50.0, 40.0, 40.0, 20.0)
    """

    label: str
    group_size: int | None
    extra: str
    results: tuple[Result, ...]
    sized: bool = False

    @property
    def name(self) -> str:
        """Method, group size and what else is needed to tell it from the others."""
        size = f"d={self.group_size or 'all'}" if self.sized and self.label != "batchnorm" else ""
        return " ".join(word for word in (self.label, size, self.extra) if word)

    @property
    def method(self) -> str:
        """The name without the group size."""
        return f"{self.label} {self.extra}".strip()

    @property
    def done(self) -> tuple[Result, ...]:
        """The runs that came to their end."""
        return tuple(result for result in self.results if result.status == "done")

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.status == "failed")

    @property
    def success(self) -> float:
        """In per cent."""
        return 100 * len(self.done) / len(self.results) if self.results else math.nan

    @property
    def errors(self) -> list[float]:
        """Test errors after the last epoch, of the runs that came so far."""
        return [result.final_error for result in self.done]

    @property
    def mean(self) -> float:
        return fmean(self.errors) if self.errors else math.nan

    @property
    def sd(self) -> float:
        """Sample standard deviation; NaN below two runs, or if an error is not finite."""
        return stdev(self.errors) if len(self.errors) > 1 and math.isfinite(sum(self.errors)) else math.nan

    @property
    def least(self) -> float:
        return min(self.errors, default=math.nan)

    @property
    def step_ms(self) -> float:
        """Median over all epochs of all runs."""
        return _median(epoch.step_ms for result in self.results for epoch in result.epochs)

    @property
    def condition(self) -> float:
        """Median over all epochs of all runs."""
        return _median(epoch.condition for result in self.results for epoch in result.epochs)


def summarise(results: Sequence[Result]) -> list[Summary]:
    """The results by method and group size, in the order in which they are first met."""
    varied = _varied([result.config for result in results])
    groups: dict[tuple[str, int | None, str], list[Result]] = {}
    for result in results:
        config = result.config
        size = config.group_size if config.layer != "batchnorm" else None
        own = [name for name in varied if name not in _SPECTRAL or label(config) != "batchnorm"]
        extra = ", ".join(f"{name}={getattr(config, name)}" for name in own)
        groups.setdefault((label(config), size, extra), []).append(result)
    sized = len({size for name, size, _ in groups if name != "batchnorm"}) > 1
    return [Summary(*names, tuple(found), sized) for names, found in groups.items()]


def common(results: Sequence[Result]) -> dict[str, Any]:
    """The values that all runs share, without those a comparison varies and those no number depends on."""
    configs = [result.config for result in results]
    left_out = {*GRID, *FREE_FIELDS, *_varied(configs)}
    return {name: configs[0].text(name) for name in FIELDS if name not in left_out} if configs else {}


def _varied(configs: list[Config]) -> list[str]:
    """Fields that differ though no comparison by itself makes them: two comparisons are in one file."""
    told = {"method", "group_size", "seed", "hybrid", *FREE_FIELDS}
    spectral = [config for config in configs if label(config) != "batchnorm"]
    counted = {name: spectral if name in _SPECTRAL else configs for name in FIELDS if name not in told}
    return [name for name, found in counted.items() if len({getattr(c, name) for c in found}) > 1]


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan
