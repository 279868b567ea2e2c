"""What a run does: learns, keeps its files, treats what it is told to treat, and fails in words."""

import csv
import io
import json
import math
import signal
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.optim import ConditioningWarning
from spectralgrad_lab import Config, Epoch, Result, train
from spectralgrad_lab.commands.train import short_warnings
from spectralgrad_lab.comparison.jobs import Job, Submitit
from spectralgrad_lab.data import load as load_data
from spectralgrad_lab.training.loop.components import build, classifier
from spectralgrad_lab.training.loop.failures import FailureWatch
from spectralgrad_lab.training.loop.progress import Bar, Lines, Silent, Step
from spectralgrad_lab.training.loop.steps import Stepper, _test_counts, batches
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.processes.process_group import Group
from spectralgrad_lab.training.storage import randomness
from spectralgrad_lab.training.storage.checkpoints import CheckpointError, load
from spectralgrad_lab.training.storage.locks import RunBusyError

from .helpers import QUICK, Interrupting, numbers, tiny

SMALL = QUICK.replaced(network="small", width=2, train_size=64, epochs=1)


def components(config, shape=(1, 28, 28)):
    torch.manual_seed(0)
    return build(config, shape, 10, Group())


def step(config, made, images=None):
    data = load_data("fashion", train_size=config.train_size)
    found, labels = next(batches(config, data, Group())[0].epoch(0))
    return Stepper(config, made, FailureWatch(made.net), Group())(found if images is None else images, labels)


def test_it_learns_and_keeps_its_files(tmp_path):
    config = QUICK.replaced(train_size=512, epochs=4, milestones=(2, 3), tensorboard=True)
    result = train(config, tmp_path / "run")
    assert result.status == "done"
    assert result.epochs[-1].train_loss < 0.8 * result.epochs[0].train_loss
    assert result.final_error < 65
    assert [round(e.lr, 6) for e in result.epochs] == [0.05, 0.05, 0.005, 0.0005]
    assert all(e.condition > 1 and e.rank == 6 and e.method == "exact" and e.step_ms > 0 for e in result.epochs)
    assert Config.from_toml(tmp_path / "run" / "config.toml") == config
    assert Result.from_json((tmp_path / "run" / "result.json").read_text("utf-8")) == result
    with (tmp_path / "run" / "log.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["test_error"]) for row in rows] == [e.test_error for e in result.epochs]
    events = [f for f in (tmp_path / "run").iterdir() if "tfevents" in f.name]
    assert b"test_error" in events[0].read_bytes()
    assert b"spectral/1/condition" in events[0].read_bytes()


@pytest.mark.runs
def test_a_run_is_a_function_of_its_configuration_and_leaves_no_trace():
    before, threads = randomness.capture(), torch.get_num_threads()
    first = train(QUICK.replaced(threads=threads + 1, epochs=1))
    assert torch.get_num_threads() == threads
    after = randomness.capture()
    assert all(torch.equal(before[name].nan_to_num(), after[name].nan_to_num()) for name in before)
    torch.rand(1)
    assert numbers(train(QUICK.replaced(threads=threads + 1, epochs=1))) == numbers(first)
    assert numbers(train(QUICK.replaced(threads=threads + 1, epochs=1, seed=1))) != numbers(first)


def test_a_step_is_the_textbook_step_and_clipping_is_off():
    config = QUICK.replaced(network="tests.lab.helpers:steady")
    made, hand = components(config), components(config).net
    step(config, made)
    found, labels = next(batches(config, load_data("fashion", train_size=96), Group())[0].epoch(0))
    optimizer = torch.optim.SGD(hand.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    nn.functional.cross_entropy(hand(found), labels).backward()
    size = nn.utils.get_total_norm([p.grad for p in hand.parameters()])
    optimizer.step()
    for ours, theirs in zip(made.net.parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    clipped = components(config)
    step(config.replaced(clip=0.1 * float(size)), clipped)
    norm = nn.utils.get_total_norm([p.grad for p in clipped.net.parameters()])
    torch.testing.assert_close(norm, 0.1 * size, rtol=1e-4, atol=0)


def test_bfloat16_is_autocast():
    seen = []
    made = components(QUICK)
    made.net[0].register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    made.net[7].register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    step(QUICK.replaced(precision="bfloat16"), made)
    assert seen == [torch.bfloat16, torch.bfloat16]
    assert made.net[1].running_cov.dtype == torch.float32


def test_the_classifier_has_its_own_rate():
    made = components(QUICK.replaced(classifier_lr=0.5, milestones=(1,)))
    body, head = made.optimizer.param_groups
    assert (body["lr"], head["lr"], len(head["params"])) == (0.05, 0.5, 2)
    assert head["params"][0] is classifier(made.net)[1].weight
    step(QUICK, made)
    made.advance()
    assert [round(g["lr"], 6) for g in made.optimizer.param_groups] == [0.005, 0.05]


def test_fine_tuning_takes_all_but_a_classifier_of_other_classes(tmp_path):
    train(QUICK.replaced(epochs=1), tmp_path / "first")
    source = load(tmp_path / "first")["model"]
    for init in (tmp_path / "first", next((tmp_path / "first").glob("*.safetensors"))):
        same = components(QUICK.replaced(init=str(init)))
        assert all(torch.equal(value, source[name]) for name, value in same.net.state_dict().items())
    torch.manual_seed(0)
    other = build(QUICK.replaced(init=str(tmp_path / "first")), (1, 28, 28), 7, Group())
    assert torch.equal(other.net[0].weight, source["0.weight"])
    assert other.net[7].weight.shape == (7, 96)
    with pytest.raises(CheckpointError, match=r"weights of another network.*missing: bn1"):
        components(SMALL.replaced(init=str(tmp_path / "first")))
    with pytest.raises(CheckpointError, match="expected the folder of a run"):
        components(QUICK.replaced(init=str(tmp_path)))


@pytest.mark.parametrize("network", ["tests.lab.helpers:tiny", "small"])
@pytest.mark.parametrize("weights", ["plain", "sn", "ol", "ow"])
def test_weights_of_the_layer_before(network, weights):
    config = QUICK.replaced(network=network, weights=weights, width=2)
    made = components(config)
    first = made.net[0] if network != "small" else made.net.conv1
    assert isinstance(first, sg.nn.OrthogonalConv2d) == (weights == "ow")
    assert (made.penalty is not None) == (weights == "ol")
    if weights == "ol":
        assert made.penalty() == sg.nn.orthogonality_loss(first.weight, side="rows")
    if weights == "sn":
        for _ in range(20):
            made.net(torch.randn(4, 1, 28, 28))
        assert abs(torch.linalg.matrix_norm(first.weight.detach().flatten(1), 2).item() - 1) < 1e-2
    step(config, made)


def test_the_orthogonality_loss_has_a_weight():
    config = QUICK.replaced(weights="ol")
    one, three = components(config), components(config.replaced(ol_weight=3.0))
    assert config.ol_weight == 1.0
    torch.testing.assert_close(three.penalty(), 3 * one.penalty())
    assert components(config.replaced(ol_weight=0)).penalty() == 0


def test_an_orthogonal_weight_needs_a_convolution_that_keeps_the_size():
    with pytest.raises(ValueError, match="'ow': expected a convolution of stride 1"):
        components(QUICK.replaced(network="tests.lab.test_training:oblong", weights="ow"))


def oblong(classes):
    net = tiny(classes)
    net[0] = nn.Conv2d(1, 6, (3, 1), padding=(1, 0))
    return net


@pytest.mark.parametrize("network", ["tests.lab.helpers:tiny", "small"])
def test_nog_and_olr_treat_the_layer_before(network):
    config = QUICK.replaced(network=network, nog=True, olr=True, weights="ow", width=2)
    made = components(config)
    step(config, made)
    first = made.net[0] if network != "small" else made.net.conv1
    values = torch.linalg.svdvals(first.weight.grad.flatten(1))
    kept = values[values > 1e-3]
    torch.testing.assert_close(kept, torch.ones_like(kept), rtol=1e-4, atol=1e-4)
    with pytest.warns(ConditioningWarning, match="Use an orthogonal weight"):
        step(config, components(config.replaced(weights="plain")))


def test_hybrid_switches_before_the_last_milestone():
    config = QUICK.replaced(epochs=4, method="newton-schulz", hybrid="svd-pade", milestones=(1, 3), train_size=64)
    assert [e.method for e in train(config).epochs] == ["newton-schulz"] * 2 + ["svd-pade"] * 2


def test_before_the_switch_an_own_network_keeps_its_methods_unless_it_asks_for_one():
    config = QUICK.replaced(hybrid="svd-pade", milestones=(2,), network="tests.lab.test_training:by_taylor")
    made = components(config)
    assert made.method == "svd-taylor"
    state = made.switch.state_dict()
    step(config, made)
    made.advance()
    assert made.method == "svd-pade"
    made.switch.load_state_dict(state)
    assert made.method == "svd-taylor"
    asking = config.replaced(network="tests.lab.test_training:by_any", method="newton-schulz")
    assert components(asking).method == "newton-schulz"


def by_taylor(classes):
    return by_any(classes, "svd-taylor")


def by_any(classes, method="svd-taylor"):
    net = tiny(classes)
    net[1].method = method
    return net


def test_a_folder_has_one_writer_at_a_time(tmp_path):
    pytest.importorskip("fcntl")

    class Second(Silent):
        def step(self, step):
            with pytest.raises(RunBusyError, match="is being written by another process"):
                train(QUICK, tmp_path, resume=True)

    config = QUICK.replaced(epochs=1, train_size=32)
    assert train(config, tmp_path, progress=Second()).status == "done"
    assert train(config, tmp_path, resume=True).status == "done"  # it is free again


class Handle:
    """Stands for a job of a cluster."""

    def __init__(self, result):
        self.value, self.cancelled = result, False

    def done(self):
        return self.value is not None

    def result(self):
        return self.value

    def cancel(self, check):
        self.cancelled = True


def test_jobs_of_a_cluster_are_cancelled_when_nobody_waits_for_them(tmp_path):
    handles = [Handle(Result(QUICK, "done")), Handle(None)]
    engine, left = Submitit.__new__(Submitit), list(handles)
    engine._executor = SimpleNamespace(batch=nullcontext, submit=lambda *_: left.pop(0))
    engine._as_completed = lambda sent, poll_frequency: iter(sent)
    running = engine.run([Job(name, QUICK, tmp_path / name) for name in "ab"])
    assert next(running)[1].status == "done"
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt)
    assert [handle.cancelled for handle in handles] == [False, True]


def test_data_that_are_missing_are_told_in_one_line(tmp_path, capsys):
    assert main(["train", "--dataset", "cifar10", "--data", str(tmp_path), "--out", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("spectralgrad train: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_keeps_its_checkpoint_and_says_how_to_go_on(number, status, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("spectralgrad_lab.commands.train.for_terminal", lambda: Interrupting(2, number))
    arguments = [
        "--network",
        "tests.lab.helpers:tiny",
        "--train-size",
        "96",
        "--batch-size",
        "32",
        "--out",
        str(tmp_path),
    ]
    assert main(["train", "--no-tensorboard", *arguments]) == status
    assert f"Continue with: spectralgrad train --out {tmp_path} --resume" in capsys.readouterr().err
    assert load(tmp_path)["tally"]["step"] == 3  # the step during which the signal came was finished
    assert json.loads((tmp_path / "result.json").read_text("utf-8"))["status"] == "running"


def test_a_second_interrupt_does_not_wait(tmp_path):
    class Twice(Silent):
        def step(self, step):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        train(QUICK, tmp_path, progress=Twice())
    assert not isinstance(caught.value, Stopped)


def test_the_bar_shows_loss_error_speed_and_condition():
    console = pytest.importorskip("rich.console")
    stream = io.StringIO()
    bar = Bar(console.Console(file=stream, force_terminal=True, width=160))
    bar.start(Result(Config(epochs=3)))
    bar.step(Step(0, 3, 31, 2.1234, 81.25, 512.0, 1.5e5))
    bar._bar.refresh()
    bar.epoch(Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0, 1e5, 9, "exact"))
    bar.stop(Result(Config()))
    for words in ("epoch 1 of 3", "loss 2.123", "error 81.2 %", "512 images/s", "κ 1.5e+05", "test 1.2000  40.00 %"):
        assert words in stream.getvalue()


def test_without_a_terminal_there_is_a_line_an_epoch():
    stream = io.StringIO()
    train(QUICK.replaced(train_size=64), progress=Lines(stream))
    assert [line[:9] for line in stream.getvalue().splitlines()] == ["epoch   1", "epoch   2"]


def test_warnings_are_one_line_on_the_command_line():
    before = warnings.formatwarning
    with short_warnings():
        said = warnings.formatwarning(UserWarning("mind this"), UserWarning, "some/file.py", 3)
    assert said == "UserWarning: mind this\n"
    assert warnings.formatwarning is before


def test_the_top_five_are_told_for_more_than_ten_classes():
    scores = torch.zeros(4, 100)
    scores[:, :6] = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert _test_counts(scores, torch.tensor([0, 4, 5, 99]))[1:] == [3.0, 2.0, 4.0]
    assert _test_counts(scores[:, :11], torch.tensor([0, 4, 5, 10]))[1:] == [3.0, 2.0, 4.0]
    assert math.isnan(_test_counts(scores[:, :10], torch.tensor([0, 4, 5, 9]))[2])
    told = io.StringIO()
    Lines(told).epoch(Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0, test_top5=12.5))
    assert "top-5 12.50 %" in told.getvalue()


def test_statistics_are_renewed_before_the_test_and_kept(tmp_path):
    """With none renewed, the running statistics are those of the last steps."""
    states = {}
    for count in (0, 2):
        train(SMALL.replaced(renew_batches=count), tmp_path / str(count))
        states[count] = load(tmp_path / str(count))["model"]
    assert int(states[0]["bn1.num_batches_tracked"]) == 2
    assert torch.equal(states[0]["conv1.weight"], states[2]["conv1.weight"])
    assert not torch.equal(states[0]["bn1.running_cov"], states[2]["bn1.running_cov"])
