"""A run that is stopped, killed or interrupted while it writes goes on to the numbers of one that never was."""

import contextlib
import csv
import errno
import json
import os
from pathlib import Path

import pytest
import torch

from spectralgrad_lab import train
from spectralgrad_lab.comparison.results import ResultsFile
from spectralgrad_lab.training.config.run_config import ConfigError
from spectralgrad_lab.training.loop.progress import Silent
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.storage import checkpoints
from spectralgrad_lab.training.storage.checkpoints import CheckpointError, load, save
from spectralgrad_lab.training.storage.records import Result
from spectralgrad_lab.training.storage.resuming import RunExistsError, read_result

from .. import forked
from .helpers import QUICK, Interrupting, numbers

# Three batches an epoch; everything with a state of its own: momentum, schedule, switch, power iteration, dropout.
RICH = QUICK.replaced(
    epochs=3, weights="sn", nog=True, method="newton-schulz", hybrid="svd-pade", milestones=(1, 2), monitor_every=1
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return train(RICH, folder), load(folder)


def same(a, b):
    """Bit for bit, through a tree."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[k], b[k]) for k in a)
    return all(same(x, y) for x, y in zip(a, b, strict=True)) if isinstance(a, list) else a == b


@pytest.mark.parametrize("after", [1, 2, 4, 5, 6])
def test_a_stopped_run_goes_on_to_the_same_numbers(after, whole, tmp_path):
    with pytest.raises(Stopped):
        train(RICH, tmp_path, progress=Interrupting(after))
    stopped = load(tmp_path)
    assert 0 < stopped["tally"]["step"] < 9
    result = train(RICH, tmp_path, resume=True)
    assert numbers(result) == numbers(whole[0])
    end = load(tmp_path)
    for part in ("model", "optimizer", "scheduler", "switch", "random"):
        assert same(end[part], whole[1][part]), part


def test_stopping_again_and_again(whole, tmp_path):
    for _ in range(12):
        with contextlib.suppress(Stopped):
            result = train(RICH, tmp_path, resume=True, progress=Interrupting(1))
            break
    assert result.status == "done"
    assert numbers(result) == numbers(whole[0])


@pytest.mark.runs
def test_a_kill_at_any_moment_leaves_a_checkpoint_to_go_on_from(whole, tmp_path):
    """Eight times while nothing is done but writing, five times in a run that saves after every step."""
    config, run = RICH.replaced(checkpoint_minutes=0.0), tmp_path / "run"
    for folder in (tmp_path / "writes", run):
        folder.mkdir()
    (run / "run.toml").write_text(config.to_toml(), "utf-8")
    found = forked.run("-m", "tests.lab.kills", tmp_path)
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    writes, steps = ([int(step) for what, step in lines if what == kind] for kind in ("write", "run"))
    assert len(writes) == 8
    assert writes == sorted(set(writes))  # each began where the last was killed
    assert len(steps) == 5
    assert steps == sorted(steps)
    assert steps[-1] > 0
    assert numbers(train(config, run, resume=True)) == numbers(whole[0])
    assert same(load(run)["model"], whole[1]["model"])
    assert len(list(run.glob("checkpoint*"))) == 4  # the last one and the one before it


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_checkpoint_counts_from_the_moment_it_is_pointed_to(call, tmp_path, monkeypatch):
    save(tmp_path, {"step": 1, "model": torch.ones(3)})
    real, calls = os.replace, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise OSError("no space left on device")
        real(*arguments)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="no space"):
        save(tmp_path, {"step": 2, "model": torch.zeros(3)})
    monkeypatch.undo()
    assert same(load(tmp_path), {"step": 1, "model": torch.ones(3)})
    save(tmp_path, {"step": 3, "model": torch.zeros(3)})
    assert same(load(tmp_path), {"step": 3, "model": torch.zeros(3)})
    assert len(list(tmp_path.iterdir())) == 4


def test_a_full_disk_is_told_in_one_line_and_the_last_checkpoint_survives(tmp_path):
    pytest.importorskip("resource")
    run = tmp_path / "run"
    train(QUICK.replaced(epochs=1), run)
    before = load(run)
    room = next(run.glob("*.safetensors")).stat().st_size - 1000
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        "from spectralgrad.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = forked.run("-c", code, "train", "--out", run, "--resume", "--epochs", "2",
                      "--network", QUICK.network, timeout=120)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("spectralgrad train: ")
    assert len(done.stderr.splitlines()) == 1
    assert same(load(run), before)
    assert len(list(run.glob("*checkpoint*"))) == 2


def test_files_of_the_user_are_left_alone(tmp_path):
    mine = ["checkpoint-best.safetensors", "checkpoint_notes.txt", "checkpoint.json.bak", "my-checkpoint-1.safetensors"]
    for name in mine:
        (tmp_path / name).write_text("mine", "utf-8")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoint-7.safetensors.0a1b2c3d.part").write_text("of a killed run", "utf-8")
    for step in range(2):
        save(tmp_path, {"step": step, "model": torch.ones(1)})
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        *mine,
        "checkpoints",
        "checkpoint.json",
        "checkpoint-previous.json",
        *(f"checkpoint-{i}.safetensors" for i in (8, 9)),
    }


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_files_have_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        train(QUICK.replaced(epochs=1), tmp_path)
    finally:
        os.umask(before)
    names = ("checkpoint.json", "checkpoint-1.safetensors", "result.json", "config.toml", "log.csv")
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in names} == {0o640}


def test_tensors_and_pointer_are_on_the_disk_before_old_ones_go(tmp_path, monkeypatch):
    for _ in range(2):
        save(tmp_path, {"model": torch.ones(1)})
    order, fsync, unlink = [], os.fsync, Path.unlink
    monkeypatch.setattr(os, "fsync", lambda handle: order.append("fsync") or fsync(handle))
    monkeypatch.setattr(Path, "unlink", lambda path, **options: order.append(path.name) or unlink(path, **options))
    save(tmp_path, {"model": torch.zeros(1)})
    assert order == ["fsync"] * 6 + ["checkpoint-1.safetensors"]  # three files, and thrice their folder


def test_a_checkpoint_holds_no_pickle(whole, tmp_path):
    train(QUICK.replaced(epochs=1), tmp_path)
    content = json.loads((tmp_path / "checkpoint.json").read_text("utf-8"))
    raw = (tmp_path / content["tensors"]).read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert {"model.0.weight", "optimizer.state.0.momentum_buffer", "random.torch.0"} <= set(header)


def test_shared_and_strided_tensors_are_saved(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    save(tmp_path, {"a": base, "b": base.T, "nothing": torch.zeros(0), "list": [base[0], 1.5, None]})
    state = load(tmp_path)
    assert torch.equal(state["b"], base.T)
    assert torch.equal(state["list"][0], base[0])
    assert state["list"][1:] == [1.5, None]


def test_damage_is_told_with_the_file(tmp_path):
    train(QUICK.replaced(epochs=1), tmp_path)
    tensors = next(tmp_path.glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=f"{tensors.name}: the file is damaged"):
        train(QUICK, tmp_path, resume=True)
    tensors.unlink()
    with pytest.raises(CheckpointError, match=f"{tensors.name}: No such file"):
        train(QUICK, tmp_path, resume=True)
    (tmp_path / checkpoints.POINTER).write_text("{", "utf-8")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: not a checkpoint"):
        train(QUICK, tmp_path, resume=True)
    (tmp_path / "result.json").write_text("{}", "utf-8")
    with pytest.raises(CheckpointError, match=r"result\.json: not a result"):
        train(QUICK, tmp_path, resume=True)


def test_a_run_is_not_overwritten_nor_continued_by_another(tmp_path):
    train(QUICK.replaced(epochs=1), tmp_path)
    with pytest.raises(RunExistsError, match=r"already contains a run \(done, 1 of 1 epochs\); pass --resume"):
        train(QUICK, tmp_path)
    with pytest.raises(ConfigError, match=r"contains another run: lr was 0\.05, is 0\.1; seed was 0, is 1"):
        train(QUICK.replaced(seed=1, lr=0.1), tmp_path, resume=True)


def test_a_finished_run_is_returned_and_can_be_made_longer(whole, tmp_path):
    short = train(RICH.replaced(epochs=2), tmp_path)
    stamp = (tmp_path / "result.json").stat().st_mtime_ns
    assert train(RICH.replaced(epochs=2), tmp_path, resume=True) == short
    assert (tmp_path / "result.json").stat().st_mtime_ns == stamp
    longer = train(RICH.replaced(epochs=3, workers=1), tmp_path, resume=True)
    assert numbers(longer) == numbers(whole[0])
    assert longer.seconds > short.seconds
    assert read_result(tmp_path) == longer


def test_resume_without_a_run_begins_one(tmp_path):
    assert train(QUICK.replaced(epochs=1), tmp_path / "new", resume=True).status == "done"


def test_the_log_of_a_resumed_run_repeats_nothing(tmp_path):
    with pytest.raises(Stopped):
        train(QUICK, tmp_path, progress=Interrupting(4))
    train(QUICK, tmp_path, resume=True)
    rows = (tmp_path / "log.csv").read_text("utf-8").splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "1", "2"]


def scalars(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_has_every_epoch_of_a_resumed_run_once(tmp_path):
    config = QUICK.replaced(epochs=3, tensorboard=True, monitor_every=1)
    for after in (4, 3):  # in the second and in the third epoch
        with pytest.raises(Stopped):
            train(config, tmp_path, resume=True, progress=Interrupting(after))
    train(config, tmp_path, resume=True)
    found = scalars(tmp_path)
    assert found["test_error"] == [2, 5, 8]
    assert found["spectral/1/condition"] == list(range(9))


def test_tensorboard_repeats_nothing_after_a_kill_before_the_first_checkpoint(tmp_path):
    config = QUICK.replaced(epochs=1, tensorboard=True, monitor_every=1)

    class Dying(Silent):
        def step(self, step):
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, tmp_path, progress=Dying())
    assert load(tmp_path) is None
    train(config, tmp_path, resume=True)
    assert scalars(tmp_path)["spectral/1/condition"] == [0, 1, 2]


def test_a_value_that_there_is_none_of_is_an_empty_cell_of_the_log(tmp_path):
    train(QUICK.replaced(epochs=1, network="small", width=2, layer="batchnorm"), tmp_path)
    with (tmp_path / "log.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    assert (row["condition"], row["test_top5"]) == ("", "")
    assert "nan" not in row.values()


def test_a_row_is_written_whole_or_the_next_begins_a_new_line(tmp_path, monkeypatch):
    file, real, room = ResultsFile(tmp_path / "results.jsonl"), os.write, [100, 50]

    def write(handle, content):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, content[: room.pop(0)])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        file.append(Result(QUICK))
    monkeypatch.undo()
    assert file.path.stat().st_size == 150
    file.append(Result(QUICK.replaced(seed=1)))
    with pytest.warns(UserWarning, match="line 1 is damaged"):
        assert [result.config.seed for result in file.read()] == [1]
