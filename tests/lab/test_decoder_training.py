"""Training of decoders: the loss falls, runs are resumed to the same numbers, and errors are clear."""

import json
import os
import sys

import pytest
import torch
from PIL import Image

from spectralgrad.cli import main
from spectralgrad_lab.training.config.settings import ConfigError
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.storage.checkpoints import load
from spectralgrad_lab.transfer.features.decoder_files import decoder_file, load_decoder
from spectralgrad_lab.transfer.features.decoder_training import reconstruction_errors, train_decoder
from spectralgrad_lab.transfer.features.encoder_file import load_encoder
from spectralgrad_lab.transfer.pictures.random_crops import RandomCrops

from .. import forked
from .decoder_runs import TINY
from .helpers import Interrupting, ended, pair
from .style_networks import encoder_file, small_decoder
from .test_resume import same
from .translation_runs import pictures

PARTS = ("model", "optimizer", "random", "norms")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return TINY.replaced(images=pictures(folder)["a"], encoder=str(encoder_file(folder)))


@pytest.fixture(scope="module")
def encoder(config):
    return load_encoder(config.encoder, any_weights=True)


@pytest.fixture(scope="module")
def whole(config, encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train_decoder(config, encoder, folder)
    return folder


def rows(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]


def same_run(a, b):
    states = load(a), load(b)
    return rows(a) == rows(b) and all(same(*(state[part] for state in states)) for part in PARTS)


def test_errors_are_those_of_images_and_of_their_features(encoder):
    images, decoder = torch.rand(2, 3, 32, 32), small_decoder(2)
    errors = reconstruction_errors(encoder, decoder, images)
    decoded = decoder(encoder(images, 2))
    assert float(errors["pixels"]) == pytest.approx(float((decoded - images).square().mean()))
    wanted = (encoder(decoded, 2) - encoder(images, 2)).square().mean()
    assert float(errors["features"]) == pytest.approx(float(wanted))


def test_losses_are_relative_to_what_was_measured_before(whole, config, encoder):
    norms = load(whole)["norms"]
    images = torch.cat([RandomCrops(config.images, size=32, resize=40, seed=5).batch(i, 16) for i in range(4)])
    pixels, features = images.transpose(0, 1).flatten(1), encoder(images, 2)
    assert norms["pixels"] == pytest.approx(float(pixels.var(1).mean()), rel=0.3)
    assert norms["features"] == pytest.approx(float(features.square().mean()), rel=0.3)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_loss_falls(config, encoder, level, tmp_path):
    """The errors of new crops against those of the first step."""
    settings = config.replaced(level=level, steps=120, batch_size=4, lr=5e-3)
    result = train_decoder(settings, encoder, tmp_path)
    assert result.status == "done"
    decoder = load_decoder(decoder_file(tmp_path, level), encoder)
    images = RandomCrops(config.images, size=32, resize=40, seed=9).batch(0, 16)
    errors = reconstruction_errors(encoder, decoder, images)
    first, norms = rows(tmp_path)[0], load(tmp_path)["norms"]
    assert float(errors["pixels"]) / norms["pixels"] < 0.5 * first["pixels"]
    assert float(errors["features"]) / norms["features"] < 0.7 * first["features"]


def test_a_run_leaves_its_files(whole, config, encoder):
    names = {path.name for path in whole.iterdir()}
    assert names >= {"config.toml", "result.json", "log.jsonl", "checkpoint.json", "decoder-2.safetensors"}
    assert [row["step"] for row in rows(whole)] == list(range(8))
    decoder, state = load_decoder(whole / "decoder-2.safetensors", encoder), load(whole)["model"]
    for name, tensor in decoder.state_dict().items():
        assert torch.equal(tensor, state[name].half().float())


def test_the_decoder_centres_and_scales_the_features_of_the_images(whole, config, encoder):
    state = load(whole)["model"]
    crops = RandomCrops(config.images, size=32, resize=40, seed=5)
    features = encoder(torch.cat([crops.batch(i, 16) for i in range(4)]), 2).transpose(0, 1).flatten(1)
    assert (state["center"].flatten() - features.mean(1)).abs().max() < 0.3 * features.std()
    assert float(state["scale"]) == pytest.approx(float(features.var(1).mean().sqrt()), rel=0.3)


def test_the_learning_rate_falls_to_zero(whole, config):
    wanted = config.lr * (1 + torch.tensor(torch.pi * 7 / 8).cos()) / 2
    assert load(whole)["optimizer"]["param_groups"][0]["lr"] == pytest.approx(float(wanted))


def test_a_stopped_run_goes_on_to_the_same_numbers(whole, config, encoder, tmp_path):
    for after in (1, 3):
        with pytest.raises(Stopped):
            train_decoder(config, encoder, tmp_path, resume=True, progress=Interrupting(after))
        assert not decoder_file(tmp_path, 2).exists()
    train_decoder(config, encoder, tmp_path, resume=True)
    assert same_run(tmp_path, whole)
    assert decoder_file(tmp_path, 2).read_bytes() == decoder_file(whole, 2).read_bytes()


@pytest.mark.runs
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_killed_run_goes_on_to_the_same_numbers(whole, config, encoder, tmp_path):
    """Killed twice with SIGKILL in a run that saves after every step."""
    saving = config.replaced(checkpoint_minutes=0.0)
    (tmp_path / "run.toml").write_text(saving.to_toml(), "utf-8")
    found = forked.run("-m", "tests.lab.decoder_runs", "kill", tmp_path)
    assert found.returncode == 0, found.stderr
    steps = [int(word) for word in found.stdout.split()]
    assert 0 < steps[0] < steps[1] < 8
    train_decoder(saving, encoder, tmp_path, resume=True)
    assert same_run(tmp_path, whole)
    assert decoder_file(tmp_path, 2).read_bytes() == decoder_file(whole, 2).read_bytes()


@pytest.mark.runs
@pytest.mark.skipif(
    sys.platform != "linux" or not torch.distributed.is_available(), reason="two processes over gloo's loopback"
)
@pytest.mark.xdist_group("parallel")
def test_two_processes_take_the_steps_of_one(whole, config, tmp_path):
    (tmp_path / "run.toml").write_text(config.to_toml(), "utf-8")
    for code, out, err in ended(pair("tests.lab.decoder_runs", "share", tmp_path)):
        assert (code, out.split()) == (0, ["done"]), err
    for wanted, row in zip(rows(whole), rows(tmp_path / "shared"), strict=True):
        assert row == pytest.approx(wanted, rel=1e-3)  # Adam divides gradients by their size: rounding grows
    assert decoder_file(tmp_path / "shared", 2).exists()


def test_another_encoder_or_another_length_is_another_run(whole, config, encoder, tmp_path):
    other = load_encoder(encoder_file(tmp_path, seed=1), any_weights=True)
    with pytest.raises(ConfigError, match="contains another run: encoder_sha256 was"):
        train_decoder(config, other, whole, resume=True)
    with pytest.raises(ConfigError, match="contains another run: steps was 8, is 9"):
        train_decoder(config.replaced(steps=9), encoder, whole, resume=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"level": 6}, "level: expected 1 to 5"), ({"crop": 40}, "multiple of 16"), ({"steps": 0}, "steps: expected")],
)
def test_settings_that_cannot_be(values, said):
    with pytest.raises(ConfigError, match=said):
        TINY.replaced(**values)


class TestCommand:
    def flags(self, config, *more):
        words = {
            "--images": config.images, "--encoder": config.encoder, "--level": 1, "--steps": 3, "--crop": 32,
            "--batch-size": 2, "--log-every": 1,
        }  # fmt: skip
        return ["transfer", "train-decoder", "--any-encoder", "--no-tensorboard"] + [
            str(word) for pair in words.items() for word in pair
        ] + [*map(str, more)]  # fmt: skip

    def refused(self, capsys, words):
        assert main(words) == 1
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1
        return err

    def test_train_then_return(self, config, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(self.flags(config)) == 0
        out = capsys.readouterr().out
        assert "step 3 of 3  pixels " in out
        assert out.splitlines()[-1].startswith("done: 3 steps in ")
        folder = tmp_path / "runs" / "decoders" / "level-1"
        assert (folder / "decoder-1.safetensors").exists()
        assert main(["transfer", "train-decoder", "--out", str(folder), "--resume"]) == 0
        with pytest.raises(SystemExit, match="2"):
            main(self.flags(config))
        assert "already contains a run (done, 3 of 3 steps)" in capsys.readouterr().err

    def test_what_is_missing_or_wrong(self, config, tmp_path, capsys):
        out = tmp_path / "run"
        (tmp_path / "empty").mkdir()
        small = tmp_path / "small"
        small.mkdir()
        Image.new("RGB", (80, 20)).save(small / "thin.png")
        for change, said in (
            (["--images", tmp_path / "none"], "none: no such folder"),
            (["--images", tmp_path / "empty"], "empty: contains no image"),
            (["--images", small], "thin.png: 80×20 pixels are too few"),
            (["--encoder", tmp_path / "none"], "none: no such file. Pass the 13 convolutions of VGG-16"),
            (["--no-any-encoder"], "other weights than those trained on ImageNet"),
        ):
            assert said in self.refused(capsys, self.flags(config, *change, "--out", out))
            assert not out.exists()
        words = ["transfer", "train-decoder", "--images", config.images, "--out", str(out)]
        assert "--encoder is required. Pass the 13 convolutions" in self.refused(capsys, words)
        with pytest.raises(SystemExit, match="2"):
            main(["transfer", "train-decoder", "--encoder", config.encoder, "--out", str(out)])
        assert "--images is required" in capsys.readouterr().err
        with pytest.raises(SystemExit, match="2"):
            main(self.flags(config, "--level", 6, "--out", out))
        assert "level: expected 1 to 5, got 6" in capsys.readouterr().err
        assert not out.exists()
