"""The folder of a run: its name, what a failed start leaves there, and what is said when it cannot be written."""

import csv
import errno
import os
import subprocess
import sys

import pytest

from spectralgrad.cli import main
from spectralgrad.io.files import write_bytes
from spectralgrad_lab import PRESETS, train
from spectralgrad_lab.commands.train import START
from spectralgrad_lab.data import DataError
from spectralgrad_lab.networks import NetworkError
from spectralgrad_lab.training.config.folder_names import run_name
from spectralgrad_lab.training.config.run_config import FIELDS
from spectralgrad_lab.training.processes.process_group import Group
from spectralgrad_lab.training.storage import checkpoints, locks
from spectralgrad_lab.training.storage.locks import LOCK, sole_writer
from spectralgrad_lab.training.storage.resuming import CHANGEABLE_FIELDS

from .helpers import QUICK, environment
from .test_config import options

TINY = ["--width", "2", "--train-size", "64", "--batch-size", "32", "--epochs", "1", "--no-tensorboard"]
OTHER = {
    "dataset": "cifar10", "train_size": 100, "test_size": 100, "augmentation": "none", "network": "resnet8", "width": 8,
    "layer": "batchnorm", "group_size": 16, "method": "svd-clip", "eps": 1e-3, "statistics": "whitening",
    "whitening": "pca", "scale_init": "uniform", "spectral_precision": "float64", "keep": 0.5, "pooling": "covariance",
    "reduce_to": 16, "init": "runs/a", "epochs": 9, "batch_size": 64, "lr": 0.5, "classifier_lr": 0.5, "momentum": 0.5,
    "weight_decay": 0.5, "milestones": (1, 2), "gamma": 0.5, "precision": "bfloat16", "clip": 1.0, "seed": 3,
    "weights": "ow", "nog": True, "olr": True, "hybrid": "svd", "warmup_epochs": 0, "renew_batches": 0, "patience": 0,
    "form": "published", "power": 0.25, "normalize": True, "postpone": True, "ol_weight": 0.5,
}  # fmt: skip


def name(config):
    return run_name(config, "small", PRESETS["small"])


def test_runs_that_differ_in_any_number_have_folders_of_their_own():
    assert set(OTHER) == set(FIELDS) - CHANGEABLE_FIELDS | {"epochs", "patience"}
    small = PRESETS["small"].replaced(method="svd-pade")
    names = [name(small), *(name(small.replaced(**{field: value})) for field, value in OTHER.items())]
    assert len(set(names)) == len(names)
    assert name(small.replaced(threads=2, workers=2, data=None, tensorboard=False)) == name(small)
    folder = small.replaced(dataset="folder")
    assert name(folder.replaced(data="a")) != name(folder.replaced(data="b"))


def test_names_are_readable_and_suit_every_system():
    small = PRESETS["small"]
    assert name(small.replaced(lr=0.5, milestones=(1, 3))) == "small-exact-seed0-lr=0.5-milestones=1,3"
    assert name(small.replaced(layer="batchnorm")) == "small-batchnorm-seed0"
    assert name(small.replaced(method="svd-clip:threshold=10")) == "small-svd-clip-threshold=10-seed0"
    for strange in ({"init": "../λ/:*?"}, {"network": "my.nets:net"}, {"init": "a" * 300}):
        found = name(small.replaced(**strange))
        assert len(found) < 120
        assert not set(found) & set('/\\:*?"<>| λ')


def test_the_default_is_the_preset_small_and_resuming_finds_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert START == "small"
    assert main(["train", *TINY]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert str(folder.relative_to(tmp_path)) in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "--preset", "small", *TINY])
    assert "already contains a run" in capsys.readouterr().err
    assert main(["train", *TINY, "--resume"]) == 0
    assert list((tmp_path / "runs").iterdir()) == [folder]
    assert main(["train", *TINY, "--lr", "0.3"]) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2
    with pytest.raises(SystemExit):
        options("--help")
    assert "(default: small)" in " ".join(capsys.readouterr().out.split())


def test_a_start_that_fails_leaves_nothing(tmp_path):
    for config, problem in (
        (QUICK.replaced(dataset="cifar10", data=str(tmp_path / "away")), DataError),
        (QUICK.replaced(network="tests.lab.helpers:missing"), NetworkError),
    ):
        with pytest.raises(problem):
            train(config, tmp_path / "runs" / "mine")
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    with pytest.raises(NetworkError):
        train(config, tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []  # a folder that was there stays


def test_a_lock_that_was_removed_since_it_was_opened_is_taken_anew(tmp_path, monkeypatch):
    folder, opened = tmp_path / "run", locks._open
    stale = []

    def late(where):
        handle = opened(where)
        if not stale:
            stale.append(handle)
            (where / LOCK).unlink()
        return handle

    monkeypatch.setattr(locks, "_open", late)
    with sole_writer(folder, Group()):
        assert (folder / LOCK).exists()
        monkeypatch.undo()
        with pytest.raises(locks.RunBusyError), sole_writer(folder, Group()):
            pass
        assert (folder / LOCK).exists()
    assert not folder.exists()


def test_a_person_counts_epochs_from_one(tmp_path, capsys):
    assert main(["train", *TINY, "--out", str(tmp_path / "run")]) == 0
    assert "epoch   1  lr" in capsys.readouterr().out
    with (tmp_path / "run" / "log.csv").open(encoding="utf-8") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1"]
    assert '"epoch": 0' in (tmp_path / "run" / "result.json").read_text("utf-8")  # stored as a position


def full(_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(tmp_path / "a.txt", b"a", durable=True)
    assert caught.value.filename == str(tmp_path / "a.txt")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_a_full_disk_says_what_is_kept(tmp_path, monkeypatch, capsys):
    real, left = checkpoints.write_bytes, [1, 1]  # the two files of the first checkpoint

    def write(path, content, **kwargs):
        if not left:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", full)
                return real(path, content, **kwargs)
        left.pop()
        return real(path, content, **kwargs)

    monkeypatch.setattr(checkpoints, "write_bytes", write)
    assert main(["train", *TINY, "--epochs", "2", "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert "checkpoint-2.safetensors: No space left on device" in said
    assert f"; the last checkpoint is kept. Continue with: spectralgrad train --out {tmp_path / 'run'} --resume" in said
    assert "Errno" not in said
    monkeypatch.undo()
    assert main(["train", "--out", str(tmp_path / "run"), "--resume"]) == 0


LIMITED = """
import resource, sys
from spectralgrad.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_a_start_without_room_leaves_nothing_and_says_why(tmp_path):
    command = [sys.executable, "-c", LIMITED]
    found = subprocess.run(
        [*command, "train", *TINY, "--out", "run"], cwd=tmp_path, capture_output=True, text=True,
        env=environment(),
    )  # fmt: skip
    assert found.returncode == 1
    assert found.stderr.splitlines() == ["spectralgrad train: run/config.toml: File too large; no checkpoint was kept"]
    assert list(tmp_path.iterdir()) == []
