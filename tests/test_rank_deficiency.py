"""Gap rules on singular matrices: on the null space a matrix function has no gap, whatever the rule says of ties."""

from itertools import product

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.rules import METHODS, GapMethod
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import FUNCTIONS, REAL, gradient, in_turn, noise, pairs, symmetric_noise, unit

pytestmark = pytest.mark.usefixtures("both_ways")

DOUBLE = torch.float64
# The rules that leave resolved gaps as they are, so that they agree with the exact gradient.
TRUTHFUL = ("svd", "svd-trunc", "svd-topn", "svd-pade", "masked")
ON_RANGE = ("sqrt", "inv_sqrt", "log", "power", "inverse")


def _features(d, n, dtype, seed=0):
    return torch.randn(d, n, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("method", [name for name, kind in METHODS.items() if issubclass(kind, GapMethod)])
def test_pooling_trains_where_there_are_fewer_positions_than_channels(method, dtype):
    """256 channels of 13×13 positions, the ICCV paper's AlexNet: 88 eigenvalues are rounding noise."""
    X = _features(256, 169, dtype).relu().reshape(1, 256, 13, 13).requires_grad_()
    sg.nn.CovariancePooling(256, method=method)(X).square().sum().backward()
    assert bool(torch.isfinite(X.grad).all())
    assert X.grad.norm() > 0


@in_turn("method, name", product(TRUTHFUL, ON_RANGE), dtype=[*REAL, torch.complex128])
def test_gap_rules_give_the_derivative_of_constant_rank(method, name, dtype):
    A, G = with_spectrum([0.0] * 5 + [0.5, 0.8, 1.3], dtype=dtype), symmetric_noise(8, dtype)
    expected = gradient(FUNCTIONS[name], A, G)
    g = gradient(lambda X: FUNCTIONS[name](X, method=method), A, G)
    assert relative_error(g, expected) < 100 * unit(dtype)


@pytest.mark.parametrize("name", ON_RANGE)
@pytest.mark.parametrize("method", TRUTHFUL)
def test_second_order_of_gap_rules_along_a_path_of_constant_rank(method, name):
    B, C, G = _features(6, 2, DOUBLE), _features(6, 2, DOUBLE, seed=1), symmetric_noise(6)
    loss = lambda t: (FUNCTIONS[name]((B + t * C) @ (B + t * C).mT, method=method) * G).sum()  # noqa: E731
    t, h = torch.tensor(0.1, dtype=DOUBLE), 1e-5
    expected = (grad(loss)(t + h) - grad(loss)(t - h)) / (2 * h)
    assert_close(grad(grad(loss))(t), expected, rtol=1e-5, atol=1e-6)
    leaf = t.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    assert_close(torch.autograd.grad(first, leaf)[0], expected, rtol=1e-5, atol=1e-6)


@in_turn("name, method", pairs(ON_RANGE), rank=[1, 3])
def test_no_intermediate_result_is_nan(name, method, rank):
    """So that torch's anomaly detection, with which users look for NaN, does not stop here."""
    A = with_spectrum([0.0] * (6 - rank) + [1.0, 0.5, 0.3][:rank]).requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        (FUNCTIONS[name](A, method=method) * noise(6, 6)).sum().backward()


def test_plain_svd_of_singular_matrices_under_transforms():
    A = torch.stack([with_spectrum([0.0] * 3 + [0.5, 1.3], seed=seed) for seed in range(3)])
    f = lambda X: sg.matrix_sqrt(X, method="svd")  # noqa: E731
    assert_close(jacfwd(f)(A[0]), jacrev(f)(A[0]))
    loss = lambda X: f(X).square().sum()  # noqa: E731
    assert_close(vmap(grad(loss))(A), gradient(lambda X: f(X).square(), A, torch.ones_like(A)))


@pytest.mark.parametrize("name", ON_RANGE)
def test_a_tie_within_the_range_keeps_the_textbook_gradient(name):
    """Plain svd hides no tie of eigenvalues that the function sees."""
    A = torch.diag(torch.tensor([0.0, 0.0, 0.5, 0.5, 1.3], dtype=DOUBLE))
    g = gradient(lambda X: FUNCTIONS[name](X, method="svd"), A, symmetric_noise(5))
    assert not bool(torch.isfinite(g).all())


@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt"])
@pytest.mark.parametrize("method", TRUTHFUL)
def test_second_derivatives_of_gap_rules_are_exact_in_directions_that_raise_the_rank(method, name):
    """The gap between range and null space is λ itself, which does not move with the noise that stands for zero."""
    B = _features(5, 2, DOUBLE)
    A, G, E = B @ B.mT, symmetric_noise(5, DOUBLE, seed=1), symmetric_noise(5, DOUBLE, seed=2)

    def second(rule):
        slope = lambda X: (grad(lambda Y: (FUNCTIONS[name](Y, method=rule) * G).sum())(X) * E).sum()  # noqa: E731
        return grad(slope)(A)

    assert_close(second(method), second("exact"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [8, 12, 24, 40, 64, 96])
@pytest.mark.parametrize("dtype", [*REAL, torch.complex64, torch.complex128], ids=str)
def test_the_null_vector_of_a_graph_laplacian_is_found(dtype, d):
    """Exactly singular matrices, whose computed eigenvalue zero is rounding noise below the tolerance 3 √d ε‖A‖."""
    generator = torch.Generator().manual_seed(d)
    edges = torch.triu(torch.rand(200, d, d, generator=generator) < torch.rand(200, 1, 1, generator=generator), 1)
    edges = (edges | edges.mT).to(dtype)
    connected = edges.abs().sum(-1).amin(-1) > 1
    A = (torch.diag_embed(edges.sum(-1)) - edges)[connected]
    w = sg.eigh(A).eigenvalues
    assert bool((w[:, 0].abs() < 3 * d**0.5 * torch.finfo(dtype).eps * w[:, -1]).all())
    inverse = sg.matrix_inv_sqrt(A)
    # Inverted noise would make this at least 1/√(3 √d ε‖A‖), which is 38 or more here (float32, d = 96, ‖A‖ < 192).
    assert_close(inverse @ torch.ones(d, 1, dtype=dtype), torch.zeros(len(A), d, 1, dtype=dtype), rtol=0, atol=2e-3)
