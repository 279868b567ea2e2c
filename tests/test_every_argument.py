"""N10: every argument of every public function, layer, hook and method is refused by name if it makes no sense.

The callables and the kinds of their arguments are read from the signatures, so that a new one is tested from the start.
"""

import re
import typing
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch

import spectralgrad as sg

from . import arguments
from .arguments import FLAGS, HANDED_ON, INFINITE, PASSING, SIGNED, UNSIGNED

CALLABLES = arguments.public_callables()
VALUES = arguments.odd_values()
TENSORS = {name for name, value in VALUES.items() if isinstance(value, torch.Tensor)}
NOT_FINITE = {"nan tensor", "inf tensor", "nan scalar"}


def _numbers_of_devices():
    """Some versions of torch that were built for GPUs accept them without one."""
    try:
        torch.device(0)
    except RuntimeError:
        return set()
    return {"zero", "seven"}


# For each kind of annotation the values that can be legal. Everything else must be refused.
POSSIBLE = {
    bool: {"true"},
    int: {"zero", "minus", "seven"},
    float: {"zero", "minus", "minus half", "fraction", "seven", "inf"},
    str: {"text"},
    type(None): {"None"},
    torch.device: _numbers_of_devices(),
    torch.Tensor: TENSORS - NOT_FINITE - {"float8", "nested", "mkldnn", "sparse", "integers", "flags"},
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """An argument may be the name of a file to write."""
    monkeypatch.chdir(tmp_path)


def _possible(annotation):
    """The names of the values that an annotation may allow; None if it allows anything."""
    origin = typing.get_origin(annotation)
    if annotation is typing.Any or annotation is object:
        return None
    if annotation in POSSIBLE:
        return POSSIBLE[annotation]
    if origin is Callable:
        return {"class"}
    if origin in (Sequence, Iterable):
        return {"empty list"}
    if origin is None or origin in (typing.Literal, tuple, type):
        return set()  # a class of which no odd value is an instance
    parts = [_possible(part) for part in typing.get_args(annotation)]
    return set().union(*(part for part in parts if part is not None))


def _allowed(name, argument, hints):
    """The names of the values that a call may accept."""
    key = f"{name}.{argument}"
    possible = _possible(hints.get(argument, typing.Any))
    if possible is None:
        possible = TENSORS | {"None", "class"}
    signed = argument in SIGNED and key not in UNSIGNED
    allowed = possible - (set() if signed else {"minus", "minus half"}) - (set() if key in INFINITE else {"inf"})
    allowed |= {"flags"} if argument in FLAGS else set()
    return allowed | (NOT_FINITE & TENSORS if key in PASSING else set())


def _hints(thing):
    target = thing.__init__ if isinstance(thing, type) else thing
    return typing.get_type_hints(getattr(target, "__wrapped__", target))


def _fault(name, thing, parameters, argument, label):
    """Why a call with an odd value is not what it should be, or None."""
    given = arguments.arguments_of(name, parameters) | {argument: VALUES[label]}
    try:
        thing(**given)
    except sg.SpectralError as error:
        first = argument == next(iter(parameters))  # a function of one input need not name it
        data = isinstance(error, (sg.NonFiniteError, sg.IndefiniteError))  # these say where
        named = re.search(rf"\b{argument}\b", str(error))
        return None if first or data or named else f"not named: {error}"
    except Exception as error:
        absent = argument == "device" and "no NVIDIA driver" in str(error)  # torch's own, of a device that it accepts
        return None if absent else f"{type(error).__name__}: {error}"
    return None if label in _allowed(name, argument, _hints_of(name, thing)) else "accepted"


def _hints_of(name, thing):
    if name.endswith(".forward"):
        layer = CALLABLES[name.removesuffix(".forward")][0]
        return typing.get_type_hints(layer.forward)
    return _hints(thing)


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_odd_values_are_refused_by_name(name):
    thing, parameters = CALLABLES[name]
    thing(**arguments.arguments_of(name, parameters))  # the examples are accepted
    faults = {
        f"{argument} = {label}": fault
        for argument in parameters
        if argument not in HANDED_ON and f"{name}.{argument}" not in HANDED_ON
        for label in VALUES
        if (label != "class" or not _takes_functions(name, thing, argument))  # a function of the caller's own
        and (fault := _fault(name, thing, parameters, argument, label))
    }
    assert not faults


def _takes_functions(name, thing, argument):
    possible = _possible(_hints_of(name, thing).get(argument, typing.Any))
    return possible is None or "class" in possible


def test_the_lists_have_no_stale_entries():
    names = {f"{name}.{argument}" for name, (_, parameters) in CALLABLES.items() for argument in parameters}
    plain = {name.rpartition(".")[2] for name in names}
    for entry in HANDED_ON | SIGNED | UNSIGNED | INFINITE | PASSING:
        assert entry in (names if "." in entry else plain), entry
