"""The monitor: what it records is true, costs nothing in between, and stays out of the way of everything else."""

import copy
import csv
import io
import math
import pickle
import threading

import numpy as np
import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.diagnostics import Monitor, Record
from spectralgrad.diagnostics.records import look
from spectralgrad.nn import SpectralModule
from spectralgrad.testing import with_spectrum

from .small_networks import Whitening, backward, batch, linear_net


class Given(SpectralModule):
    """Decomposes whatever it is given."""

    operation = "sqrt"

    def forward(self, A):
        return sg.matrix_sqrt(self.watched(A), method=self.method)


def watch(A, method="exact", **options):
    layer = Given(method)
    with Monitor(layer, every=1, **options) as monitor:
        A = A.clone().requires_grad_()
        layer(A).sum().backward()
    return monitor.records[0], A.grad


def test_the_quantities_are_those_of_the_matrices():
    batch = torch.stack([with_spectrum([0.1, 0.5, 0.6, 1.0]), with_spectrum([0.01, 0.4, 0.8, 2.0], seed=1)])
    record, gradient = watch(batch)
    assert (record.step, record.layer, record.method, record.matrices, record.size) == (0, "", "exact", 2, 4)
    assert record.condition == pytest.approx(200)
    assert record.condition_median == pytest.approx(10)  # torch's median is the lower of two
    assert record.rank == 4
    assert record.ties == 0
    assert record.gap == pytest.approx(0.1)
    assert record.dominance == pytest.approx(2.5)
    assert record.eigenvalues == pytest.approx((0.01, 0.4, 0.8, 2.0))
    assert record.gradient_norm == pytest.approx(float(gradient.norm()))
    assert (record.cut, record.cut_most) == (0, 0)


def test_the_condition_number_is_given_with_and_without_eps():
    """ECCV 2022 reports that of the covariance, to which the layer adds ε before it decomposes it."""
    layer = sg.nn.DecorrelatedBatchNorm2d(4, eps=0.5, compute_dtype=torch.float64)
    X = torch.randn(8, 4, 5, 5, dtype=torch.float64)
    with Monitor(layer, every=1) as monitor:
        layer(X)
    (record,) = monitor.records
    w = torch.linalg.eigvalsh(sg.covariance(X.transpose(0, 1).flatten(1)))
    assert record.condition_bare == pytest.approx(float(w[-1] / w[0]))
    assert record.condition == pytest.approx(float((w[-1] + 0.5) / (w[0] + 0.5)))
    plain, _ = watch(with_spectrum([0.1, 0.5, 1.0]))
    assert plain.condition_bare == plain.condition


def test_ties_rank_and_singular_matrices():
    record, _ = watch(torch.diag(torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)))
    assert (record.rank, record.ties, record.gap, record.condition) == (3, 1, 0.0, math.inf)
    nothing, _ = watch(torch.zeros(3, 3))
    assert (nothing.rank, nothing.condition, nothing.gap) == (0, math.inf, 0)
    single, _ = watch(torch.ones(1, 1))
    assert (single.condition, single.ties, single.dominance != single.dominance) == (1, 0, True)


def test_the_share_that_the_method_cuts():
    """Taylor deletes x^(K+1) of each entry, twice over six off-diagonal ones."""
    record, _ = watch(with_spectrum([0.5, 0.9, 1.0]), sg.Taylor(degree=9))
    ratios = np.array([0.5 / 0.9, 0.5, 0.9]) ** 10
    assert record.cut == pytest.approx(ratios.mean())
    assert record.cut_most == pytest.approx(ratios.max())
    tied, _ = watch(torch.diag(torch.tensor([1.0, 1.0, 4.0])), "svd-taylor")
    assert tied.cut_most == 1
    iterated, _ = watch(with_spectrum([0.5, 0.9, 1.0]), "newton-schulz")
    assert math.isnan(iterated.cut)


def test_only_every_nth_training_pass_is_recorded():
    net = linear_net()
    monitor = Monitor(net, every=3)
    for seed in range(8):
        backward(net, seed)
    net.eval()
    backward(net, 0)
    assert [r.step for r in monitor.records] == [0, 3, 6]
    assert monitor.series("rank") == ([0, 3, 6], [5.0, 5.0, 5.0])
    monitor.close()
    monitor.close()
    backward(net.train(), 0)
    assert len(monitor.records) == 3
    assert "3 records" in repr(monitor)
    assert "newton" not in repr(monitor)


def test_gradients_are_the_same_with_and_without_it():
    plain, watched = linear_net(), linear_net()
    with Monitor(watched, every=1):
        backward(watched)
    backward(plain)
    for x, y in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(x.grad, y.grad)


def test_a_sample_of_many_matrices():
    many = torch.stack([with_spectrum([0.5, 1.0], seed=s) for s in range(50)] + [with_spectrum([0.001, 1.0])])
    record, _ = watch(many, sample=4)
    assert record.matrices == 51
    assert record.condition == pytest.approx(2)
    assert watch(many, sample=51)[0].condition == pytest.approx(1000)


def test_fallbacks_of_the_solver_are_counted(monkeypatch):
    """The papers' failure times: LAPACK's refusals, here pretended."""
    from spectralgrad.solvers.call_counts import counts

    net = linear_net()
    with Monitor(net, every=1) as monitor:
        for rescued in (0, 3, 1):
            for _ in range(rescued):
                counts.rescued("float64")
            backward(net)
    assert [r.fallbacks for r in monitor.records] == [0, 3, 1]
    assert [r.failures for r in monitor.records] == [0, 0, 0]


def test_matrices_that_are_not_finite_are_recorded_not_raised():
    record = Record(0, "", "exact", 1, 2)
    look(record, torch.full((1, 2, 2), torch.nan), sg.Exact(), 16)
    assert math.isnan(record.condition)
    look(record, torch.zeros(0, 2, 2), sg.Exact(), 16)
    assert math.isnan(record.condition)


def test_csv(tmp_path):
    path = tmp_path / "log.csv"
    for _ in range(2):  # a second run goes on in the same file
        net = linear_net(method="newton-schulz")
        with Monitor(net, every=1, csv=path):
            backward(net, 0)
            net(batch(1)[0])  # no backward pass
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    assert [row["step"] for row in rows] == ["0", "1"] * 2
    assert float(rows[0]["gradient_norm"]) > 0
    assert rows[1]["gradient_norm"] == ""
    assert rows[0]["cut"] == ""
    assert float(rows[0]["condition"]) > 1
    with pytest.raises(FileNotFoundError):
        Monitor(net, csv=tmp_path / "none" / "log.csv")


@pytest.mark.parametrize("uses", [2, 3])
def test_a_layer_used_several_times_in_one_pass(uses, tmp_path):
    net = linear_net()
    with Monitor(net, every=1, csv=tmp_path / "log.csv") as monitor:
        for seed in range(2):
            x, y = batch(seed)
            sum(nn.functional.cross_entropy(net(x * (i + 1)), y) for i in range(uses)).backward()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "log.csv").read_text("utf-8"))))
    written = {int(row["step"]): float(row["gradient_norm"] or "nan") for row in rows}
    assert len(rows) == len(written) == 2 * uses
    assert written == {record.step: record.gradient_norm for record in monitor.records}


def test_records_without_a_gradient_are_written_all_the_same(tmp_path):
    net, path = linear_net(), tmp_path / "log.csv"
    with Monitor(net, every=1, csv=path), torch.no_grad():
        for _ in range(20):
            net(batch(0)[0])
        assert 10 < len(path.read_text("utf-8").splitlines()) <= 21
    assert [row["step"] for row in csv.DictReader(io.StringIO(path.read_text("utf-8")))] == [str(i) for i in range(20)]


class Writer:
    def __init__(self):
        self.scalars, self.histograms = {}, []

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value

    def add_histogram(self, tag, values, step):
        assert bool(torch.isfinite(values).all())
        self.histograms.append((tag, len(values), step))


def test_tensorboard_by_any_writer():
    writer, net = Writer(), linear_net()
    with Monitor(net, every=1, tensorboard=writer) as monitor:
        backward(net)
    assert writer.scalars["spectral/1/condition", 0] == monitor.records[0].condition
    assert writer.scalars["spectral/1/gradient_norm", 0] == monitor.records[0].gradient_norm
    assert writer.histograms == [("spectral/1/log10_eigenvalues", 5, 0)]


def test_eigenvalues_below_single_precision_have_a_logarithm():
    writer = Writer()
    watch(torch.diag(torch.tensor([1e-60, 1e-3, 1.0], dtype=torch.float64)), tensorboard=writer)
    assert writer.histograms == [("spectral/layer/log10_eigenvalues", 3, 0)]


def test_tensorboard_itself(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (extra [dev])")
    from torch.utils.tensorboard import SummaryWriter

    net = linear_net()
    with SummaryWriter(tmp_path) as writer, Monitor(net, every=1, tensorboard=writer):
        backward(net)
    assert next(iter(tmp_path.glob("events*"))).stat().st_size > 500


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    net = nn.Sequential(linear_net(), nn.Linear(3, 3, dtype=torch.float64), Whitening())
    with Monitor(net, every=1) as monitor:
        for seed in range(3):
            backward(net, seed)
    figure = monitor.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 5000
    first = figure.axes[0]
    assert first.get_title() == "condition number"
    for line, layer in zip(first.get_lines(), ("0.1", "2"), strict=True):
        assert line.get_ydata().tolist() == monitor.series("condition", layer)[1]
    Monitor(net).plot()  # nothing recorded yet


def test_copies_are_not_watched_and_nothing_is_saved():
    net = linear_net()
    monitor = Monitor(net, every=1)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        backward(copied)
    assert monitor.records == []
    assert net.state_dict().keys() == linear_net().state_dict().keys()


def test_several_threads():
    net = linear_net()
    monitor = Monitor(net, every=2)

    def work(seed):
        x, y = batch(seed)
        for _ in range(10):
            nn.functional.cross_entropy(net(x), y)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.step for r in monitor.records) == list(range(0, 40, 2))
    assert all(r.condition > 1 for r in monitor.records)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpoints_do_not_count_twice(use_reentrant):
    net, plain = linear_net(), linear_net()
    x, y = batch(0)
    with Monitor(net, every=1) as monitor, Monitor(plain, every=1) as expected:
        for _ in range(2):
            hidden = net[0](x)
            white = torch.utils.checkpoint.checkpoint(net[1], hidden, use_reentrant=use_reentrant)
            nn.functional.cross_entropy(net[3](net[2](white)), y).backward()
            backward(plain)
    assert [r.step for r in monitor.records] == [0, 1]
    assert monitor.series("gradient_norm")[1] == pytest.approx(expected.series("gradient_norm")[1], rel=1e-12)


def test_torch_func_is_let_pass():
    net = linear_net()
    x = torch.randn(3, 16, 6, dtype=torch.float64)
    with Monitor(net, every=1) as monitor:
        mapped = torch.func.vmap(net)(x)
    assert monitor.records == []
    torch.testing.assert_close(mapped[1], net(x[1]))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's own, after a graph break
def test_compiled_models_are_watched():
    net = linear_net()
    compiled = torch.compile(net, backend="eager")
    x, _ = batch(0)
    with Monitor(compiled, every=1) as monitor:
        compiled(x).square().sum().backward()
    assert [(r.layer, r.step) for r in monitor.records] == [("_orig_mod.1", 0)]
    assert monitor.records[0].gradient_norm > 0


def test_a_scaler_is_divided_out():
    norms = []
    for scale in (1.0, 1024.0):
        net, scaler = linear_net(), torch.amp.GradScaler("cpu", init_scale=scale)
        x, y = batch(0)
        with Monitor(net, every=1, scaler=scaler) as monitor:
            scaler.scale(nn.functional.cross_entropy(net(x), y)).backward()
        norms.append(monitor.records[0].gradient_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-12)


def test_bad_requests_say_what_is_wanted():
    with pytest.raises(sg.SpectralError, match=r"a model with a spectral layer .*got Linear without one"):
        Monitor(nn.Linear(2, 2))
    with pytest.raises(sg.SpectralError, match="every to be an integer ≥ 1, got 0"):
        Monitor(linear_net(), every=0)
    with pytest.raises(sg.SpectralError, match=r"a monitored layer \('1'\), got 'conv1'"):
        Monitor(linear_net()).series("rank", "conv1")
