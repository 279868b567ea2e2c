"""Translation runs: resumed to the same numbers, shared by processes, applied to pictures, and clear about errors."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from spectralgrad.cli import main
from spectralgrad_lab import Config, train
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.storage.checkpoints import load
from spectralgrad_lab.transfer.pictures import read_picture
from spectralgrad_lab.transfer.pictures.random_crops import RandomCrops
from spectralgrad_lab.transfer.translation import Translator, train_translation
from spectralgrad_lab.transfer.translation.generator import Generator

from .. import forked
from .helpers import QUICK, Interrupting, ended, forge, pair
from .test_resume import same
from .translation_runs import TINY, pictures

PARTS = ("model", "optimizers", "random")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return TINY.replaced(**pictures(tmp_path_factory.mktemp("pictures")))


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train_translation(config, folder)
    return folder


def rows(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]


def test_a_run_leaves_its_files(whole):
    names = {path.name for path in whole.iterdir()}
    assert names >= {"config.toml", "result.json", "log.jsonl", "checkpoint.json", "samples"}
    assert sorted(path.name for path in (whole / "samples").iterdir()) == ["000002.png", "000004.png", "000005.png"]
    sheet = read_picture(whole / "samples" / "000005.png").pixels
    assert sheet.shape == (3, 4 * (32 + 8), 8 * 32 + 3 * 4)  # four rows of eight pictures
    assert len(rows(whole)) == 5


def test_the_sheet_shows_content_and_style(whole, config):
    sheet = read_picture(whole / "samples" / "000005.png").pixels
    content, style = sheet[:, 4:36, 4:36], sheet[:, 4:36, 36:68]
    assert torch.equal(content, sheet[:, 4:36, 168:200])  # the style of the other direction
    assert torch.equal(style, sheet[:, 4:36, 136:168])


@pytest.mark.parametrize("method", ["exact", "gd"])
def test_a_stopped_run_goes_on_to_the_same_numbers(method, config, tmp_path):
    config = config.replaced(method=method)
    train_translation(config, tmp_path / "whole")
    for after in (1, 1):
        with pytest.raises(Stopped):
            train_translation(config, tmp_path / "parts", resume=True, progress=Interrupting(after))
    train_translation(config, tmp_path / "parts", resume=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    a, b = load(tmp_path / "parts"), load(tmp_path / "whole")
    assert all(same(a[part], b[part]) for part in PARTS)


@pytest.mark.runs
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_killed_run_goes_on_to_the_same_numbers(whole, config, tmp_path):
    """Killed twice with SIGKILL in a run that saves after every step."""
    saving = config.replaced(checkpoint_minutes=0.0)
    (tmp_path / "run.toml").write_text(saving.to_toml(), "utf-8")
    found = forked.run("-m", "tests.lab.translation_kills", tmp_path)
    assert found.returncode == 0, found.stderr
    steps = [int(word) for word in found.stdout.split()]
    assert 0 < steps[0] < steps[1] < 5
    train_translation(saving, tmp_path, resume=True)
    assert rows(tmp_path) == rows(whole)
    a, b = load(tmp_path), load(whole)
    assert all(same(a[part], b[part]) for part in PARTS)


@pytest.mark.runs
@pytest.mark.skipif(
    sys.platform != "linux" or not torch.distributed.is_available(), reason="two processes over gloo's loopback"
)
@pytest.mark.xdist_group("parallel")
def test_two_processes_equal_one(whole, config, tmp_path):
    shared = {"gradients": config.replaced(method="gd", steps=1), "steady": config}
    for name, settings in shared.items():
        (tmp_path / f"{name}.toml").write_text(settings.to_toml(), "utf-8")
    for code, out, err in ended(pair("tests.lab.translation_runs", tmp_path)):
        assert code == 0, err
        assert out.split() == ["gradients", "done", "steady", "done"]
    for wanted, row in zip(rows(whole), rows(tmp_path / "steady"), strict=True):
        assert row == pytest.approx(wanted, rel=1e-2)  # Adam divides gradients by their size: rounding grows
    train_translation(shared["gradients"], tmp_path / "one")
    # The style loss, 0.07, is a difference of codes of size 1. The image that is coded passes every convolution of a
    # generator, in both runs; the bound is reached if one rounding in each of them goes the same way.
    path = Generator(config.width)
    rounding = 2 * sum(isinstance(layer, nn.Conv2d) for layer in path.modules()) * torch.finfo(torch.float32).eps
    expected = [pytest.approx(row, rel=1e-5, abs=rounding) for row in rows(tmp_path / "one")]
    assert rows(tmp_path / "gradients") == expected
    for name in ("generators", "discriminators"):
        one, two = (gradient(tmp_path / folder, name) for folder in ("one", "gradients"))
        assert float((one - two).norm()) < 1e-3 * float(one.norm())
    longer = train_translation(config.replaced(steps=6), tmp_path / "steady", resume=True)  # one process goes on
    assert longer.step == 6


def gradient(folder, name):
    """All gradients of the first step, as the first moments of Adam have them."""
    moments = load(folder)["optimizers"][name]["state"]
    return torch.cat([moments[index]["exp_avg"].flatten() for index in sorted(moments, key=int)])


def test_processes_that_cannot_share_a_batch_are_refused(config, tmp_path):
    (tmp_path / "odd.toml").write_text(config.replaced(batch_size=3).to_toml(), "utf-8")
    for code, _, err in ended(pair("tests.lab.translation_runs", tmp_path)):
        assert code != 0
        assert "batch_size: expected a multiple of the 2 processes, got 3" in err


def test_several_processes_agree_on_a_failure(config, tmp_path):
    (tmp_path / "wild.toml").write_text(config.replaced(lr=1e30).to_toml(), "utf-8")
    for code, out, err in ended(pair("tests.lab.translation_runs", tmp_path)):
        assert code == 0, err
        assert out.split() == ["wild", "failed"]


class TestCrops:
    def test_crops_are_parts_of_pictures_or_their_mirror_images(self, config):
        crops = RandomCrops(config.a, size=32, resize=100)
        pixels = [read_picture(file).pixels for file in crops.files]
        for crop in crops.batch(3, 4):
            places = [p[:, y : y + 32, x : x + 32] for p in pixels for y in range(9) for x in range(17)]
            assert any(torch.equal(crop, part) or torch.equal(crop.flip(2), part) for part in places)

    def test_steps_and_seeds_have_different_crops(self, config):
        crops = RandomCrops(config.a, size=32, resize=40)
        assert not torch.equal(crops.batch(0, 4), crops.batch(1, 4))
        assert not torch.equal(crops.batch(0, 4), RandomCrops(config.a, size=32, resize=40, seed=1).batch(0, 4))

    def test_memory_changes_nothing(self, config):
        kept, read = (RandomCrops(config.a, size=32, resize=36, memory=m) for m in (2**30, 0))
        assert torch.equal(kept.batch(5, 4), read.batch(5, 4))
        assert len(kept._kept) > 0 == len(read._kept)

    def test_levels_are_filled_and_stay_the_same_levels(self, config):
        crops = RandomCrops(config.a, size=32, resize=40)
        plain, filled = crops.batch(0, 4), crops.batch(0, 4, dequantize=True)
        assert torch.equal((filled * 256).floor(), (plain * 255).round())
        assert len(filled.unique()) > 256
        assert torch.equal(crops.batch(0, 4, rank=1, world=2, dequantize=True), filled[2:])


class TestApply:
    @pytest.mark.parametrize("size", [(32, 32), (37, 50), (5, 3)])
    @pytest.mark.parametrize("to", ["a", "b"])
    def test_any_size(self, whole, size, to):
        image = torch.rand(3, *size)
        made = Translator.load(whole)(image, torch.rand(3, 33, 41), to)
        assert made.shape == (3, *size)
        assert 0 <= made.min() <= made.max() <= 1

    def test_it_is_the_translation_of_the_run(self, whole):
        """The sheet was drawn by the networks of the checkpoint."""
        sheet = read_picture(whole / "samples" / "000005.png").pixels
        content, style, made = (sheet[:, 4:36, x : x + 32] for x in (4, 36, 68))
        found = Translator.load(whole)(content, style)
        assert float((found - made).abs().max()) < 0.51 / 255

    def test_the_command_keeps_transparency(self, whole, tmp_path, capsys):
        picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (21, 35, 4), dtype=np.uint8))
        picture.save(tmp_path / "in.png")
        out = tmp_path / "out.png"
        assert main(["transfer", "apply", str(whole), str(tmp_path / "in.png"), "--style", "cat", "-o", str(out)]) == 0
        assert capsys.readouterr().out == f"{out}: 35×21 pixels\n"
        with Image.open(out) as made:
            assert made.size == (35, 21)
            assert np.array_equal(np.array(made)[..., 3], np.array(picture)[..., 3])

    def test_the_other_direction_is_another_picture(self, whole, tmp_path):
        for to in ("a", "b"):
            words = [str(whole), "coffee", "--style", "cat", "-o", str(tmp_path / f"{to}.png"), "--to", to]
            assert main(["transfer", "apply", *words, "--longest", "64"]) == 0
        a, b = (read_picture(tmp_path / f"{to}.png").pixels for to in ("a", "b"))
        assert a.shape == b.shape
        assert not torch.equal(a, b)


def command(*words):
    return main(["transfer", *map(str, words)])


def flags(config):
    words = {"size": 32, "scales": 1, "width": 2, "group-size": 4, "batch-size": 2, "steps": 3, "log-every": 1}
    return [word for name, value in words.items() for word in (f"--{name}", str(value))] + ["--no-tensorboard"]


class TestCommand:
    def test_train_then_resume(self, config, tmp_path, capsys):
        out = tmp_path / "run"
        assert command("train", "--a", config.a, "--b", config.b, *flags(config), "--out", out) == 0
        said = capsys.readouterr().out
        assert "step 3 of 3  adversarial " in said
        assert said.splitlines()[-1].startswith("done: 3 steps in ")
        assert command("train", "--out", out, "--resume", "--steps", "4") == 0
        assert len(rows(out)) == 4
        with pytest.raises(SystemExit, match="2"):
            command("train", "--a", config.a, "--b", config.b, *flags(config), "--out", out)
        assert "already contains a run (done, 4 of 4 steps)" in capsys.readouterr().err

    def test_a_failed_run_exits_with_3(self, config, tmp_path, capsys):
        words = ["train", "--a", config.a, "--b", config.b, *flags(config), "--lr", "1e30", "--out", tmp_path / "run"]
        assert command(*words) == 3
        said = capsys.readouterr().out
        assert "failed at step 0: the loss is not finite; layer 'discriminators." in said
        assert json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["status"] == "failed"

    @pytest.mark.parametrize("flag", [["--size", "30"], ["--method", "svd-tailor"], ["--steps", "0"], ["--width", "x"]])
    def test_wrong_usage_exits_with_2(self, flag, config, tmp_path, capsys):
        with pytest.raises(SystemExit, match="2"):
            command("train", "--a", config.a, "--b", config.b, *flags(config), *flag, "--out", tmp_path / "run")
        assert "spectralgrad transfer train: error: " in capsys.readouterr().err
        assert not (tmp_path / "run").exists()

    def test_without_folders(self, tmp_path, capsys):
        with pytest.raises(SystemExit, match="2"):
            command("train", "--out", tmp_path / "run")
        assert "pass --a DIR and --b DIR" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


class TestErrors:
    """One line, exit status 1, nothing left behind."""

    def refused(self, capsys, *words):
        assert command(*words) == 1
        err = capsys.readouterr().err
        assert err.startswith("spectralgrad transfer")
        assert len(err.splitlines()) == 1
        return err

    def test_folders_of_images(self, config, tmp_path, capsys):
        empty, small, broken = (tmp_path / name for name in ("empty", "small", "broken"))
        for folder in (empty, small, broken):
            folder.mkdir()
        Image.new("RGB", (80, 31)).save(small / "thin.png")
        (broken / "text.png").write_text("not an image", "utf-8")
        for folder, said in (
            (tmp_path / "none", f"{tmp_path / 'none'}: no such folder"),
            (empty, f"{empty}: contains no image"),
            (small, f"{small / 'thin.png'}: 80×31 pixels are too few for crops of 32×32"),
            (broken, f"{broken / 'text.png'}: not an image"),
        ):
            out = tmp_path / "run"
            assert said in self.refused(capsys, "train", "--a", config.a, "--b", folder, *flags(config), "--out", out)
            assert not out.exists()

    def test_an_output_that_cannot_be_written(self, config, tmp_path, capsys):
        (tmp_path / "file").write_text("mine", "utf-8")
        words = ["train", "--a", config.a, "--b", config.b, *flags(config), "--out", tmp_path / "file" / "run"]
        assert "file" in self.refused(capsys, *words)
        assert (tmp_path / "file").read_text("utf-8") == "mine"

    def test_runs_that_cannot_be_applied(self, whole, tmp_path, capsys):
        other, damaged, changed = (tmp_path / name for name in ("other", "damaged", "changed"))
        train(Config(**{**QUICK.to_dict(), "epochs": 1}), other)
        for folder in (damaged, changed):
            folder.mkdir()
            for file in whole.iterdir():
                if file.is_file():
                    (folder / file.name).write_bytes(file.read_bytes())
        tensors = next(damaged.glob("*.safetensors"))
        tensors.write_bytes(tensors.read_bytes()[:-10])
        text = (changed / "config.toml").read_text("utf-8")
        (changed / "config.toml").write_text(text.replace("width = 2", "width = 3"), "utf-8")
        out = tmp_path / "out.png"
        for folder, said in (
            (tmp_path / "none", "expected the folder of a run of spectralgrad transfer train"),
            (other, "expected a run of spectralgrad transfer train"),
            (damaged, f"{tensors}: the file is damaged"),
            (changed, "the checkpoint belongs to another network than config.toml"),
        ):
            assert said in self.refused(capsys, "apply", folder, "cat", "--style", "coffee", "-o", out)
            assert not out.exists()

    def test_pictures_and_outputs_of_apply(self, whole, tmp_path, capsys):
        (tmp_path / "text.png").write_text("not an image", "utf-8")
        for content, style, out, said in (
            (tmp_path / "none.png", "cat", tmp_path / "out.png", "no such file"),
            ("cat", tmp_path / "text.png", tmp_path / "out.png", "text.png: not an image"),
            ("cat", "coffee", tmp_path / "missing" / "out.png", "does not exist"),
            ("cat", "coffee", tmp_path / "out.xyz", "out.xyz"),
            ("cat", "coffee", tmp_path / "text.png" / "out.png", "text.png is not a folder"),
        ):
            assert said in self.refused(capsys, "apply", whole, content, "--style", style, "-o", out)
            assert not out.exists()
        own = tmp_path / "text.png"
        assert "would be overwritten" in self.refused(capsys, "apply", whole, own, "--style", "cat", "-o", own)
        assert [path.name for path in tmp_path.iterdir()] == ["text.png"]

    def test_no_run_to_resume(self, tmp_path, capsys):
        with pytest.raises(SystemExit) as stop:
            command("train", "--out", tmp_path / "none", "--resume")
        assert stop.value.code == 2
        assert f"there is no run in {tmp_path / 'none'} to resume" in capsys.readouterr().err

    def test_a_checkpoint_of_another_network_is_not_continued(self, whole, config, tmp_path, capsys):
        for file in whole.iterdir():
            if file.is_file():
                (tmp_path / file.name).write_bytes(file.read_bytes())
        content = json.loads((tmp_path / "checkpoint.json").read_text("utf-8"))
        del content["state"]["model"]["generators.a.decode.hops.0.blend"]
        forge(tmp_path, content)
        err = self.refused(capsys, "train", "--out", tmp_path, "--resume", "--steps", "9")
        assert "checkpoint.json: the checkpoint belongs to another network" in err
