"""The study of condition numbers over training: every line of ECCV 2022, Figs 1–5."""

import math

import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.comparison import condition_curves
from spectralgrad_lab.comparison.condition_curves import TASKS, TREATMENTS, Curve, record, train

LINES = [(t, task) for task in TASKS for t in TREATMENTS if (t, task) != ("BN", "pooling")]


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(64, 1, 14, 14, generator=generator), torch.arange(64) % 10
    return {"train": (images, labels), "test": (images, labels)}


@pytest.mark.parametrize(("treatment", "task"), LINES)
def test_every_line_can_be_trained_and_has_the_rank_of_its_inputs(data, treatment, task):
    curve = train(treatment, task, data, steps=2, seed=0)
    full = {"deficient": 16 if "OW" in treatment else 9, "wide": 16, "pooling": 15}[task]
    assert curve.steps == [0, 1]
    assert curve.rank == [full, full]
    assert all(1 <= b <= a <= 1e20 for a, b in zip(curve.condition, curve.with_eps, strict=True))


def test_the_condition_number_is_that_of_the_covariance_without_eps():
    layer, curve, x = nn.Identity(), Curve(), torch.randn(8, 4, 5, 5, dtype=torch.float64)
    handle = record(layer, curve, every=2, eps=0.5)
    for _ in range(3):
        layer(x)
    layer.eval()(x)
    handle.remove()
    C = sg.covariance(x.transpose(0, 1).flatten(1))
    assert curve.steps == [0, 2]
    assert curve.condition[0] == pytest.approx(float(torch.linalg.cond(C)), rel=1e-10)
    assert curve.with_eps[0] == pytest.approx(float(torch.linalg.cond(C + 0.5 * torch.eye(4))), rel=1e-10)


def test_exact_zeros_stay_finite():
    layer, curve = nn.Identity(), Curve()
    record(layer, curve, every=1, eps=0.0)
    layer(torch.zeros(2, 3, 2, 2).index_fill(1, torch.tensor(0), 1.0).cumsum(-1))
    assert curve.rank == [1]
    assert math.isfinite(curve.condition[0])


@pytest.mark.parametrize("treatment", ["SN", "OL", "OL+NOG"])
def test_the_loss_of_orthogonality_and_the_decays_of_a_run(data, treatment, monkeypatch):
    """The loss has the term of OL where the treatment says so; the rate decays after a half and three quarters."""
    calls, decays, schedule = [], [], torch.optim.lr_scheduler.MultiStepLR
    distance = condition_curves.distance_from_orthogonal
    monkeypatch.setattr(condition_curves, "distance_from_orthogonal", lambda x: calls.append(x) or distance(x))
    monkeypatch.setattr(
        torch.optim.lr_scheduler, "MultiStepLR", lambda optimizer, at: decays.append(at) or schedule(optimizer, at)
    )
    train(treatment, "wide", data, steps=8, seed=0)
    assert decays == [[4, 6]]
    assert len(calls) == (8 if "OL" in treatment else 0)
