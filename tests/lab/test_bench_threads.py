"""The study of two threads: its calls run, short ones are not judged, and what falls short is marked."""

import json

import pytest
import torch

from spectralgrad.cli import main
from spectralgrad_lab.bench.studies import threads
from spectralgrad_lab.bench.studies.threads import CALLS, YARDSTICK, Row


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name + " with gradient" * call.backward)
def test_each_call_runs_on_a_small_batch(call):
    shape = (2, *call.shapes[0][1:]) if call.name != YARDSTICK else (3, 3)
    result = call.job(shape)()
    (value,) = result if call.backward else (result,)
    assert value.isfinite().all()
    assert value.numel() > 0


def test_both_thread_counts_are_timed_and_torchs_own_is_restored():
    found = torch.get_num_threads()
    row = threads.measure(CALLS[1], (4, 3, 3), 0.01)
    assert (row.name, row.shape) == ("eigh", (4, 3, 3))
    assert min(row.one, row.two) > 0
    assert torch.get_num_threads() == found


def test_only_long_calls_that_gain_little_are_marked():
    rows = [Row("long", (9, 3, 3), 2.0, 1.6), Row("short", (3, 3), 0.4, 0.4), Row("good", (4, 4), 2.0, 1.0)]
    head, long, short, good, _, last = threads.table(rows)
    assert "one thread" in head
    assert long.split() == ["long", "9×3×3", "2.000", "1.600", "1.25*"]
    assert short.endswith("1.00")
    assert good.endswith("2.00")
    assert last == "* below 1.6: 1 of the 2 calls that take more than 0.5 ms on one thread"


@pytest.mark.runs
def test_the_command_writes_what_it_prints(tmp_path, capsys, monkeypatch):
    short = [c for c in CALLS if c.name in (YARDSTICK, "svdvals")]
    monkeypatch.setattr(threads, "CALLS", short)
    file = tmp_path / "threads.json"
    assert main(["bench", "threads", "--only", "svdvals", "--seconds", "0.01", "--json", str(file)]) == 0
    printed, rows = capsys.readouterr().out, json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == [c.name for c in short for _ in c.shapes]
    assert all(f"{row['one']:.3f}" in printed for row in rows)


def test_an_unknown_name_is_an_error(capsys):
    assert main(["bench", "threads", "--only", "sqrtm"]) != 0
    assert "expected beginnings of eigh; eigh, complex; eigvalsh" in capsys.readouterr().err
