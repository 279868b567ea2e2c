"""Two processes train as one would; they agree on failures; a dead one is noticed."""

import os
import sys
import time

import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.errors import SpectralError
from spectralgrad_lab import train
from spectralgrad_lab.training.config.run_config import ConfigError
from spectralgrad_lab.training.processes import process_group
from spectralgrad_lab.training.processes.process_group import Group, WorkerLostError
from spectralgrad_lab.training.processes.synchronized_norm import synchronize
from spectralgrad_lab.training.storage.checkpoints import load
from spectralgrad_lab.training.storage.resuming import read_result

from .helpers import QUICK, GivingUp, ended, pair, steady

pytestmark = [
    pytest.mark.runs,
    pytest.mark.skipif(
        sys.platform != "linux" or not torch.distributed.is_available(), reason="two processes over gloo's loopback"
    ),
    pytest.mark.xdist_group("parallel"),  # or each worker of pytest-xdist would make the runs
]
# The last batch has 19 images: shares of 9 and 10.
STEADY = QUICK.replaced(network="tests.lab.helpers:steady", train_size=83, weights="ol", clip=5.0)


FAILING = QUICK.replaced(network="tests.lab.test_parallel:failing_on_the_second", epochs=1)
# The last batch has one image: the first process gets none of it.
POOLED = QUICK.replaced(network="tests.lab.test_parallel:pooled", train_size=17, batch_size=8, monitor_every=1)
RUNS = {
    "backward": FAILING.replaced(network="tests.lab.test_parallel:failing_backward"),
    "early": FAILING.replaced(network="tests.lab.test_parallel:failing_early"),
    "failing": FAILING,
    "loss": FAILING.replaced(network="tests.lab.test_parallel:exploding_on_the_second"),
    "pooled": POOLED,
    "steady": STEADY,
}


def made(folder, names, status):
    """Have two processes make these runs, one after another over connections of their own."""
    files = [folder / f"{name}.toml" for name in names]
    for name, file in zip(names, files, strict=True):
        file.write_text(RUNS[name].to_toml(), "utf-8")
    for code, out, err in ended(pair("tests.lab.workers", folder)):
        assert code == 0, err
        assert out.split() == [word for name in names for word in (name, status)]
    for file in files:
        file.unlink()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder in which pairs of processes have made all runs; after a failure a pair makes no other."""
    folder = tmp_path_factory.mktemp("two")
    names = list(RUNS)
    for name in names[:4]:
        made(folder, [name], "failed")
    made(folder, names[4:], "done")
    return folder


def test_two_processes_equal_one(shared, tmp_path):
    one, two = train(STEADY, tmp_path), read_result(shared / "steady")
    assert [e.train_loss for e in two.epochs] == pytest.approx([e.train_loss for e in one.epochs], rel=1e-5)
    assert [e.test_loss for e in two.epochs] == pytest.approx([e.test_loss for e in one.epochs], rel=1e-4)
    assert [e.condition for e in two.epochs] == pytest.approx([e.condition for e in one.epochs], rel=1e-3)
    a, b = load(tmp_path), load(shared / "steady")
    for name, value in a["model"].items():
        torch.testing.assert_close(b["model"][name], value, rtol=1e-4, atol=1e-5)
    longer = train(STEADY.replaced(epochs=3), shared / "steady", resume=True)  # one process goes on with it
    assert len(longer.epochs) == 3


def test_a_failure_of_one_process_is_recorded_for_all(shared):
    failure = read_result(shared / "failing").failure
    assert (failure.step, failure.layer) == (1, "8")
    assert "expected finite input" in failure.reason


@pytest.mark.parametrize(
    ("name", "layer", "reason"),
    [
        ("early", "4", "matrix_sqrt: expected finite input"),  # the other process waits in the layer after it
        ("backward", None, "eigh: no solver passed the residual test"),
        ("loss", "8", "the loss is not finite"),
    ],
)
def test_the_others_learn_of_a_failure_wherever_they_wait(shared, name, layer, reason):
    failure = read_result(shared / name).failure
    assert (failure.step, failure.epoch, failure.layer) == (1, 0, layer)
    assert failure.reason.startswith(reason)


def test_condition_and_rank_are_the_worst_of_all_processes(shared):
    """Covariance pooling decomposes a matrix an image: each process sees its own. One parameter is not used."""
    one, two = train(POOLED), read_result(shared / "pooled")
    assert [e.rank for e in two.epochs] == [e.rank for e in one.epochs]
    assert [e.rank > 0 for e in two.epochs] == [True, True]
    assert [e.condition for e in two.epochs] == pytest.approx([e.condition for e in one.epochs], rel=1e-2)


def failing_on_the_second(classes):
    return steady(classes).append(Failing())


def failing_early(classes):
    return steady(classes).insert(4, Failing())


def failing_backward(classes):
    return steady(classes).insert(4, FailingBackward())


def exploding_on_the_second(classes):
    return steady(classes).append(Exploding())


def pooled(classes):
    net = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), sg.nn.CovariancePooling(6))
    net.append(nn.Linear(net[2].out_features, classes))
    net[0].register_parameter("unused", nn.Parameter(torch.ones(2)))
    return net


class Exploding(nn.Module):
    passes = 0

    def forward(self, x):
        self.passes += self.training
        return x / 0.0 if self.passes > 1 and os.environ["RANK"] == "1" else x


class FailingBackward(nn.Module):
    passes = 0

    def forward(self, x):
        self.passes += self.training
        return GivingUp.apply(x) if self.passes > 1 and os.environ["RANK"] == "1" else x


class Failing(sg.nn.SpectralModule):
    """Stands for covariance pooling, which does not synchronize: only the second process meets NaN."""

    passes = 0

    def forward(self, x):
        self.passes += self.training
        bad = self.passes > 1 and os.environ["RANK"] == "1"
        return x + 0 * sg.matrix_sqrt(torch.full((2, 2), torch.nan) if bad else torch.eye(2)).sum()


def test_a_dead_worker_ends_the_run_with_a_clear_message(tmp_path):
    config = QUICK.replaced(network="tests.lab.helpers:steady", epochs=10_000, train_size=64)
    (tmp_path / "run.toml").write_text(config.to_toml(), "utf-8")
    flags = ["--config", tmp_path / "run.toml", "--network", config.network, "--out", tmp_path / "run"]
    first, second = pair("spectralgrad", "train", *flags)
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "run" / "checkpoint.json").exists():
            assert time.monotonic() < until
            assert first.returncode is None, first.said()
            time.sleep(0.01)
        second.kill()
        (code, out, err), (_, silence, _) = ended([first, second], 60)
    finally:
        first.kill()
        second.kill()
    assert (code, silence) == (1, "")
    assert "epoch   1" in out
    assert "process 0 of 2 lost another process of this run" in err
    assert f"Continue with: spectralgrad train --out {tmp_path / 'run'} --resume" in err
    assert "Traceback" not in err
    assert load(tmp_path / "run")["tally"]["epoch"] >= 1


def test_which_errors_mean_a_lost_process():
    two = Group(world=2)
    closed = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9000"
    assert two.is_lost_worker(RuntimeError(closed))
    assert two.is_lost_worker(torch.distributed.DistNetworkError("The client socket has timed out"))
    assert not two.is_lost_worker(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not two.is_lost_worker(WorkerLostError(0, 2, RuntimeError("Connection closed by peer")))
    assert not Group().is_lost_worker(RuntimeError("Connection closed by peer"))


def test_synchronized_layers_keep_names_parameters_and_alone_their_numbers():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm2d(3, affine=False)))
    before, parameters = {k: v.clone() for k, v in net.state_dict().items()}, list(net.parameters())
    x = torch.randn(4, 1, 8, 8)
    expected = net(x)
    net.load_state_dict(before)
    synced = synchronize(net)
    assert list(synced.state_dict()) == list(before)
    assert all(a is b for a, b in zip(synced.parameters(), parameters, strict=True))
    assert torch.equal(synced(x), expected)


class Doubling(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    layer = nn.BatchNorm2d(3)
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    return layer


@pytest.mark.parametrize(("layer", "what"), [(Doubling(3), "is Doubling"), (hooked(), "is one with hooks")])
def test_a_batch_normalization_that_does_more_is_refused(layer, what):
    with pytest.raises(ConfigError, match=f"the batch normalization '1' {what}, .* or train in one process"):
        synchronize(nn.Sequential(nn.Conv2d(1, 3, 3), layer))


@pytest.mark.parametrize("name", ["foo", "cuda:99"])
def test_a_device_that_is_not_there_is_told_in_one_line(name):
    said = f"^device: expected auto, cpu, or a GPU that torch can use, got '{name}': .*$"
    with pytest.raises(ConfigError, match=said), process_group.processes(name):
        pass


def test_after_a_failure_the_processes_make_no_other_run(monkeypatch):
    """What they said to each other when it failed may still be on the way."""
    monkeypatch.setattr(process_group, "_failed_before", [True])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(SpectralError, match="start new processes"), process_group.processes("cpu"):
        pass
