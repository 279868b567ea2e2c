"""The outcomes of a run as JSON, with a description of the machine, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from spectralgrad.errors import SpectralError

from .. import untrusted_json
from ..machine import machine
from ..untrusted_json import integer, list_of, mapping_of, number, one_of, optional, record, text
from .cases import DTYPES, GAUSSIAN, SPECTRA, Case
from .comparisons import CONTESTS
from .outcomes import Entry, Outcome
from .timing import Timing


@dataclass(frozen=True)
class Run:
    """A run of the benchmark: where it was made, the time for each contest, and what came out."""

    machine: dict[str, Any]
    seconds: float
    outcomes: tuple[Outcome, ...]

    @property
    def headline(self) -> str:
        """A line that describes the machine."""
        m = self.machine
        return f"{m['cpu']}, {m['instruction set']}, {m['threads']} threads, torch {m['torch']}, kernel {m['kernel']}"


def here(outcomes: Iterable[Outcome], seconds: float) -> Run:
    """A run made on this machine."""
    return Run(machine(), seconds, tuple(outcomes))


def as_json(run: Run) -> dict[str, Any]:
    """The machine and all outcomes for json.dump; missing times and NaN become null."""
    return {"machine": run.machine, "seconds per contest": run.seconds, "results": [_record(o) for o in run.outcomes]}


def read(path: Path) -> Run:
    """A run from the JSON file that an earlier one wrote.

    Raises:
        SpectralError: the file is not one.
    """
    try:
        content = _RUN(untrusted_json.parse(path.read_bytes()), "the file")
        outcomes = tuple(map(_outcome, content["results"]))
    except ValueError as problem:
        raise SpectralError(f"{path}: not a result of `spectralgrad bench`: {problem}") from None
    return Run(content["machine"], content["seconds per contest"], outcomes)


def _record(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    entries = outcome.entries
    pairs = product((e.name for e in entries if e.ours), [e.name for e in entries if not e.ours])
    return {
        "contest": outcome.contest,
        "batch": case.batch,
        "size": case.size,
        "columns": case.columns or case.size,
        "dtype": case.precision,
        "spectrum": case.spectrum,
        "contestants": [_contestant(e) for e in entries],
        "ratios": {f"{a}:{b}": outcome.ratio(a, b) for a, b in pairs},
    }


def _contestant(entry: Entry) -> dict[str, Any]:
    timing = entry.timing
    return {
        "name": entry.name,
        "ours": entry.ours,
        "seconds": timing and timing.seconds,
        "threads": timing and timing.threads,
        "calls": timing and timing.calls,
        "error": entry.error if entry.error - entry.error == 0 else None,  # neither NaN nor infinite
        "right": entry.right,
        "note": entry.note,
    }


def _outcome(values: dict[str, Any]) -> Outcome:
    columns = values["columns"] if values["spectrum"] == GAUSSIAN else 0
    case = Case(values["batch"], values["size"], DTYPES[values["dtype"]], values["spectrum"], columns)
    entries = tuple(map(_entry, values["contestants"]))
    if {entry.ours for entry in entries} != {True, False}:
        raise untrusted_json.InvalidValueError(
            f"{values['contest']}: expected one of ours and a rival, got {len(entries)}"
        )
    return Outcome(values["contest"], case, entries)


def _entry(values: dict[str, Any]) -> Entry:
    measured = (values["seconds"], values["threads"], values["calls"])
    timing = None if None in measured else Timing(*measured)
    return Entry(values["name"], values["ours"], values["error"], values["right"], timing, values["note"])


def _any_value(value: Any, place: str) -> Any:
    return value if value is None or isinstance(value, (int, float)) else text(value, place)


_ENTRY = record(
    {
        "name": text,
        "ours": one_of(True, False),
        "seconds": optional(number(low=1e-9)),
        "threads": optional(integer(1)),
        "calls": optional(integer(1)),
        "error": number(),
        "right": one_of(True, False),
        "note": untrusted_json.multiline_text,
    }
)
_RESULT = record(
    {
        "contest": one_of(*CONTESTS),
        "batch": integer(1),
        "size": integer(1),
        "columns": integer(1),
        "dtype": one_of(*DTYPES),
        "spectrum": one_of(GAUSSIAN, *SPECTRA),
        "contestants": list_of(_ENTRY),
    }
)
_NAMES = ("cpu", "instruction set", "kernel", "threads", "cores", "load", "python", "torch", "spectralgrad", "date")


def _machine(value: Any, place: str) -> dict[str, Any]:
    record({name: number() if name == "load" else _any_value for name in _NAMES})(value, place)
    return dict(mapping_of(_any_value)(value, place))


_RUN = record({"machine": _machine, "seconds per contest": number(low=0), "results": list_of(_RESULT)})
