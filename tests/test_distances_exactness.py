"""N1, N3: distances and gradients against 50 digits, at ties, at rank deficiency and for nearly equal matrices."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import Reference, relative_error, with_spectrum

from . import distances
from .helpers import REAL, unit

DOUBLE = torch.float64
# Integers, so that products are exact: the stored matrices have exactly this rank.
FACTORS = {
    "regular": ([[2, 1, 0], [0, 1, 1], [1, 0, 3]], [[1, 0, 0], [1, 2, 0], [0, 1, 1]]),
    "tie": ([[2, 0, 0], [0, 2, 0], [0, 0, 2]], [[1, 0, 0], [0, 1, 0], [0, 0, 3]]),
    "commuting-ties": ([[1, 0, 0], [0, 1, 0], [0, 0, 2]], [[3, 0, 0], [0, 3, 0], [0, 0, 3]]),
    "equal": ([[2, 1, 0], [0, 1, 1], [1, 0, 3]], [[2, 1, 0], [0, 1, 1], [1, 0, 3]]),
    "rank-two-and-three": ([[2, 1, 0, 1], [0, 1, 1, -1]], [[1, 0, 0, 2], [1, 2, 0, 0], [0, 1, 1, 1]]),
    "equal-rank-one": ([[2, 1, 0]], [[2, 1, 0]]),
    "tied-rank-two": ([[3, 0, 0], [0, 3, 0]], [[0, 1, 0], [1, 0, 0]]),
}
DEFINITE = ("regular", "tie", "commuting-ties", "equal")


def _factors(name, dtype=DOUBLE):
    return [torch.tensor(F, dtype=dtype).requires_grad_() for F in FACTORS[name]]


def _condition(*matrices):
    return max(float(w[-1] / w[w > 1e-10][0]) for w in (torch.linalg.eigvalsh(A.double()) for A in matrices))


def _products(name, dtype=DOUBLE):
    return [(F.mT @ F).detach() for F in _factors(name, dtype)]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", FACTORS)
def test_bures_wasserstein(name, dtype):
    """The gradient arrives at the factors, so that it is defined at any rank."""
    X, Y = _factors(name, dtype)
    value, gX, gY = distances.bures(X.detach().double(), Y.detach().double())
    found = sg.bures_wasserstein(X.mT @ X, Y.mT @ Y)
    size = (X.square().sum() + Y.square().sum()).item()
    assert abs(found.item() - value) < 100 * unit(dtype) * size
    bound = 100 * unit(dtype) * _condition(*_products(name)) * size**0.5
    for g, expected in zip(torch.autograd.grad(found, (X, Y)), (gX, gY), strict=True):
        assert float((g.double() - expected).norm()) < bound


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", FACTORS)
def test_frechet_distance_from_samples(name, dtype):
    """Rows x and −x have mean zero, and half the sum of their squares is that of the factor."""
    X, Y = (torch.cat([F, -F]).detach() for F in _factors(name, dtype))
    value, gX, _ = distances.bures(*(F.detach().double() for F in _factors(name)))
    X.requires_grad_()
    found = sg.frechet_distance(X * len(X) ** 0.5, Y * len(Y) ** 0.5, correction=0) / 2
    size = (X.square().sum() + Y.square().sum()).item()
    assert abs(found.item() - value) < 100 * unit(dtype) * size
    (g,) = torch.autograd.grad(found, X)
    assert float((g[: len(X) // 2].double() - gX / 2).norm()) < 1e3 * unit(dtype) * size**0.5


@pytest.mark.parametrize("name", DEFINITE)
def test_transport_and_riemannian_distances(name):
    A, B = (C.requires_grad_() for C in _products(name))
    bound = 100 * unit(DOUBLE) * _condition(A.detach(), B.detach())
    T = sg.gaussian_transport(A, B)
    assert relative_error(T, distances.transport(A, B)) < bound
    (gA,) = torch.autograd.grad(sg.bures_wasserstein(A, B), A)
    assert_close(gA, torch.eye(3, dtype=DOUBLE) - T.detach(), rtol=0, atol=bound * float(T.detach().norm()))

    value, *gradients = distances.riemannian(A, B)
    found = sg.affine_invariant(A, B)
    assert abs(found.item() - value) < bound * (1 + value)
    for g, expected in zip(torch.autograd.grad(found, (A, B)), gradients, strict=True):
        assert float((g - expected).norm()) < bound * (1 + float(expected.norm()))

    found = sg.log_euclidean(A, B)
    step = Reference(A).value("log") - Reference(B).value("log")
    assert abs(found.item() - float(step.square().sum())) < bound * (1 + value)
    for g, C, sign in zip(torch.autograd.grad(found, (A, B)), (A, B), (1, -1), strict=True):
        expected = Reference(C).gradient("log", 2 * sign * step)
        assert float((g - expected).norm()) < bound * (1 + float(expected.norm()))


def test_singular_matrices_of_equal_range():
    """They are compared on their range, where the distances are those of the smaller matrices."""
    basis = torch.linalg.qr(torch.randn(5, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)))[0]
    a, b = with_spectrum([0.5, 2.0, 2.0], seed=1), with_spectrum([1.0, 1.0, 3.0], seed=2)
    A, B = (basis @ c @ basis.mT for c in (a, b))
    for f in (sg.bures_wasserstein, sg.log_euclidean, sg.affine_invariant):
        assert_close(f(A, B), f(a, b))
    assert_close(sg.gaussian_transport(A, B), basis @ sg.gaussian_transport(a, b) @ basis.mT)


def test_transport_of_a_singular_gaussian_leaves_its_range():
    """The covariance of Tx is B for any B of the same rank, also if its range is another one."""
    X, Y = torch.randn(2, 2, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    A, B = X.mT @ X, Y.mT @ Y
    T = sg.gaussian_transport(A, B)
    assert_close(T @ A @ T, B)
    assert_close(T, T.mT)


@pytest.mark.parametrize("name", ["gaussian_transport", "log_euclidean", "affine_invariant"])
def test_gradients_along_a_path_of_constant_rank(name):
    """Four positions of a fourth-order difference, at rank 2 of 4: of both matrices one range that turns, or two."""
    f = distances.PAIRS[name][0]
    X, Y, D = torch.randn(3, 2, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    G = with_spectrum([1.0, -1.0, 0.5, 0.3])

    def loss(t):
        F = X + t * D
        if name == "gaussian_transport":
            return (f(F.mT @ F, Y.mT @ Y) * G).sum()
        return f(F.mT @ F, F.mT @ (Y @ Y.mT + t * G[:2, :2]) @ F)

    t, h = torch.tensor(0.0, dtype=DOUBLE, requires_grad=True), 1e-3
    slope = (8 * (loss(h) - loss(-h)) - loss(2 * h) + loss(-2 * h)) / (12 * h)
    (g,) = torch.autograd.grad(loss(t), t)
    assert_close(g, slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("step", [1e-2, 1e-5, 1e-8, 1e-11])
def test_nearly_equal_matrices(step):
    """The distance of A and (1 + ε)²A is ε √tr A. A sum of traces would be wrong by 1e-8 here."""
    A = with_spectrum([0.3, 1.0, 1.0, 2.0])
    found = sg.bures_wasserstein(A, (1 + step) ** 2 * A, squared=False)
    expected = step * 4.3**0.5
    assert abs(found.item() - expected) < 100 * unit(DOUBLE)


@pytest.mark.parametrize(("size", "resolved"), [(1e-3, 1), (1e-7, 1), (1e-9, 0)])
def test_features_below_the_rank_tolerance_count_as_constant(size, resolved):
    """Uncorrelated features have the gradient 2(1 − σ₂/σ₁)x/(n − 1); the limit is stated in the docstring."""
    generator = torch.Generator().manual_seed(0)
    X, Y = torch.randn(2, 50, 4, dtype=DOUBLE, generator=generator)
    X, Y = (torch.linalg.qr(Z - Z.mean(0)).Q * torch.tensor([1.0, 1.0, 1.0, size], dtype=DOUBLE) for Z in (X, Y))
    X.requires_grad_()
    (g,) = torch.autograd.grad(sg.frechet_distance(X, 3 * Y), X)
    expected = 2 * (1 - 3) * torch.tensor([1, 1, 1, resolved]) * X.detach() / 49
    assert ((g - expected).norm(dim=0) <= 100 * unit(DOUBLE) * X.detach().norm(dim=0)).all()


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_no_distance_is_negative(dtype):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 6, 4, dtype=DOUBLE, generator=generator).to(dtype)
    Y = X * (1 + 1e-7 * torch.randn(200, 6, 4, dtype=DOUBLE, generator=generator).to(dtype))
    A, B = X @ X.mT, Y @ Y.mT
    for f in (sg.bures_wasserstein, sg.frechet_distance):
        assert bool((f(A, B) >= 0).all())
        # Eigenvalues that count as zero in one matrix but not in the other are rounding errors u‖A‖.
        assert bool((f(A, A) <= 64 * unit(dtype) * A.square().sum((-2, -1)).sqrt()).all())


def test_the_usual_formula_agrees():
    """The moments of the samples, and eigenvalues of the product of the covariances, as FID code computes them."""
    X, Y = distances.samples("many")
    C1, C2 = torch.cov(X.mT), torch.cov(Y.mT)
    cross = torch.linalg.eigvals(C1 @ C2).sqrt().real.sum()
    expected = (X.mean(0) - Y.mean(0)).square().sum() + (C1 + C2).trace() - 2 * cross
    assert_close(sg.frechet_distance(X, Y), expected)
    assert_close(sg.gaussian_wasserstein(X.mean(0), C1, Y.mean(0), C2), expected)


def test_float32_resolves_small_singular_values_of_both_matrices():
    """The eigenvalues of A⁻¹B have the ratio 1e-12, which is far below the resolution of float32."""
    A, B = torch.diag(torch.tensor([1.0, 1e-3, 1e-6])), torch.diag(torch.tensor([1e-6, 1e-3, 1.0]))
    expected = 2 * torch.tensor(1e6, dtype=DOUBLE).log().square()
    assert_close(sg.affine_invariant(A, B).double(), expected, rtol=1e-6, atol=0)
