"""Damaged checkpoints: every changed bit is noticed before use, and the checkpoint before it continues the run."""

import errno
import json
import random
import shutil

import pytest
import torch

from spectralgrad.cli import main
from spectralgrad_lab import train
from spectralgrad_lab.training.storage import checkpoints, checksums
from spectralgrad_lab.training.storage.checkpoints import POINTER, PREVIOUS, CheckpointError, load, load_weights, save

from .helpers import QUICK, numbers
from .test_resume import same
from .test_step_loop import CONFIG, trained

FLIPS = 100
SEAL = 640  # bits: all of the checksum at the beginning of checkpoint.json, and the header of a file of tensors


@pytest.fixture(scope="module", params=["epochs", "steps"])
def run(request, tmp_path_factory):
    """What continues a run over epochs or steps, and a folder with two checkpoints of it."""
    if request.param == "epochs":
        short, long = QUICK, QUICK.replaced(epochs=3)
        go = train
    else:
        short, long = CONFIG.replaced(steps=2, checkpoint_minutes=0), CONFIG.replaced(checkpoint_minutes=0)
        go = trained
    folder = tmp_path_factory.mktemp(request.param) / "run"
    go(short, folder)
    return (lambda place: go(long, place, resume=True)), folder


def tensor_file(folder, pointer=POINTER):
    return folder / json.loads((folder / pointer).read_text("utf-8"))["tensors"]


def flipped(path, bit):
    raw = bytearray(path.read_bytes())
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)


@pytest.mark.parametrize("which", ["tensors", "json"])
def test_every_flipped_bit_is_noticed(which, run, tmp_path):
    _, whole = run
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / PREVIOUS).unlink()
    path = tensor_file(tmp_path / "run") if which == "tensors" else tmp_path / "run" / POINTER
    before, chance = path.read_bytes(), random.Random(0)
    count = 8 * len(before)
    for bit in {
        *range(0, SEAL, 1 if which == "json" else 9),
        *(chance.randrange(count) for _ in range(FLIPS)),
        *range(count - 64, count),
    }:
        flipped(path, bit)
        with pytest.raises(CheckpointError, match=path.name):
            load(tmp_path / "run")
        path.write_bytes(before)
    assert same(load(tmp_path / "run"), load(whole))


@pytest.mark.parametrize("which", ["tensors", "json"])
def test_the_checkpoint_before_a_damaged_one_is_offered_and_reaches_the_same_numbers(which, run, tmp_path):
    go, whole = run
    folder = tmp_path / "my run"
    shutil.copytree(whole, folder)
    flipped(tensor_file(folder) if which == "tensors" else folder / POINTER, 4001)
    with pytest.raises(CheckpointError, match="The checkpoint before it is intact") as caught:
        go(folder)
    assert str(caught.value).rstrip(".").endswith(f"mv '{folder / PREVIOUS}' '{folder / POINTER}'")
    with pytest.raises(CheckpointError, match="damaged"):
        load_weights(folder)
    (folder / PREVIOUS).rename(folder / POINTER)
    shutil.copytree(whole, tmp_path / "undamaged")
    again, undamaged = go(folder), go(tmp_path / "undamaged")
    assert again.status == undamaged.status == "done"
    assert same(load(folder)["model"], load(tmp_path / "undamaged")["model"])
    if hasattr(again, "epochs"):
        assert numbers(again) == numbers(undamaged)


def test_a_damaged_checkpoint_without_an_intact_one_before_it(run, tmp_path):
    go, whole = run
    shutil.copytree(whole, tmp_path / "run")
    for pointer in (POINTER, PREVIOUS):
        flipped(tensor_file(tmp_path / "run", pointer), 4001)
    with pytest.raises(CheckpointError, match="safetensors: the file is damaged: its SHA-256") as caught:
        go(tmp_path / "run")
    assert "intact" not in str(caught.value)


def test_the_command_names_the_file(tmp_path, capsys):
    arguments = ["train", "--out", str(tmp_path), "--train-size", "64", "--batch-size", "32", "--no-tensorboard"]
    assert main([*arguments, "--epochs", "1", "--width", "2"]) == 0
    path = tensor_file(tmp_path)
    flipped(path, 8 * (path.stat().st_size - 3))
    assert main([*arguments, "--epochs", "2", "--width", "2", "--resume"]) == 1
    assert f"{path}: the file is damaged" in capsys.readouterr().err
    assert main([*arguments[:2], str(tmp_path / "b"), "--init", str(tmp_path), *arguments[3:], "--width", "2"]) == 1
    assert f"{path}: the file is damaged" in capsys.readouterr().err


def test_a_file_that_reads_back_differently_does_not_replace_the_last_checkpoint(tmp_path, monkeypatch):
    state = {"model": {"weight": torch.arange(100.0)}}
    save(tmp_path, state)
    real = checkpoints.write_bytes

    def faulty(path, content, **kwargs):
        real(path, content, **kwargs)
        if path.suffix == ".safetensors":
            flipped(path, 8 * len(content) - 1)

    monkeypatch.setattr(checkpoints, "write_bytes", faulty)
    with pytest.raises(OSError, match="reads back differently") as caught:
        save(tmp_path, {"model": {"weight": torch.zeros(100)}})
    assert caught.value.errno == errno.EIO
    monkeypatch.undo()
    assert same(load(tmp_path), state)
    assert len(list(tmp_path.iterdir())) == 2


def test_two_checkpoints_are_kept(tmp_path):
    for step in range(5):
        save(tmp_path, {"step": step, "model": {"weight": torch.full((3,), step)}})
    assert {path.name for path in tmp_path.iterdir()} == {
        POINTER, PREVIOUS, "checkpoint-4.safetensors", "checkpoint-5.safetensors"
    }  # fmt: skip
    assert load(tmp_path)["step"] == 4
    (tmp_path / PREVIOUS).rename(tmp_path / POINTER)
    assert load(tmp_path)["step"] == 3


def test_a_checkpoint_without_checksums_is_loaded_with_a_warning(tmp_path):
    """As versions before the checksums wrote them."""
    save(tmp_path, {"step": 3, "model": {"weight": torch.ones(3)}})
    content = json.loads((tmp_path / POINTER).read_text("utf-8"))
    old = {name: content[name] for name in ("tensors", "state")}
    (tmp_path / POINTER).write_text(json.dumps(old, indent=1), "utf-8")
    with pytest.warns(UserWarning, match=r"checkpoint\.json is of a version that wrote no checksums"):
        assert load(tmp_path)["step"] == 3
    with pytest.raises(ValueError, match="damaged"):
        checksums.unsealed((tmp_path / POINTER).read_bytes())
