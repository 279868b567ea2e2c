"""The scripts in examples/ run as they are and say what their texts promise."""

import re
import runpy
from pathlib import Path

import pytest

from . import forked

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def output(name: str) -> str:
    """What a script prints in a process of its own, with warnings as errors."""
    code = (
        "import runpy, sys, warnings; warnings.simplefilter('error'); runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    return forked.run("-c", code, EXAMPLES / name, timeout=120, check=True).stdout


def printed(name: str, capsys) -> str:
    """As :func:`output`, in this process, which has imported torch already."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def numbers(label: str, text: str) -> list[float]:
    return [float(x) for x in re.findall(rf"{re.escape(label)}\s*([-+]?[\d.]+(?:e[-+]?\d+)?|[-+]?nan)", text)]


def test_every_example_is_short_and_tested():
    scripts = {path.name: len(path.read_text("utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    functions = {"whitening.py", "learnable_power.py", "procrustes.py"}
    layers = {"whitening_layer.py", "denoising_layer.py", "pooling_layer.py", "transfer_layer.py"}
    training = {"conditioning.py", "hybrid_training.py"}
    assert set(scripts) == functions | layers | training
    assert max(scripts.values()) < 40


def test_whitening():
    text = output("whitening.py")
    assert "rank 9" in text
    assert numbers("spectralgrad", text) == pytest.approx(numbers("finite difference", text), rel=1e-6)
    (without,) = numbers("ε = 0", text)
    assert without != without


def test_learnable_power():
    learnt = numbers("p =", output("learnable_power.py"))
    assert learnt[0] == 1
    assert learnt[-1] == pytest.approx(0.3, abs=1e-4)


def test_procrustes():
    text = output("procrustes.py")
    angles = numbers("off by", text)
    assert angles[0] > 5 > 0.2 > angles[-1]
    assert numbers("trust in false matches", text)[-1] < 0.02
    (torch_way,) = numbers("torch.linalg.svd", text)
    (ours,) = numbers("polar", text)
    assert torch_way != torch_way
    assert ours == ours


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


def test_transfer_layer(capsys):
    text = printed("transfer_layer.py", capsys)
    labels = ("content as it is", "half strength", "learnt matrix", "style's own matrix")
    gaps = [numbers(label, text)[0] for label in labels]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-3


def test_conditioning():
    lines = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in output("conditioning.py").splitlines()}
    assert set(lines) == {"plain", "NOG", "OLR"}
    assert len({values[0] for values in lines.values()}) == 1  # the same start
    assert len({tuple(values) for values in lines.values()}) == 3  # and another way from there


def test_hybrid_training():
    text = output("hybrid_training.py")
    epochs = [line.split() for line in text.splitlines()[:-1]]
    assert epochs[:8] == epochs[8:]
    assert [name for _, name, _ in epochs[:8]] == ["newton-schulz"] * 4 + ["svd-pade"] * 4
    assert [rate for _, _, rate in epochs[:8]] == ["0.1"] * 3 + ["0.01"] * 3 + ["0.001"] * 2
    assert "the same weights: True" in text
