"""The optimal rate: Eq. 20, and the true minimiser against numerical optimisation."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from spectralgrad.optim import optimal_rate


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(W, G, rate):
    """Eq. 18 as it is printed."""
    U = (W - rate * G).numpy()
    return np.linalg.norm(U @ U.T - np.eye(len(U)))


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (8, 3, 3, 3)], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_exact_is_the_global_minimiser(shape, seed):
    W, G = gaussian(*shape, seed=seed) / 3, gaussian(*shape, seed=seed + 50)
    rate = float(optimal_rate(W, G, objective="exact"))
    W, G = W.flatten(1), G.flatten(1)
    best = objective(W, G, rate)
    grid = np.linspace(-2, 2, 4001)
    assert best <= min(objective(W, G, x) for x in grid) + 1e-12
    near = minimize_scalar(lambda x: objective(W, G, x), bounds=(rate - 0.01, rate + 0.01), options={"xatol": 1e-12})
    assert abs(near.x - rate) < 1e-6  # √ε, what a minimum of values can show


@pytest.mark.parametrize("seed", range(20))
def test_exact_below_a_limit_is_the_minimiser_on_the_interval(seed):
    W, G = gaussian(5, 5, seed=seed), gaussian(5, 5, seed=seed + 50)
    W = W / (4 if seed % 2 else 1)
    rate = float(optimal_rate(W, G, objective="exact", limit=0.5))
    grid = np.linspace(0, 0.5, 2001)[1:]
    values = np.array([objective(W, G, x) for x in grid])
    falls = np.flatnonzero((values[1:-1] < values[:-2]) & (values[1:-1] < values[2:]))
    assert 0 < rate <= 0.5
    if len(falls) == 0:  # monotone or a maximum inside: the ends only, and 0 is no step
        assert rate == 0.5
    assert objective(W, G, rate) <= min(objective(W, G, 0.5), *(values[falls + 1] + 1e-9), np.inf)


def test_the_limit_of_the_papers_formula():
    W = torch.eye(3, dtype=torch.float64)
    assert float(optimal_rate(W, 2 * W, limit=0.5)) == pytest.approx(1 / 6)
    assert float(optimal_rate(W, 2 * W, limit=0.1)) == 0.1
    assert float(optimal_rate(W, -2 * W, limit=0.1)) == 0.1  # η* < 0, which Eq. 21 would use
    zero = torch.zeros(3, 3)
    for kind in ("paper", "exact"):
        assert float(optimal_rate(W, zero.double(), objective=kind, limit=0.1)) == 0.1
        assert float(optimal_rate(W, zero.double(), objective=kind)) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("kind", ["paper", "exact"])
def test_the_rate_is_inverse_to_the_gradient(scale, kind):
    W, G = gaussian(4, 5).float(), gaussian(4, 5, seed=1).float()
    plain, scaled = (float(optimal_rate(W, g, objective=kind)) for g in (G, G * scale))
    assert scaled * scale == pytest.approx(plain, rel=1e-5)


def test_exact_rate_is_the_limit_where_every_step_is_worse_than_none():
    """W is orthogonal; a step along −G leaves it, and comes to a local minimum farther on that is no better."""
    W = torch.diag(torch.tensor([1.0, 1.0], dtype=torch.float64))
    G = torch.diag(torch.tensor([2.0, 1.7], dtype=torch.float64))  # at η = 1 it is diag(−1, −0.7)
    rates = torch.linspace(1e-3, 2, 2000, dtype=torch.float64)
    f = torch.stack([torch.linalg.matrix_norm((W - r * G) @ (W - r * G).T - torch.eye(2)) for r in rates])
    assert ((f[1:-1] < f[:-2]) & (f[1:-1] < f[2:])).any()  # there is such a local minimum
    assert (f > 0).all()
    assert optimal_rate(W, G, objective="exact", limit=2.0) == 2.0


@pytest.mark.parametrize("shape", [(3, 4), (4, 3)])
def test_exact_rate_of_complex_weights_is_the_global_minimiser(shape):
    generator = torch.Generator().manual_seed(0)
    W, G = torch.randn(2, *shape, dtype=torch.complex128, generator=generator)
    side = (lambda M: M @ M.mH) if shape[0] <= shape[1] else (lambda M: M.mH @ M)
    identity = torch.eye(min(shape), dtype=torch.complex128)
    distance = lambda rate: float((side(W - rate * G) - identity).norm())  # noqa: E731
    best = float(optimal_rate(W, G, objective="exact"))
    assert all(distance(best) <= distance(float(rate)) + 1e-12 for rate in torch.linspace(-3, 3, 2001))
