"""N16 for the gradients of matrix functions: eigenvalues of very different size, against mpmath."""

import pytest
import torch

import spectralgrad as sg

from .helpers import noise
from .range_references import assert_gradient, blocks_of

pytestmark = pytest.mark.usefixtures("both_ways")

SINGLE, DOUBLE = torch.float32, torch.float64
GRADED = {
    "single 2.5": (SINGLE, 2.5, (1.0, 1e-14, 0.0)),
    "single 1.5": (SINGLE, 1.5, (1.0, 1e-30, 0.5)),
    "single 3.5": (SINGLE, 3.5, (1.0, 1e-15, 2e-15)),
    "single 3": (SINGLE, torch.tensor(3.0), (1.0, 1e-12, 0.0)),
    "single -1.5": (SINGLE, -1.5, (1.0, 1e20, 1e12)),
    "double 2.5": (DOUBLE, 2.5, (1.0, 1e-120, 0.0)),
    "large 2.5": (DOUBLE, 2.5, (1e200, 1.0, 2.0)),
    "large 1.5": (DOUBLE, 1.5, (2.0**1000, 2.0**400, 1.0)),
    "large 0.75": (DOUBLE, 0.75, (2.0**1000, 2.0**400, 1.0)),
}


def _gradient(f, A, G):
    A = A.clone().requires_grad_()
    return torch.autograd.grad(f(A), A, G)[0]


# An eigensolver finds small eigenvalues to many digits only if the matrix is diagonal.
CASES = [(name, turned) for name in GRADED for turned in (False, True) if not turned or GRADED[name][1] >= 1]


@pytest.mark.parametrize(("name", "turned"), CASES)
def test_powers_of_eigenvalues_of_very_different_size(name, turned):
    dtype, p, sizes = GRADED[name]
    blocks = blocks_of(sizes, dtype, turned)
    A = torch.block_diag(*blocks)
    for G in (torch.ones_like(A), noise(*A.shape, dtype=dtype, seed=3)):
        found = _gradient(lambda A: sg.matrix_power(A, p, rtol=0.0), A, G)
        assert_gradient(found, blocks, "power", float(p), G, 64)


def test_a_power_whose_smaller_values_underflow():
    A = torch.diag(torch.tensor([1.0, 1e-20, 0.0]))
    found = _gradient(lambda A: sg.matrix_power(A, 2.5, rtol=0.0), A, torch.ones(3, 3))
    torch.testing.assert_close(found.diagonal(), torch.tensor([2.5, 2.5e-30, 0.0]), rtol=1e-6, atol=0)
    torch.testing.assert_close(found[0], torch.tensor([2.5, 1.0, 1.0]), rtol=1e-6, atol=0)
