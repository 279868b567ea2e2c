"""Thresholds are measured, stored and loaded: every entry of the table, and files of earlier versions too."""

import json
from dataclasses import fields, replace

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel, thresholds
from spectralgrad.native.thresholds import SIZES, Table, tuned
from spectralgrad.solvers.decompose import choice, tuning
from spectralgrad.solvers.decompose.measurements import MEASUREMENTS, Measurement

needs_kernel = pytest.mark.skipif(kernel() is None, reason="without the kernel there is nothing to choose")
FIXED = {entry.name: entry.metadata["fixed"] for entry in fields(Table) if "fixed" in entry.metadata}


@needs_kernel
@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda measurement: measurement.name)
def test_both_ways_of_a_measurement_compute_the_same(measurement):
    torch.manual_seed(0)
    given = measurement.tensors(measurement.sizes[0])
    small, large = (way(*given) for way in (measurement.small, measurement.large))
    for x, y in zip(*(way if isinstance(way, tuple) else (way,) for way in (small, large)), strict=True):
        x, y = torch.as_tensor(x), torch.as_tensor(y)
        if measurement.name == "gram_blocks":
            x, y = x.tril(), y.tril()
        assert_close(x, y, rtol=0, atol=1e-5 * y.abs().amax().item())


@pytest.mark.parametrize(
    ("included", "limit", "expected"), [(True, 20, 16), (True, 1, 4), (True, 99, 32), (False, 20, 32), (False, 99, 64)]
)
def test_a_measurement_finds_the_last_size_of_the_faster_way(included, limit, expected):
    """``small`` is faster up to a limit."""
    measurement = Measurement("name", "words", min, max, lambda d: (torch.empty(d),), (8, 16, 32), included)

    def faster(first, second, tensors):
        return (len(tensors()[0]) <= limit) == (first is min)

    assert measurement.found(faster) == expected


def test_the_time_of_a_way_is_that_of_its_fastest_run(monkeypatch):
    clock = iter([0.0, 0.0, 1.0, 4.0, 4.5, 4.5, 6.5, 7.0, 7.0, 9.5, 100.0])  # three runs: of 3, 2 and 2.5 seconds
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: next(clock))
    assert tuning._time(torch.neg, (torch.ones(1),), seconds=10.0) == 2.0


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice.forget()
    yield tmp_path / "spectralgrad" / "solvers.json"
    choice.forget()


@needs_kernel
def test_tune_measures_stores_and_uses_every_entry(cache, monkeypatch):
    """As if the first way were always the faster one, and then the other."""
    found = []
    for wins in (True, False):
        lines = []
        monkeypatch.setattr(tuning, "_faster", lambda first, second, tensors, wins=wins: wins)
        found.append(sg.solvers.tune(lines.append))
        assert thresholds.table() == found[-1]
        assert len(lines) == 8 + 8 * len(SIZES) + len(MEASUREMENTS)
    for name in tuned():
        one, other = (getattr(table, name) for table in found)
        pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
        assert all(x != y for x, y in pairs), name
    assert {m.name for m in MEASUREMENTS} == {name for name, default in tuned().items() if isinstance(default, int)}


def changed():
    """A table whose entries are all different from the defaults."""
    values = {
        name: (7,) * len(default) if isinstance(default, tuple) else default + 1 for name, default in tuned().items()
    }
    return Table(**values)


@needs_kernel
def test_a_table_is_stored_with_the_tables_of_other_instruction_sets(cache):
    thresholds.store("other", Table())
    thresholds.store(kernel().isa, changed())
    assert thresholds.table() == changed()
    assert set(json.loads(cache.read_text())) == {"other", kernel().isa}
    assert set(json.loads(cache.read_text())["other"]) == set(tuned())


@needs_kernel
@pytest.mark.parametrize("missing", tuned())
def test_an_older_file_leaves_new_entries_at_their_defaults(cache, missing):
    thresholds.store(kernel().isa, changed())
    stored = json.loads(cache.read_text())
    del stored[kernel().isa][missing]
    cache.write_text(json.dumps(stored))
    assert thresholds.table() == replace(changed(), **{missing: tuned()[missing]})


@needs_kernel
@pytest.mark.parametrize("wrong", [None, "many", [], [1, 2], {}, float("inf")], ids=str)
@pytest.mark.parametrize("name", ["float32", "single", "fused"])
def test_a_damaged_entry_makes_the_whole_table_the_default(cache, name, wrong):
    thresholds.store(kernel().isa, changed())
    stored = json.loads(cache.read_text())
    stored[kernel().isa][name] = wrong
    cache.write_text(json.dumps(stored))
    assert thresholds.table() == Table()


@needs_kernel
def test_fixed_entries_have_a_reason_and_cannot_be_tuned(cache):
    thresholds.store(kernel().isa, replace(changed(), **dict.fromkeys(FIXED, 5)))
    stored = json.loads(cache.read_text())
    assert not stored[kernel().isa].keys() & FIXED.keys()
    stored[kernel().isa] |= dict.fromkeys(FIXED, 5)
    cache.write_text(json.dumps(stored))
    assert thresholds.table() == changed()
    assert all(FIXED.values())
