"""What is kept of a run: an epoch, a failure, the result. One result is one line of JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from spectralgrad import __version__

from .. import untrusted_json
from .config import FIELDS, METHOD_FIELDS, Config
from .method_names import as_recorded

NAN = math.nan
Status = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training images, and the test after it. Errors are percentages.

    Attributes:
        epoch: from 0, as all positions in stored results; people are shown it from 1.
        lr: learning rate of the body of the network.
        train_loss: mean over the images, as they were met.
        train_error: the same.
        test_loss: mean over the test images, after the epoch.
        test_error: the same.
        seconds: training and test.
        images_per_second: training, with loading.
        step_ms: median time of a training step, without loading.
        condition: median over the looks of the largest condition number among the spectral layers; NaN if there is
            none.
        rank: least numerical rank met.
        method: in use by the spectral layers.
        test_top5: share of test images whose class is not among the five best; None below 100 classes.

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


@dataclass(frozen=True)
class Failure:
    """Why a run ended before its time.

    Attributes:
        step: training steps before the one that failed.
        epoch: in which it failed, from 0.
        reason: in words.
        layer: the name of the layer to blame, if one is.
        spectrum: eigenvalues, ascending, of the matrix that layer decomposed; empty if it has none.

    Example:
        >>> print(Failure(12, 0, "the gradient is not finite", "norm1", (0.01, 0.01, 4.0)))
        step 12 (epoch 1): the gradient is not finite; layer 'norm1', 3 eigenvalues from 0.01 to 4, smallest gap 0
    """

    step: int
    epoch: int
    reason: str
    layer: str | None = None
    spectrum: tuple[float, ...] = ()

    def __str__(self) -> str:
        said = f"step {self.step} (epoch {self.epoch + 1}): {self.reason}"
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
        """From plain values, as :meth:`Result.to_dict` has them; ``place`` is named by errors."""
        return cls(**_FAILURE(values, place))


def versions() -> dict[str, str]:
    """What the run was made with.

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
    """A run: what was asked, what came.

    Attributes:
        config: what was asked.
        status: ``"running"`` (or stopped), ``"done"`` or ``"failed"``.
        epochs: those finished.
        failure: why it failed, if it did.
        versions: of the software.
        started: date and time, UTC.
        seconds: of work, over all its parts.

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

    @property
    def best_error(self) -> float:
        """The least test error in per cent; NaN before the first epoch has ended."""
        return min((epoch.test_error for epoch in self.epochs), default=NAN)

    @property
    def final_error(self) -> float:
        """The test error after the last epoch."""
        return self.epochs[-1].test_error if self.epochs else NAN

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON has: NaN is None, infinity a word."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["config"] = self.config.to_dict()
        values["epochs"] = [dataclasses.asdict(epoch) for epoch in self.epochs]
        values["failure"] = None if self.failure is None else dataclasses.asdict(self.failure)
        return dict(packed(values))

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, values: Any) -> Result:
        """The reverse of :meth:`to_dict`; fields that a newer version added are left out.

        Raises:
            ValueError: a value is missing, of another kind, or out of range; the message says which.
        """
        row = _RESULT(values, "result")
        epochs = [Epoch(**epoch) for epoch in row["epochs"]]
        if [epoch.epoch for epoch in epochs] != list(range(len(epochs))):
            raise untrusted_json.RowError("result.epochs: expected epochs 0, 1, 2, … in their order")
        return cls(**{**row, "epochs": epochs})

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """The reverse of :meth:`to_json`."""
        return cls.from_dict(untrusted_json.parsed(text.encode("utf-8") if isinstance(text, str) else text))


def _config(value: Any, place: str) -> Config:
    known = untrusted_json.record({}, {name: lambda item, _: item for name in FIELDS})(value, place)
    methods = {
        name: as_recorded(untrusted_json.words(known[name], name))
        for name in METHOD_FIELDS
        if known.get(name) is not None
    }
    return Config(**{**known, **methods})


_PERCENT, _COUNT = untrusted_json.number(0, 100), untrusted_json.number(0)
_EPOCH = untrusted_json.record(
    {
        "epoch": untrusted_json.whole(),
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
        "rank": untrusted_json.whole(),
        "method": untrusted_json.words,
        "test_top5": untrusted_json.maybe(_PERCENT),
    },
)
_FAILURE = untrusted_json.record(
    {"step": untrusted_json.whole(), "epoch": untrusted_json.whole(), "reason": untrusted_json.words},
    {
        "layer": untrusted_json.maybe(untrusted_json.words),
        "spectrum": untrusted_json.series(untrusted_json.number(infinite=True)),
    },
)
_RESULT = untrusted_json.record(
    {
        "config": _config,
        "status": untrusted_json.one_of("running", "done", "failed"),
        "epochs": untrusted_json.series(_EPOCH),
        "failure": untrusted_json.maybe(Failure.from_dict),
    },
    {"versions": untrusted_json.table(untrusted_json.words), "started": untrusted_json.words, "seconds": _COUNT},
)


def count(number: int, thing: str) -> str:
    """So many of a thing.

    Example:
        >>> count(1, "run"), count(3, "run")
        ('1 run', '3 runs')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def packed(value: Any) -> Any:
    """A value as strict JSON has it: NaN is None, infinities are words, tuples are lists.

    Example:
        >>> packed({"a": (1.0, float("nan"), float("-inf"))})
        {'a': [1.0, None, '-inf']}
    """
    if isinstance(value, dict):
        return {name: packed(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [packed(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
