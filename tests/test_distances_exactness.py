"""N1, N3, N7: distances and gradients against 50 digits, at ties, at rank deficiency, complex, and nearly equal."""

from functools import cache

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel
from spectralgrad.testing import relative_error, with_spectrum

from . import distances
from .distances import FACTORS, ONE_RANGE, leaves
from .helpers import REAL, unit

pytestmark = pytest.mark.usefixtures("both_ways")

DOUBLE = torch.float64
SINGULAR_FIRST = [*FACTORS, "rank-three-and-two"]
MEANS = [[1], [-2], [0], [3]]


def _factors(name):
    return FACTORS["rank-two-and-three"][::-1] if name == "rank-three-and-two" else FACTORS[name]


def _products(*factors):
    return [F.mH @ F for F in factors]


def _condition(*matrices):
    """The largest condition number on the range."""
    spectra = [torch.linalg.eigvalsh(A.detach().to(torch.complex128)) for A in matrices]
    return max(float(w[-1] / w[w > 1e-10 * w[-1]][0]) for w in spectra)


def _weight(X):
    """A Hermitian matrix without symmetries, imaginary parts included if X is complex."""
    return with_spectrum([1.0, -2.0, 0.5, 3.0][: X.shape[-1]], dtype=X.dtype)


def _assert_gradients(loss, arguments, expected, bound):
    for g, wanted in zip(torch.autograd.grad(loss, arguments), expected, strict=True):
        assert float((g.to(wanted.dtype) - wanted).norm()) < bound


@cache
def _bures_reference(name):
    return distances.reference(distances.bures, *leaves(FACTORS[name]))


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", FACTORS)
def test_bures_wasserstein(name, dtype):
    """The gradient arrives at the factors, so that it is defined at any rank."""
    X, Y = leaves(FACTORS[name], dtype)
    value, gradients = _bures_reference(name)
    found = sg.bures_wasserstein(*_products(X, Y))
    size = float(X.detach().abs().square().sum() + Y.detach().abs().square().sum())
    assert abs(found.item() - value) < 100 * unit(dtype) * size
    bound = 100 * unit(dtype) * _condition(*_products(*leaves(FACTORS[name]))) * size**0.5
    _assert_gradients(found, (X, Y), gradients, bound)


@pytest.mark.parametrize("name", ["tied-rank-two", "rank-two-and-three", "complex-rank-two"])
def test_gaussian_wasserstein(name):
    X, Y = leaves(FACTORS[name])
    x, y = (X.new_tensor(MEANS[: X.shape[-1]]).mul(k).requires_grad_() for k in (1, -2))
    value, gradients = distances.reference(distances.gaussian, x, X, y, Y)
    found = sg.gaussian_wasserstein(x[:, 0], X.mH @ X, y[:, 0], Y.mH @ Y)
    assert abs(found.item() - value) < 100 * unit(DOUBLE) * value
    _assert_gradients(found, (x, X, y, Y), gradients, 100 * unit(DOUBLE) * _condition(*_products(X, Y)) * value**0.5)


def _samples(name, dtype=DOUBLE):
    """Rows x and −x and a shift: the covariances have the ranks and the ties of the factors."""
    return [torch.cat([F, -F]).detach() + k for F, k in zip(leaves(FACTORS[name], dtype), (1, -2), strict=True)]


@cache
def _frechet_reference(name):
    X, Y = _samples(name)
    return distances.reference(lambda Z: distances.frechet(Z, distances.exact(Y)), X)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", FACTORS)
def test_frechet_distance_from_samples(name, dtype):
    X, Y = _samples(name, dtype)
    value, gradients = _frechet_reference(name)
    found = sg.frechet_distance(X.requires_grad_(), Y)
    assert abs(found.item() - value) < 100 * unit(dtype) * value
    bound = 100 * unit(dtype) * _condition(*_products(*leaves(FACTORS[name]))) * value**0.5
    _assert_gradients(found, (X,), gradients, bound)


@pytest.mark.parametrize("name", SINGULAR_FIRST)
def test_transport(name):
    X, Y = leaves(_factors(name))
    G = _weight(X)
    T = sg.gaussian_transport(*_products(X, Y))
    expected = distances.transport(*(distances.exact(C.detach()) for C in _products(X, Y)))
    bound = 100 * unit(DOUBLE) * _condition(*_products(X, Y))
    assert relative_error(T, distances.tensor(expected).to(T.dtype)) < bound
    _, gradients = distances.reference(distances.weighted_transport(distances.exact(G)), X, Y)
    size = max(1.0, *(float(g.norm()) for g in gradients))
    _assert_gradients((G.conj() * T).real.sum(), (X, Y), gradients, bound * size)


@pytest.mark.parametrize("name", ["regular", "tie", "commuting-ties", "equal", "complex"])
def test_the_gradient_of_the_distance_is_the_identity_minus_the_transport(name):
    A, B = (C.detach().requires_grad_() for C in _products(*leaves(FACTORS[name])))
    T = sg.gaussian_transport(A, B).detach()
    (g,) = torch.autograd.grad(sg.bures_wasserstein(A, B), A)
    bound = 100 * unit(DOUBLE) * _condition(A, B) * float(T.norm())
    assert_close(g, torch.eye(3, dtype=T.dtype) - T, rtol=0, atol=bound)


@pytest.mark.parametrize("name", ONE_RANGE)
@pytest.mark.parametrize("distance", ["log_euclidean", "affine_invariant"])
def test_distances_of_logarithms(distance, name):
    """The range is that of F, which turns; K and L change the matrices on it."""
    F, K, L = leaves(ONE_RANGE[name])
    A, B = _products(K @ F, L @ F)
    value, gradients = distances.reference(getattr(distances, distance), F, K, L)
    found = getattr(sg, distance)(A, B)
    bound = 100 * unit(DOUBLE) * _condition(A, B)
    assert abs(found.item() - value) < bound * (1 + value)
    _assert_gradients(found, (F, K, L), gradients, bound * (1 + max(float(g.norm()) for g in gradients)))


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
    scale = X.detach().norm(dim=0)
    if kernel() is None:  # errors of LAPACK are relative to the largest feature
        scale = scale.max() / size
    assert ((g - expected).norm(dim=0) <= 100 * unit(DOUBLE) * scale).all()


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
