"""The study of condition numbers over training: every line of ECCV 2022, Figs 1–5."""

import math

import pytest
import torch
from torch import nn

import spectralgrad as sg
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
