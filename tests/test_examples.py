"""The scripts in examples/ run as they are and say what their texts promise; those of the lab are in tests/lab."""

import pytest

from .scripts import EXAMPLES, numbers, output


def test_every_example_is_short_and_tested():
    scripts = {path.name: len(path.read_text("utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    functions = {"whitening.py", "learnable_power.py", "procrustes.py", "ground_state.py"}
    layers = {"whitening_layer.py", "denoising_layer.py", "pooling_layer.py", "transfer_layer.py"}
    training = {"conditioning.py", "hybrid_training.py", "shampoo.py"}
    assert set(scripts) == functions | layers | training | {"picture_transfer.py"}
    assert scripts.pop("shampoo.py") <= 60  # a whole optimiser
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


def test_ground_state():
    pytest.importorskip("scipy.sparse.linalg")
    text = output("ground_state.py")
    learnt = [float(x) for x in text.split(" as ")[1].split()]
    assert learnt == pytest.approx([0.8, -0.4, 0.2, 0.5], abs=1e-3)


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
