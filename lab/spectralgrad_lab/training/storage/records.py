"""The records of a run: its epochs, its failure, its result. A result is one line of JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from spectralgrad import __version__

from ... import untrusted_json
from ...import_by_name import from_file
from ..config.method_names import as_recorded
from ..config.run_config import FIELDS, METHOD_FIELDS, Config

NAN = math.nan
Status = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training images and the test after it. Errors are percentages.

    Attributes:
        epoch: number of the epoch, counted from 0 in stored results and from 1 in everything that is shown.
        lr: learning rate of the body of the network.
        train_loss: mean over the training images, during the epoch.
        train_error: during the epoch.
        test_loss: mean over the test images, after the epoch.
        test_error: after the epoch.
        seconds: time of training and test.
        images_per_second: training speed, including data loading.
        step_ms: median time of a training step, without data loading.
        condition: largest condition number among the spectral layers, median over the records of the epoch; NaN if
            there is none.
        rank: smallest numerical rank recorded.
        method: of the spectral layers.
        test_top5: share of test images whose class is not among the five best; None for ten classes or fewer.
        measured: what the configuration asks for with ``time_layers`` and ``record``: medians over the epoch, or the
            worst value for ``ties`` and ``smallest_gap``.

    Example:
        >>> Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0).test_error
        40.0
    """

    epoch: int
    lr: float
    train_loss: float
    train_error: float
    test_loss: float
    test_error: float
    seconds: float
    images_per_second: float
    step_ms: float
    condition: float = NAN
    rank: int = 0
    method: str = ""
    test_top5: float | None = None
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why a run failed.

    Attributes:
        step: training steps before the one that failed.
        epoch: in which it failed, from 0; None for a run without epochs.
        reason: a phrase such as "the gradient is not finite".
        layer: name of the layer that caused it, if known.
        spectrum: ascending eigenvalues of the matrix that the layer decomposed; empty if unknown.

    Example:
        >>> print(Failure(12, 0, "the gradient is not finite", "norm1", (0.01, 0.01, 4.0)))
        step 12 (epoch 1): the gradient is not finite; layer 'norm1', 3 eigenvalues from 0.01 to 4, smallest gap 0
    """

    step: int
    epoch: int | None
    reason: str
    layer: str | None = None
    spectrum: tuple[float, ...] = ()

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f" (epoch {self.epoch + 1})"
        said = f"step {self.step}{epoch}: {self.reason}"
        if self.layer is not None:
            said += f"; layer {self.layer!r}"
        if self.spectrum:
            low, high = self.spectrum[0], self.spectrum[-1]
            said += f", {len(self.spectrum)} eigenvalues from {low:.3g} to {high:.3g}"
        if len(self.spectrum) > 1:
            gap = min(b - a for a, b in zip(self.spectrum, self.spectrum[1:], strict=False))
            said += f", smallest gap {gap:.2g}"
        return said

    @classmethod
    def from_dict(cls, values: Any, place: str = "failure") -> Failure:
        """Read plain values as returned by :meth:`Result.to_dict`; ``place`` is named in error messages."""
        return cls(**_FAILURE(values, place))


def versions() -> dict[str, str]:
    """The versions of the software in use.

    Example:
        >>> sorted(versions())
        ['platform', 'python', 'spectralgrad', 'torch']
    """
    return {
        "spectralgrad": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


@dataclass
class Result:
    """The result of a run, finished or not.

    Attributes:
        config: of the run.
        status: ``"running"`` (or stopped), ``"done"`` or ``"failed"``.
        epochs: the finished epochs.
        failure: why it failed, or None.
        versions: of the software.
        started: date and time in UTC.
        seconds: total time, over all interruptions.
        solver_failures: matrices that the eigenvalue solver did not decompose at once; nearly all of them were
            decomposed by a fallback. The "failure times" of ECCV 2022, Table 5.

    Example:
        >>> result = Result(Config(), "done", [Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0)])
        >>> result.best_error, Result.from_json(result.to_json()) == result
        (40.0, True)
    """

    config: Config
    status: Status = "running"
    epochs: list[Epoch] = field(default_factory=list)
    failure: Failure | None = None
    versions: dict[str, str] = field(default_factory=versions)
    started: str = ""
    seconds: float = 0.0
    solver_failures: int = 0

    @property
    def best_error(self) -> float:
        """The lowest test error in per cent; NaN before the end of the first epoch."""
        return min((epoch.test_error for epoch in self.epochs), default=NAN)

    @property
    def final_error(self) -> float:
        """The test error after the last epoch."""
        return self.epochs[-1].test_error if self.epochs else NAN

    @property
    def best_top5(self) -> float:
        """The lowest top-5 error in per cent; NaN if none is recorded."""
        return min((epoch.test_top5 for epoch in self.epochs if epoch.test_top5 is not None), default=NAN)

    @property
    def final_top5(self) -> float:
        """The top-5 error after the last epoch; NaN if none is recorded."""
        last = self.epochs[-1].test_top5 if self.epochs else None
        return NAN if last is None else last

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; see :func:`json_ready`."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["config"] = self.config.to_dict()
        values["epochs"] = [dataclasses.asdict(epoch) for epoch in self.epochs]
        values["failure"] = None if self.failure is None else dataclasses.asdict(self.failure)
        return dict(json_ready(values))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, values: Any) -> Result:
        """The inverse of :meth:`to_dict`; fields added by a newer version are ignored.

        Raises:
            ValueError: a value is missing, has the wrong type, or is out of range; the message says which.
        """
        row = _RESULT(values, "result")
        epochs = [Epoch(**epoch) for epoch in row["epochs"]]
        if [epoch.epoch for epoch in epochs] != list(range(len(epochs))):
            raise untrusted_json.InvalidValueError("result.epochs: expected epochs 0, 1, 2, … in order")
        return cls(**{**row, "epochs": epochs})

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """The inverse of :meth:`to_json`."""
        return cls.from_dict(untrusted_json.parse(text.encode("utf-8") if isinstance(text, str) else text))


def _config(value: Any, place: str) -> Config:
    known = untrusted_json.record({}, {name: lambda item, _: item for name in FIELDS})(value, place)
    methods = {
        name: as_recorded(untrusted_json.text(known[name], name))
        for name in METHOD_FIELDS
        if known.get(name) is not None
    }
    return Config(**from_file({**known, **methods}))


_PERCENT, _COUNT = untrusted_json.number(0, 100), untrusted_json.number(0)
_EPOCH = untrusted_json.record(
    {
        "epoch": untrusted_json.integer(),
        "lr": _COUNT,
        "train_loss": untrusted_json.number(infinite=True),
        "train_error": _PERCENT,
        "test_loss": untrusted_json.number(infinite=True),
        "test_error": _PERCENT,
        "seconds": _COUNT,
        "images_per_second": _COUNT,
        "step_ms": _COUNT,
    },
    {
        "condition": untrusted_json.number(0, infinite=True),
        "rank": untrusted_json.integer(),
        "method": untrusted_json.text,
        "test_top5": untrusted_json.optional(_PERCENT),
        "measured": untrusted_json.mapping_of(untrusted_json.number(infinite=True)),
    },
)
_FAILURE = untrusted_json.record(
    {
        "step": untrusted_json.integer(),
        "epoch": untrusted_json.optional(untrusted_json.integer()),
        "reason": untrusted_json.text,
    },
    {
        "layer": untrusted_json.optional(untrusted_json.text),
        "spectrum": untrusted_json.list_of(untrusted_json.number(infinite=True)),
    },
)
_RESULT = untrusted_json.record(
    {
        "config": _config,
        "status": untrusted_json.one_of("running", "done", "failed"),
        "epochs": untrusted_json.list_of(_EPOCH),
        "failure": untrusted_json.optional(Failure.from_dict),
    },
    {
        "versions": untrusted_json.mapping_of(untrusted_json.text),
        "started": untrusted_json.text,
        "seconds": _COUNT,
        "solver_failures": untrusted_json.integer(),
    },
)


def plural(number: int, thing: str) -> str:
    """A number with a noun in the singular or plural.

    Example:
        >>> plural(1, "run"), plural(3, "run")
        ('1 run', '3 runs')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def json_ready(value: Any) -> Any:
    """Convert a value for strict JSON: NaN to None, infinities to strings, tuples to lists.

    Example:
        >>> json_ready({"a": (1.0, float("nan"), float("-inf"))})
        {'a': [1.0, None, '-inf']}
    """
    if isinstance(value, dict):
        return {name: json_ready(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
