"""The effective β-smoothness: closed forms, and no trace left behind."""

import copy
import math

import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.diagnostics import Monitor, effective_smoothness
from spectralgrad.testing import with_spectrum

from .small_networks import batch, linear_net


def test_smoothness_of_a_quadratic():
    """L = xᵀHx/2 has ∇L(x) − ∇L(x − αg) = αHg for every α."""
    H, x = with_spectrum([0.5, 2.0, 7.0]), torch.ones(3, dtype=torch.float64, requires_grad=True)
    g = H @ x.detach()
    beta = effective_smoothness(lambda: x @ H @ x / 2, [x], rate=0.3, points=3)
    assert beta == pytest.approx(float((H @ g).norm() / g.norm()), rel=1e-12)
    assert torch.equal(x.detach(), torch.ones(3, dtype=torch.float64))
    assert x.grad is None


def test_smoothness_takes_the_largest_of_the_steps():
    x = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    beta = effective_smoothness(lambda: (x**4).sum() / 4, [x], rate=0.5, points=5)
    turns = [(1 - (1 - a) ** 3) / a for a in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert beta == pytest.approx(max(turns), rel=1e-12)
    zero = torch.zeros(1, requires_grad=True)
    assert effective_smoothness(lambda: (zero**2).sum(), [zero]) == 0
    broken = torch.zeros(1, requires_grad=True)
    assert effective_smoothness(lambda: broken.sqrt().sum(), [broken]) == math.inf
    one = torch.ones(1, requires_grad=True)  # α g = 3/4, 3/2: only the second step leaves the domain
    assert effective_smoothness(lambda: one.sqrt().sum(), [one], rate=3.0, points=2) == math.inf
    assert effective_smoothness(lambda: one.sqrt().sum(), [one], rate=1.5, points=1) < math.inf


def test_parameters_that_the_loss_does_not_use_count_as_constant():
    x, unused = torch.ones(3, dtype=torch.float64, requires_grad=True), torch.ones(2, requires_grad=True)
    assert effective_smoothness(lambda: (x**2).sum(), [x, unused]) == pytest.approx(2, rel=1e-12)


def test_smoothness_leaves_no_trace():
    net = nn.Sequential(linear_net(), nn.BatchNorm1d(3, dtype=torch.float64), nn.Dropout(0.5))
    x, y = batch(0)
    state, random = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with Monitor(net, every=1) as monitor:
        beta = monitor.smoothness(lambda: nn.functional.cross_entropy(net(x), y), points=2)
        monitor.smoothness(lambda: nn.functional.cross_entropy(net(x), y), net[0].parameters(), points=2)
    assert 0 < beta < math.inf
    assert monitor.records == []
    assert monitor.smoothness_records[0] == (0, beta)
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert beta == effective_smoothness(lambda: nn.functional.cross_entropy(net(x), y), net, points=2)
    with pytest.raises(sg.SpectralError, match="parameters that require a gradient, got none"):
        effective_smoothness(lambda: x.sum(), [x])
