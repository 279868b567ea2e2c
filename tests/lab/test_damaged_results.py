"""Files that somebody damaged or forged: what is no result is left out by name, and nothing else is lost."""

import contextlib
import copy
import json
import math
import random
import re
import shutil
import warnings

import pytest

from spectralgrad.cli import main
from spectralgrad_lab import Config, Epoch, Failure, Result, ResultsFile, train
from spectralgrad_lab import untrusted_json as rows_module
from spectralgrad_lab.comparison import gradient_errors
from spectralgrad_lab.comparison.gradient_errors import GAPS, GradientErrors
from spectralgrad_lab.comparison.grid import compare
from spectralgrad_lab.comparison.trained_layer import trained_layer
from spectralgrad_lab.report import page, report, template
from spectralgrad_lab.report.axes import Axis
from spectralgrad_lab.report.page import contents
from spectralgrad_lab.training.config.run_config import ConfigError
from spectralgrad_lab.training.storage import checkpoints
from spectralgrad_lab.training.storage.checkpoints import CheckpointError, load_weights

from .helpers import QUICK, forge

EPOCH = Epoch(0, 0.05, 2.0, 40.0, 1.5, 30.0, 3.0, 700.0, 20.0, 200.0, 16, "exact")
GOOD = Result(Config(epochs=1, method="svd-taylor", layer="batchnorm"), "done", [EPOCH])
FAILED = Result(
    Config(epochs=1, seed=1, layer="batchnorm"), "failed", [EPOCH], Failure(3, 0, "no gradient", "bn1", (0.0, 1.0))
)
GRADIENTS = GradientErrors(
    "inv_sqrt", GAPS, {"exact": (1e-7,) * len(GAPS)}, {"exact": 1e-7}, {"exact": 0}, 1, (0.1, 0.2), "exact, seed 0"
).to_dict()
HOSTILE = (
    None, True, 10**30, -1, 1e308, -1e308, 5e-324, "inf", "-inf", "nan", "", "<script>alert(1)</script>", "\x1b[2J",
    "\ud800", "λ" * 5000, [], [[]], {}, {"a": {}}, [1, "x", None], "svd-taylor:degree=10000000000000000000",
)  # fmt: skip


def places(value, path=()):
    """Every place in a tree, the root left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


def mutated(row, draw):
    """The row with one to three values replaced or removed."""
    changed = copy.deepcopy(row)
    for _ in range(draw.randint(1, 3)):
        path = draw.choice(list(places(changed)))
        inner = changed
        for name in path[:-1]:
            inner = inner[name]
        if draw.random() < 0.2:
            del inner[path[-1]]
        else:
            inner[path[-1]] = copy.deepcopy(draw.choice(HOSTILE))
    return changed


def test_mutated_rows_are_read_or_left_out_and_the_page_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(gradient_errors, "measure", lambda *_: GradientErrors.from_dict(GRADIENTS))
    draw, file = random.Random(0), ResultsFile(tmp_path / "results.jsonl")
    rows = [mutated(draw.choice((GOOD, FAILED)).to_dict(), draw) for _ in range(400)]
    file.path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    file.append(Result(GOOD.config.replaced(dataset="<script>alert(1)</script>"), "done", [EPOCH]))
    with pytest.warns(UserWarning, match="is damaged and skipped") as told:
        found = file.read()
    assert len(told) == 1
    assert 5 < len(found) < 100  # of the same run the last counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page = report(tmp_path).path.read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    good = 0
    for row in rows:
        with contextlib.suppress(ValueError):
            result = Result.from_dict(rows_module.parse(json.dumps(row).encode()))
            good += 1
            assert Result.from_json(result.to_json()).to_json() == result.to_json()
            alone(result, tmp_path)
    assert 10 < good < 200


def alone(result, folder):
    """Its page, which must not fail in any way."""
    try:
        template.fill(page._TEMPLATE, **contents([result], folder)).encode("utf-8")
    except Exception as problem:
        pytest.fail(f"{problem!r}: {result}")


LINES = {
    "a list": b"[1, 2]",
    "a number": b"1e308",
    "not JSON": b"{",
    "not UTF-8": b'{"config": "\xff"}',
    "deep": b"[" * 100_000,
    "deep and closed": b'{"config":' * 900 + b"1" + b"}" * 900,
    "NaN": GOOD.to_json().replace("30.0", "NaN").encode(),
    "Infinity": GOOD.to_json().replace("30.0", "-Infinity").encode(),
    "overflow": GOOD.to_json().replace("30.0", "1e999").encode(),
    "digits": GOOD.to_json().replace("30.0", "9" * 5000).encode(),
    "enormous": b'{"config": "' + b"a" * (1 << 25),
    "missing": b'{"status": "done"}',
    "epochs out of order": Result(GOOD.config, "done", [EPOCH, EPOCH]).to_json().encode(),
}


@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_is_named_and_the_others_are_read(name, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(GOOD.to_json().encode() + b"\n\n" + LINES[name] + b"\n" + FAILED.to_json().encode() + b"\n")
    with pytest.warns(UserWarning, match=rf"{re.escape(str(path))}, line 3 is damaged and skipped: ") as told:
        assert len(ResultsFile(path).read()) == 2
    assert len(told) == 1
    assert len(str(told[0].message)) < 600


def test_a_comparison_goes_on_beside_a_damaged_row(tmp_path):
    config = QUICK.replaced(epochs=1)
    (first,) = compare([config], tmp_path)
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text("utf-8").replace('"test_error": ', '"test_error": "'), "utf-8")
    with pytest.warns(UserWarning, match=r"results\.jsonl, line 1 is damaged"):
        (again,) = compare([config], tmp_path)
    assert again.to_json() == first.to_json()  # from the folder of the run


def test_a_folder_in_place_of_a_file_is_told_in_one_line(tmp_path, capsys):
    (tmp_path / "results.jsonl").mkdir()
    assert main(["report", str(tmp_path)]) == 1
    assert "results.jsonl" in capsys.readouterr().err
    (tmp_path / "run" / checkpoints.POINTER).mkdir(parents=True)
    assert main(["train", "--out", str(tmp_path / "run"), "--resume"]) == 1
    assert "checkpoint.json: not a checkpoint" in capsys.readouterr().err


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of a run that has ended its first epoch."""
    folder = tmp_path_factory.mktemp("begun")
    train(QUICK.replaced(epochs=1), folder)
    return folder


def test_mutated_checkpoints_are_refused_with_the_file_or_go_on(begun):
    pointer, draw = begun / checkpoints.POINTER, random.Random(0)
    whole = pointer.read_bytes()
    (begun / "result.json").unlink()
    outcomes = []
    try:
        for _ in range(150):
            forge(begun, mutated(json.loads(whole), draw))
            try:
                load_weights(begun)
                outcomes.append(train(QUICK.replaced(epochs=1), begun, resume=True).status)
            except (CheckpointError, ConfigError) as problem:
                outcomes.append("refused" if str(begun) in str(problem) else str(problem))
            (begun / "result.json").unlink(missing_ok=True)
    finally:
        pointer.write_bytes(whole)
    assert set(outcomes) == {"refused", "done"}


def test_a_layer_whose_weights_are_lost_is_not_measured(tmp_path):
    config = QUICK.replaced(epochs=1, network="small", width=2)
    train(config, tmp_path)
    assert trained_layer(tmp_path, config) is not None
    state = checkpoints.load(tmp_path)
    state["model"]["conv1.weight"].fill_(math.nan)
    checkpoints.save(tmp_path, state)
    assert trained_layer(tmp_path, config) is None


def test_a_checkpoint_whose_parts_disagree_is_refused(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    content = json.loads((tmp_path / "run" / checkpoints.POINTER).read_text("utf-8"))
    content["state"]["tally"]["epoch"] = 0
    forge(tmp_path / "run", content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json.*tally\.epoch: expected 1, got 0"):
        train(QUICK, tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", 3, "checkpoint-1.safetensors/../../x"])
def test_a_checkpoint_names_a_file_beside_it_only(name, begun, tmp_path):
    content = json.loads((begun / checkpoints.POINTER).read_text("utf-8"))
    forge(tmp_path, {**content, "tensors": name})
    with pytest.raises(CheckpointError, match=r"expected a name like checkpoint-1\.safetensors"):
        load_weights(tmp_path)
    assert trained_layer(tmp_path, QUICK) is None


SESSION = {
    "commands": ["a"],
    "note": "b",
    "machine": {"cpu": "c", "cores": 2, "load": 1.0, "instruction set": "d", "date": "e", "kernel": None},
}


@pytest.mark.parametrize(("file", "good"), [("session.json", SESSION), ("gradients.json", GRADIENTS)])
def test_what_stands_beside_the_results_may_be_damaged_too(file, good, tmp_path, monkeypatch):
    ResultsFile(tmp_path / "results.jsonl").append(Result(Config(method="exact"), "done", [EPOCH]))
    monkeypatch.setattr(gradient_errors, "measure", lambda *_: GradientErrors.from_dict(GRADIENTS))
    draw = random.Random(1)
    contents = [mutated(good, draw) for _ in range(30)] + [[], 3, {"commands": 5}, {"machine": "x"}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for content in contents:
            (tmp_path / file).write_text(json.dumps(content), "utf-8")
            assert "<script" not in report(tmp_path).path.read_text("utf-8")


def test_values_of_a_configuration_have_an_end():
    for values, words in (
        ({"epochs": 10**30}, "epochs: expected a whole number of at most"),
        ({"lr": 10**400}, "lr: expected a number of at most"),
        ({"dataset": "\x1b[2J"}, "dataset: expected printable text"),
        ({"data": "\ud800"}, "data: expected printable text"),
    ):
        with pytest.raises(ConfigError, match=words):
            Config(**values)


def test_axes_hold_any_finite_number():
    for values in ((5e-324, 1.0), (1.0, 1.7e308), (5e-324,), (1.7e308,)):
        axis = Axis.around(values, log=True)
        assert 0 < axis.low < axis.high < math.inf
        assert len(axis.ticks()) > 1
        assert all(0 <= axis.place(value) <= 1 for value in values)
    for values in ((5e-324,), (0.0, 5e-324), (50.0, 50.000000000000014), (-1e300, 1e300), (1e300,), (0.0,)):
        axis = Axis.around(values)
        assert -math.inf < axis.low < axis.high < math.inf
        assert len(axis.ticks()) > 1
        assert all(0 <= axis.place(value) <= 1 for value in values)
