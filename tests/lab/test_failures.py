"""A run that diverges is a record: the step, the layer, its spectrum, the reason."""

import json
import math

import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.errors import SolverError
from spectralgrad.solvers.call_counts import counts
from spectralgrad_lab import Config, Epoch, Result, train
from spectralgrad_lab.training.loop.components import build
from spectralgrad_lab.training.loop.failures import DivergedError, FailureWatch, Patience
from spectralgrad_lab.training.loop.steps import Stepper
from spectralgrad_lab.training.processes.process_group import Group
from spectralgrad_lab.training.processes.surroundings import SolverFailures
from spectralgrad_lab.training.storage import checkpoints

from .helpers import QUICK, GivingUp, tiny

SMALL = QUICK.replaced(network="small", width=2, train_size=64, epochs=1)


def test_plain_svd_is_a_recorded_failure(tmp_path):
    result = train(SMALL.replaced(method="svd"), tmp_path)
    assert (result.status, result.epochs, result.failure.step) == ("failed", [], 0)
    assert result.failure.reason == "the gradient is not finite"
    assert result.failure.layer == "bn1"
    spectrum = torch.tensor(result.failure.spectrum)
    assert len(spectrum) == 64
    assert int((spectrum < 0.0101).sum()) == 55  # nine taps of one channel: rank 9 of 64, the rest is ε
    assert json.loads((tmp_path / "result.json").read_text("utf-8"))["failure"]["layer"] == "bn1"


def test_a_loss_that_is_not_finite_names_the_first_layer():
    config = QUICK.replaced(network="tests.lab.test_failures:exploding")
    failure = train(config).failure
    assert (failure.reason, failure.layer) == ("the loss is not finite", "8")


def test_a_test_loss_that_is_not_finite_is_a_failure():
    result = train(QUICK.replaced(network="tests.lab.test_failures:exploding_in_the_test", epochs=1))
    assert (result.status, result.epochs) == ("failed", [])
    assert (result.failure.reason, result.failure.layer) == ("in evaluation: the loss is not finite", "8")


def exploding_in_the_test(classes):
    class Last(nn.Module):
        def forward(self, x):
            return x if self.training else x / 0.0

    return tiny(classes).append(Last())


def exploding(classes):
    return tiny(classes).append(Exploding())


class Exploding(nn.Module):
    def forward(self, x):
        return x / 0.0


def test_what_a_layer_refuses_is_a_failure_with_its_last_good_spectrum():
    made = build(QUICK, (1, 28, 28), 10, Group())
    stepper = Stepper(QUICK, made, FailureWatch(made.net), Group())
    good, labels = torch.randn(8, 1, 28, 28), torch.arange(8)
    stepper(good, labels)
    with pytest.raises(DivergedError, match="expected finite input") as caught:
        stepper(torch.full_like(good, math.nan), labels)
    assert caught.value.layer == "1"
    assert len(caught.value.spectrum) == 6


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_a_solver_that_gives_up_is_a_failure(place):
    failure = train(QUICK.replaced(network=f"tests.lab.test_failures:unsolvable_{place}")).failure
    assert failure.reason.startswith("eigh: no solver passed the residual test")
    assert failure.spectrum == (1.0, 1.0, 1.0)
    assert failure.layer == ("8" if place == "forward" else None)


class Unsolvable(sg.nn.SpectralModule):
    def forward(self, x):
        raise SolverError("eigh", (), torch.eye(3), ["torch"], None)


def unsolvable_forward(classes):
    return tiny(classes).append(Unsolvable())


def unsolvable_backward(classes):
    class Last(nn.Module):
        def forward(self, x):
            return GivingUp.apply(x)

    return tiny(classes).append(Last())


def test_a_loss_that_never_falls_is_a_failure():
    config = QUICK.replaced(lr=0.0, weight_decay=0.0, train_size=510, batch_size=5, epochs=4, patience=2)
    result = train(config.replaced(network="tests.lab.test_failures:guessing"))
    assert len(result.epochs) == 2
    assert result.failure.reason.startswith("the loss does not fall: 2 epochs at or above 2.280")
    assert (result.failure.layer, len(result.failure.spectrum)) == ("1", 6)


def test_the_stopping_rule_outlives_a_kill_after_the_last_checkpoint(tmp_path, monkeypatch):
    config = QUICK.replaced(lr=0.0, weight_decay=0.0, train_size=255, batch_size=5, epochs=2, patience=2)
    config = config.replaced(network="tests.lab.test_failures:guessing", renew_batches=0)
    real, saved = checkpoints.save, []

    def dying(folder, state):
        real(folder, state)
        saved.append(state["tally"]["epoch"])
        if saved == [1, 2]:
            raise RuntimeError("killed")

    monkeypatch.setattr(checkpoints, "save", dying)
    with pytest.raises(RuntimeError, match="killed"):
        train(config, tmp_path)
    monkeypatch.undo()
    result = train(config, tmp_path, resume=True)
    assert (result.status, len(result.epochs)) == ("failed", 2)
    assert (result.failure.step, result.failure.epoch, result.failure.layer) == (102, 2, "1")
    assert result.failure.reason.startswith("the loss does not fall: 2 epochs")


def guessing(classes):
    net = tiny(classes)
    nn.init.zeros_(net[7].weight)
    nn.init.zeros_(net[7].bias)
    return net


def test_the_stopping_rule():
    def epochs(*losses):
        return [Epoch(i, 0.1, loss, 90.0, loss, 90.0, 1.0, 1.0, 1.0) for i, loss in enumerate(losses)]

    rule = Patience(10, 3)
    assert rule.exhausted(epochs(2.31, 2.30, 2.30), 300)
    assert rule.exhausted(epochs(1.2, 2.31, 2.30, 2.30), 300)  # learnt, and lost it
    assert not rule.exhausted(epochs(2.31, 2.30, 2.30), 20)
    assert not rule.exhausted(epochs(2.31, 2.2, 2.30), 300)
    assert not rule.exhausted(epochs(2.31, 2.31), 300)
    assert not Patience(10, 0).exhausted(epochs(2.31, 2.30, 2.30), 300)


def test_a_failed_run_says_so_and_exits_with_three(tmp_path, capsys):
    arguments = ["train", "--width", "2", "--train-size", "64", "--epochs", "1", "--no-tensorboard"]
    assert main([*arguments, "--method", "svd", "--out", str(tmp_path / "a")]) == 3
    out = capsys.readouterr().out
    assert "failed at step 0 (epoch 1): the gradient is not finite; layer 'bn1', 64 eigenvalues from 0.01 to" in out
    assert main([*arguments, "--method", "svd", "--out", str(tmp_path / "a"), "--resume"]) == 3
    assert main([*arguments, "--out", str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-2].startswith("epoch   1  lr 0.05")
    assert out[-1].startswith("done: error ")
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--out", str(tmp_path / "b")])
    assert stop.value.code == 2
    assert "already contains a run (done, 1 of 1 epochs); pass --resume" in capsys.readouterr().err


def test_a_run_counts_the_matrices_on_which_the_solver_failed_first(monkeypatch):
    """Every rescue during training is counted, and a result read again keeps the number."""
    step, rescues = Stepper.__call__, []

    def rescued(self, *args, **options):
        counts.rescued("float64")
        rescues.append(1)
        return step(self, *args, **options)

    monkeypatch.setattr(Stepper, "__call__", rescued)
    counts.rescued("jitter")  # before the run
    result = train(Config(train_size=64, test_size=32, batch_size=32, epochs=2, monitor_every=0, tensorboard=False))
    assert result.solver_failures == len(rescues) > 1
    assert Result.from_json(result.to_json()).solver_failures == len(rescues)
    assert SolverFailures(5).number == 5
