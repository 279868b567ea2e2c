"""The study of single calls: every public function of matrices has a row, and agrees with its composition in torch."""

import inspect
import json

import pytest

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad_lab.bench.studies import calls
from spectralgrad_lab.bench.studies.calls import CALLS, SIZES, Call, Row

NOT_FUNCTIONS_OF_ONE_SMALL_MATRIX = {"eigsh", "methods", "register_method"}


def test_every_public_function_has_a_row():
    public = {name for name in sg.__all__ if inspect.isfunction(getattr(sg, name))}
    assert {call.name.partition("(")[0] for call in CALLS} == public - NOT_FUNCTIONS_OF_ONE_SMALL_MATRIX


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_each_agrees_with_its_composition(call):
    for size in SIZES:
        assert calls.disagreement(call, size) < calls.AGREE


def test_a_wrong_result_is_not_timed():
    wrong = Call("wrong", sg.matrix_sqrt, lambda A: 1.001 * sg.matrix_sqrt(A))
    with pytest.raises(sg.SpectralError, match=r"wrong, 3×3: differs from the composition in torch by 0.001"):
        calls.measure(wrong, 3, 0.01)


def test_slower_calls_are_marked_and_counted():
    rows = [Row("a", 3, dict.fromkeys(calls.PASSES, 2.0), {"inference": 1.0, "forward": 2.0, "backward": 4.0})]
    head, line, _, last = calls.table(rows)
    assert line.split() == ["a", "3", "2.0", "0.50*", "2.0", "1.00", "2.0", "2.00"]
    assert last == "* torch is faster: 1 of 3 cells; geometric mean of the ratios 1.00"
    assert "inference" in head


def test_the_command_writes_what_it_prints(tmp_path, capsys):
    file = tmp_path / "calls.json"
    assert main(["bench", "calls", "--only", "svdvals,matrix_sqrt", "--seconds", "0.01", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    assert [(row["name"], row["size"]) for row in rows] == [
        ("svdvals", 3),
        ("svdvals", 16),
        ("matrix_sqrt", 3),
        ("matrix_sqrt", 16),
    ]
    assert all(f"{row['ours']['inference']:.1f}" in printed for row in rows)


def test_an_unknown_name_is_an_error(capsys):
    assert main(["bench", "calls", "--only", "sqrtm"]) != 0
    assert "expected beginnings of eigh; eigvalsh" in capsys.readouterr().err
