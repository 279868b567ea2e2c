"""Readers that check the contents of a checkpoint against the state that the run itself would save."""

from __future__ import annotations

import math
import reprlib
from typing import Any

from torch import Tensor

from ... import untrusted_json

_TALLY = untrusted_json.record(
    {
        **{name: untrusted_json.integer() for name in ("epoch", "batch", "step")},
        **{name: untrusted_json.number() for name in ("images", "loss", "wrong", "seconds")},
        "times": untrusted_json.list_of(untrusted_json.number(0)),
        "looks": untrusted_json.list_of(untrusted_json.list_of(untrusted_json.number(0, infinite=True))),
    },
    {"measured": untrusted_json.mapping_of(untrusted_json.list_of(untrusted_json.number(infinite=True)))},
)


def read_tally(value: Any, place: str) -> dict[str, Any]:
    """Read the values of a :class:`~spectralgrad_lab.training.loop.position.Tally`."""
    found = _TALLY(value, place)
    if any(len(look) != 2 for look in found["looks"]):
        raise untrusted_json.InvalidValueError(f"{place}.looks: expected pairs of a condition number and a rank")
    return {
        **found,
        "times": list(found["times"]),
        "looks": [[condition, int(rank)] for condition, rank in found["looks"]],
        "measured": {name: list(values) for name, values in found.get("measured", {}).items()},
    }


def read_tensor(value: Any, place: str) -> Tensor:
    """Read a tensor of any shape."""
    if not isinstance(value, Tensor):
        raise untrusted_json.InvalidValueError(f"{place}: expected a tensor, got {reprlib.repr(value)}")
    return value


def reader_like(own: Any) -> untrusted_json.Reader:
    """A reader of values like ``own``: same names, same lengths, tensors of the same shape and dtype.

    Names that start with an underscore are private to torch and may be missing.

    Example:
        >>> reader_like({"lr": 0.1, "nesterov": False})({"lr": 1e-3, "nesterov": True, "more": 1}, "group")
        {'lr': 0.001, 'nesterov': True}
        >>> reader_like([0.1])(["fast"], "rates")
        Traceback (most recent call last):
        ...
        spectralgrad_lab.untrusted_json.InvalidValueError: rates[0]: expected a finite number, got 'fast'
    """
    if isinstance(own, Tensor):
        return _tensor_like(own)
    if isinstance(own, dict):
        readers = {str(name): reader_like(value) for name, value in own.items()}
        private = {name: read for name, read in readers.items() if name.startswith("_")}
        return untrusted_json.record({name: read for name, read in readers.items() if name not in private}, private)
    if isinstance(own, list | tuple):
        return _list_like([reader_like(value) for value in own])
    if isinstance(own, bool):
        return untrusted_json.one_of(True, False)
    if isinstance(own, int):
        return untrusted_json.integer(-1)
    return _number if isinstance(own, float) else untrusted_json.one_of(own)


def _number(value: Any, place: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise untrusted_json.InvalidValueError(f"{place}: expected a finite number, got {reprlib.repr(value)}")
    return value


def _tensor_like(own: Tensor) -> untrusted_json.Reader:
    def read(value: Any, place: str) -> Tensor:
        if read_tensor(value, place).shape != own.shape or value.dtype != own.dtype:
            got = f"{value.dtype} {tuple(value.shape)}"
            wanted = f"{own.dtype} {tuple(own.shape)}"
            raise untrusted_json.InvalidValueError(f"{place}: expected a tensor of {wanted}, got {got}")
        return value

    return read


def _list_like(readers: list[untrusted_json.Reader]) -> untrusted_json.Reader:
    def read(value: Any, place: str) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(readers):
            got = reprlib.repr(value)
            raise untrusted_json.InvalidValueError(f"{place}: expected a list of {len(readers)}, got {got}")
        return [read(item, f"{place}[{i}]") for i, (read, item) in enumerate(zip(readers, value, strict=True))]

    return read
