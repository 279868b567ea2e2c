"""The result of a run over numbered steps, and the means of its losses between two lines of the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ... import untrusted_json
from ...import_by_name import from_file
from ..config.step_settings import StepSettings
from .records import Failure, Status, json_ready, versions

S = TypeVar("S", bound=StepSettings)


@dataclass
class Means:
    """Means of values over the steps since the last line of the log; plain values, so that a checkpoint can store them.

    Example:
        >>> means = Means()
        >>> for loss in (1.0, 2.0):
        ...     means.add({"loss": loss})
        >>> means.values
        {'loss': 1.5}
    """

    count: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, values: Mapping[str, float]) -> None:
        """Add the values of a step."""
        self.count += 1
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    @property
    def values(self) -> dict[str, float]:
        return {name: total / self.count for name, total in self.sums.items()}


@dataclass
class StepResult(Generic[S]):
    """The result of a run over numbered steps, finished or not.

    Attributes:
        config: of the run.
        status: ``"running"`` (or stopped), ``"done"`` or ``"failed"``.
        step: the steps taken.
        losses: the values of the last line of the log.
        means: of the steps since then.
        failure: why it failed, or None.
        versions: of the software.
        started: date and time in UTC.
        seconds: total time, over all interruptions.

    Example:
        >>> result = StepResult(StepSettings(), "done", 3, {"loss": 0.5})
        >>> StepResult.from_dict(result.to_dict(), StepSettings) == result
        True
    """

    config: S
    status: Status = "running"
    step: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    means: Means = field(default_factory=Means)
    failure: Failure | None = None
    versions: dict[str, str] = field(default_factory=versions)
    started: str = ""
    seconds: float = 0.0

    @property
    def position(self) -> str:
        """How far the run has come."""
        return f"{self.status}, {self.step} of {self.config.steps} steps"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(json_ready({**dataclasses.asdict(self), "config": self.config.to_dict()}))

    @classmethod
    def from_dict(cls, values: Any, settings: type[S]) -> StepResult[S]:
        """The inverse of :meth:`to_dict`; fields added by a newer version are ignored.

        Raises:
            ValueError: a value is missing, has the wrong type, or is out of range; the message says which.
        """
        row = _RESULT(values, "result")
        known = untrusted_json.record({}, {name: lambda item, _: item for name in settings.fields()})
        config = settings(**from_file(known(row["config"], "result.config")))
        return cls(**{**row, "config": config, "means": Means(**row["means"])})


_COUNT = untrusted_json.integer()
_LOSSES = untrusted_json.mapping_of(untrusted_json.number(infinite=True))
_RESULT = untrusted_json.record(
    {
        "config": untrusted_json.mapping_of(lambda value, _: value),
        "status": untrusted_json.one_of("running", "done", "failed"),
        "step": _COUNT,
        "losses": _LOSSES,
        "means": untrusted_json.record({"count": _COUNT, "sums": _LOSSES}),
        "failure": untrusted_json.optional(Failure.from_dict),
    },
    {
        "versions": untrusted_json.mapping_of(untrusted_json.text),
        "started": untrusted_json.text,
        "seconds": untrusted_json.number(0),
    },
)
