"""The scripts in examples/ that load images by the lab run as they are and say what their texts promise."""

import sys

import pytest

from spectralgrad_lab.transfer import read_picture

from ..scripts import numbers, printed


def test_whitening_layer(capsys):
    text = printed("whitening_layer.py", capsys)
    losses = numbers("loss", text)
    assert losses[-1] < 0.5 * losses[0]
    assert "after fusing: Identity" in text
    assert numbers("largest change", text)[0] < 1e-4
    assert numbers("accuracy", text)[0] > 0.7


def test_denoising_layer(capsys):
    torchs, everything, some = numbers("accuracy", printed("denoising_layer.py", capsys))
    assert everything == pytest.approx(torchs, abs=0.02)
    assert 0.5 < torchs < some


def test_pooling_layer(capsys):
    text = printed("pooling_layer.py", capsys)
    mean, second = numbers("accuracy", text)
    assert 0.4 < mean < second
    assert "method at the end: exact" in text


@pytest.mark.runs
def test_shampoo(capsys):
    text = printed("shampoo.py", capsys)
    losses, accuracies = numbers("training loss", text), numbers("test accuracy", text)
    assert len(losses) == len(accuracies) == 3
    assert losses[2] < min(losses[:2])  # Shampoo is the last
    assert accuracies[2] > max(accuracies[:2]) - 0.02


def test_transfer_layer(capsys):
    text = printed("transfer_layer.py", capsys)
    labels = ("content as it is", "half strength", "learnt matrix", "style's own matrix")
    gaps = [numbers(label, text)[0] for label in labels]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-3


def test_picture_transfer(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["picture_transfer.py"])
    text = printed("picture_transfer.py", capsys)
    photo, half, color, _ = numbers("distance from the mean colour of the painting", text)
    assert color < 1e-4 < half < photo
    assert "translation: done" in text
    assert {file.stem for file in (tmp_path / "pictures").glob("*.png")} == {"photo", "half", "color", "translated"}
    assert read_picture(tmp_path / "pictures" / "translated.png").size == (106, 160)
