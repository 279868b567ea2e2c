"""Every tolerance from both sides: what is a little above it counts, what is a little below it does not."""

import pytest
import torch

import spectralgrad as sg
from spectralgrad.autograd import gauge
from spectralgrad.precision import rank_tolerance

from .helpers import REAL, gradient, noise

pytestmark = pytest.mark.usefixtures("both_ways")


def permuted(values, dtype):
    """Signed permutations of a diagonal matrix: its singular values are these exactly."""
    M = torch.zeros(len(values), len(values), dtype=dtype)
    for row, value in enumerate(values):
        M[row, (row + 1) % len(values)] = value if row else -value
    return M


def symmetric(values, dtype):
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))
    return torch.diag(torch.tensor(values, dtype=torch.float64)[order]).to(dtype)


def _steep(f, M):
    """The size of the gradient for a random cotangent."""
    return float(gradient(f, M, noise(*M.shape, dtype=M.dtype)).abs().max())


def _rank_of_gradient(f, M):
    g = gradient(f, M, torch.ones((), dtype=M.dtype)).double()
    return int((torch.linalg.svdvals(g) > 0.25).sum())


# name → the tolerance (None for the default), and whether a value of a given size counts
CASES = {
    "polar": (None, lambda x, t: _steep(sg.polar, permuted([1.0, x, x], t)) > 10),
    "polar, rtol": (1e-3, lambda x, t: _steep(lambda M: sg.polar(M, rtol=1e-3), permuted([1.0, x, x], t)) > 10),
    "nuclear_norm": (None, lambda x, t: _rank_of_gradient(sg.nuclear_norm, permuted([1.0, 1.0, x], t)) == 3),
    "spectral_norm": (None, lambda x, t: _rank_of_gradient(sg.spectral_norm, permuted([1.0, 1 - x, 0.5], t)) == 1),
    "singular_value_function, rtol": (
        1e-3,
        lambda x, t: (
            float(sg.singular_value_function(permuted([1.0, 0.5, x], t), torch.reciprocal, rtol=1e-3).abs().max()) > 10
        ),
    ),
    "matrix_inv_sqrt": (None, lambda x, t: float(sg.matrix_inv_sqrt(symmetric([1.0, 0.5, x], t)).max()) > 10),
    "matrix_inv_sqrt, rtol": (
        1e-3,
        lambda x, t: float(sg.matrix_inv_sqrt(symmetric([1.0, 0.5, x], t), rtol=1e-3).max()) > 10,
    ),
    "matrix_power, rtol": (
        1e-3,
        lambda x, t: float(sg.matrix_power(symmetric([1.0, 0.5, x], t), -1, rtol=1e-3).max()) > 10,
    ),
    "matrix_log": (None, lambda x, t: float(sg.matrix_log(symmetric([1.0, 0.5, x], t)).min()) < -2),
}


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_tolerance_from_both_sides(name, dtype):
    tolerance, counts = CASES[name]
    tolerance = rank_tolerance(3, dtype) if tolerance is None else tolerance
    assert counts(1.2 * tolerance, dtype)
    assert not counts(0.8 * tolerance, dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_ties_of_the_gauge_from_both_sides(dtype):
    step = 64 * torch.finfo(dtype).eps
    for share, number in ((0.75, 4), (1.25, 2)):
        w = torch.tensor([-2.0, 2 * share * step - 2.0, 1.0, 1.0], dtype=dtype)
        assert int(gauge.tied(w).sum()) - 4 == number
