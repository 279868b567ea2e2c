"""What a run measures on request: times of the layers, smoothness, spectra; top-5 errors and failures in its tables."""

import csv
import json
import math
from time import sleep

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from spectralgrad.cli import main
from spectralgrad.nn import CovariancePooling, DecorrelatedBatchNorm2d
from spectralgrad_lab import Config, Epoch, Result, train
from spectralgrad_lab.comparison.results import RESULTS, ResultsFile, summarize
from spectralgrad_lab.comparison.table import as_text, extra_columns
from spectralgrad_lab.report import report
from spectralgrad_lab.training.config.run_config import RECORDS
from spectralgrad_lab.training.loop.position import Tally
from spectralgrad_lab.training.loop.spectra import measure
from spectralgrad_lab.training.loop.step_times import StepTimer
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.storage.checkpoints import load
from spectralgrad_lab.training.storage.records import Failure

from .helpers import QUICK, Interrupting, numbers

EVERYTHING = ",".join(RECORDS)
TIMES = {"layer_forward_ms", "layer_backward_ms", "forward_ms", "backward_ms"}
QUANTITIES = {
    "smoothness", "first_ratio", "neighbor_ratio", "condition_clamped", "condition_bare", "kept", "kept_share",
    "ties", "smallest_gap",
}  # fmt: skip


class Sleep(torch.autograd.Function):
    """Does nothing for 0.2 s, forward and backward."""

    @staticmethod
    def forward(ctx, x):
        sleep(0.2)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        sleep(0.2)
        return g


class Slow(nn.Module):
    def forward(self, x):
        return Sleep.apply(x)


def lines(folder):
    return [json.loads(line) for line in (folder / "measurements.jsonl").read_text("utf-8").splitlines()]


def plain(result):
    """The numbers of a run without what was measured on request."""
    return [{name: value for name, value in epoch.items() if name != "measured"} for epoch in numbers(result)]


def test_nothing_is_measured_unless_asked_for(tmp_path):
    result = train(QUICK, tmp_path)
    assert [epoch.measured for epoch in result.epochs] == [{}, {}]
    assert not (tmp_path / "measurements.jsonl").exists()


def test_measuring_does_not_change_a_run(tmp_path):
    """Dropout and running statistics in the network would show it."""
    measured = train(QUICK.replaced(record=EVERYTHING, time_layers=True), tmp_path)
    assert plain(measured) == plain(train(QUICK))
    assert set(measured.epochs[-1].measured) == QUANTITIES | TIMES


def test_measurements_are_kept_in_all_files(tmp_path):
    result = train(QUICK.replaced(record="ratios, smoothness", tensorboard=True), tmp_path)
    with (tmp_path / "log.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["first_ratio"]) for row in rows] == [e.measured["first_ratio"] for e in result.epochs]
    assert Result.from_json((tmp_path / "result.json").read_text("utf-8")) == result
    found = lines(tmp_path)
    assert [(row["step"], row["layer"]) for row in found] == [(s, n) for s in (0, 2, 4) for n in ("loss", "1")]
    assert found[0]["smoothness"] > 0
    assert found[1]["first_ratio"] > 1 > found[1]["neighbor_ratio"] > 0
    (events,) = (file.read_bytes() for file in tmp_path.iterdir() if "tfevents" in file.name)
    assert b"measured/1/first_ratio" in events
    assert b"measured/loss/smoothness" in events


def test_a_resumed_run_measures_nothing_twice(tmp_path):
    config = QUICK.replaced(record=EVERYTHING, monitor_every=1)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "parts", progress=Interrupting(2))
    assert load(tmp_path / "parts")["tally"]["measured"]["kept"]
    with (tmp_path / "parts" / "measurements.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "layer": "1", "kept": 9}\n{"step": 4, "lay')
    assert numbers(train(config, tmp_path / "parts", resume=True)) == numbers(whole)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")


def test_records_of_earlier_versions_are_read():
    epoch = Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0)
    row = Result(Config(), "done", [epoch]).to_dict()
    del row["epochs"][0]["measured"], row["config"]["record"], row["config"]["time_layers"]
    assert Result.from_dict(row).epochs == [epoch]
    infinite = Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0, measured={"condition_bare": math.inf})
    result = Result(Config(), "done", [infinite])
    assert Result.from_json(result.to_json()) == result


def test_unknown_quantities_are_refused():
    with pytest.raises(ValueError, match=r"record: expected any of smoothness, ratios, conditions, kept.*got 'rank'"):
        Config(record="ratios,rank")


def test_times_are_those_of_the_spectral_layers():
    net = nn.Sequential(Slow(), nn.Conv2d(1, 4, 1), Slow(), DecorrelatedBatchNorm2d(4), Slow())
    timer = StepTimer(net, torch.device("cpu"))
    net(torch.randn(4, 1, 3, 3)).sum().backward()
    timer.take()
    with timer.timing("forward_ms"):
        y = net(torch.randn(4, 1, 3, 3))
    with timer.timing("backward_ms"):
        y.sum().backward()
    times = timer.take()
    assert 0 < times["layer_forward_ms"] < times["forward_ms"] - 600
    assert 0 < times["layer_backward_ms"] < times["backward_ms"] - 400  # the first layer's input needs no gradient
    with torch.no_grad():
        net(torch.randn(4, 1, 3, 3))
    net.eval()(torch.randn(4, 1, 3, 3)).sum().backward()
    assert timer.take() == {}


def test_spectra_are_measured_as_defined():
    layer = DecorrelatedBatchNorm2d(3, eps=0.5, method="svd-taylor:clamp=2")
    A = torch.diag(torch.tensor([8.5, 4.5, 1.5], dtype=torch.float64))
    found = measure(layer, torch.stack([A, 2 * A]), ("ratios", "conditions"))
    assert found["first_ratio"] == pytest.approx(8.5 / 4.5)
    assert found["neighbor_ratio"] == pytest.approx((4.5 / 8.5 + 1.5 / 4.5) / 2)
    assert found["condition_clamped"] == pytest.approx((8.5 / 2 + 17 / 3) / 2)
    assert found["condition_bare"] == pytest.approx((8 / 1 + 16.5 / 2.5) / 2)


def test_kept_eigenvectors_are_those_of_svd_pi():
    A = torch.diag(torch.tensor([4.0, 2.0, 1.0, 1e-3, 1e-5], dtype=torch.float64))
    kept = {eps: measure(CovariancePooling(5, eps=eps), A, ("kept",)) for eps in (0.0, 1e-2)}
    assert [kept[0.0]["kept"], kept[1e-2]["kept"]] == [3, 3]  # 99.99 % of the energy, and λ ≤ ε
    loose = CovariancePooling(5, method="svd-pi:energy=1:eps=0")
    assert measure(loose, A, ("kept",))["kept"] == 5
    assert measure(loose, A, ("kept",))["kept_share"] == pytest.approx(1)


def test_condition_of_pooling_counts_the_channels_without_positions():
    """The exact method decomposes the 3 × 3 matrix of positions of six channels; the covariance is singular."""
    layer = CovariancePooling(6, method="exact")
    found = measure(layer, torch.eye(3, dtype=torch.float64), ("conditions",))
    assert found["condition_clamped"] == 2.0**52
    assert found["condition_bare"] == math.inf


def test_matrices_that_are_not_finite_are_not_measured():
    assert measure(CovariancePooling(2), torch.full((2, 2), torch.nan), RECORDS) == {}


def many_classes(count=24):
    pictures = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(pictures, torch.arange(count) % 12)


def test_top_five_errors_are_recorded_for_more_than_ten_classes():
    config = QUICK.replaced(network="small", width=2, train_size=None, batch_size=12, patience=0)
    result = train(config, data=(many_classes(), many_classes()))
    top5 = [epoch.test_top5 for epoch in result.epochs]
    assert (result.final_top5, result.best_top5) == (top5[-1], min(top5))
    assert all(error <= epoch.test_error for error, epoch in zip(top5, result.epochs, strict=True))
    assert math.isnan(train(QUICK.replaced(epochs=1)).final_top5)


def runs():
    def epoch(number, error, top5, forward):
        layer = {"layer_forward_ms": forward, "layer_backward_ms": 2 * forward}
        measured = layer | {"forward_ms": 3 * forward, "backward_ms": 4 * forward}
        return Epoch(number, 0.1, 1.5, 50.0, 1.2, error, 2.0, 500.0, 20.0, test_top5=top5, measured=measured)

    done = Result(Config(), "done", [epoch(0, 40.0, 9.0, 1.0), epoch(1, 41.0, 9.5, 3.0)])
    failed = Result(Config(seed=1), "failed", failure=Failure(0, 0, "the gradient is not finite"))
    return [done, failed]


def test_tables_show_top_five_errors_failures_and_times(tmp_path):
    (summary,) = summarize(runs())
    assert (summary.top5, summary.best_top5, summary.measured("layer_backward_ms")) == (9.5, 9.0, 4.0)
    header, _, row = as_text(runs()).splitlines()[:3]
    for name in ("failed", "top-5 %", "best top-5", "layer fwd ms", "net bwd ms"):
        assert name in header
    assert row.split()[-7:] == ["1", "9.50", "9.00", "2.00", "4.00", "6.00", "8.00"]
    for result in runs():
        ResultsFile(tmp_path / RESULTS).append(result)
    page = report(tmp_path).path.read_text("utf-8")
    assert '<td data-label="failed">1</td>' in page
    assert '<td data-label="best top-5">9.00</td>' in page
    assert "<h3>Failures, top-5 errors and times</h3>" in page
    assert "pass of all spectral layers" in page


def test_columns_without_values_are_not_shown():
    done = Result(Config(), "done", [Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0)])
    assert extra_columns(summarize([done])) == ()


def test_the_command_prints_the_times(tmp_path, capsys):
    flags = ["--train-size", "32", "--test-size", "16", "--epochs", "1", "--batch-size", "16", "--width", "2"]
    assert main(["train", *flags, "--no-tensorboard", "--time-layers", "--out", str(tmp_path / "run")]) == 0
    assert "medians of the last epoch: spectral layers " in capsys.readouterr().out


@pytest.mark.parametrize(("method", "ties", "gap"), [("svd", 0, 0.25), ("svd:clamp=2", 2, 0.0)])
def test_ties_and_gaps_are_those_of_the_eigenvalues_that_the_method_uses(method, ties, gap):
    layer = DecorrelatedBatchNorm2d(4, eps=0.1, method=method)
    found = measure(layer, torch.diag(torch.tensor([1.0, 1.5, 2.0, 4.0])).expand(1, 4, 4), ("gaps",))
    assert found == {"ties": ties, "smallest_gap": gap}


def test_an_epoch_has_the_worst_ties_and_gaps_and_the_median_of_the_rest():
    tally = Tally()
    for ties, gap, ratio in ((0.0, 0.5, 1.0), (3.0, 1e-7, 2.0), (0.0, 0.2, 6.0)):
        tally.measure({"ties": ties, "smallest_gap": gap, "first_ratio": ratio})
    assert tally.summaries == {"ties": 3.0, "smallest_gap": 1e-7, "first_ratio": 2.0}
