"""N1, N3, N12: the gradient is the true one, at every gap, at deficient rank, and whatever the basis."""

import math

import mpmath
import pytest
import torch
from torch.autograd import gradgradcheck
from torch.func import grad, jvp, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.functions import scalar_functions, user_functions
from spectralgrad.testing import Reference, paired_spectrum, random_orthogonal, relative_error, with_spectrum

from .helpers import DOUBLES, DTYPES, FUNCTIONS, REAL, gradient, matrix, symmetric_noise, unit

pytestmark = pytest.mark.usefixtures("both_ways")

GAPS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 1e-16, 0.0)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("condition", [1e2, 1e4])
@pytest.mark.parametrize("gap", GAPS)
def test_n1_error_is_of_the_order_of_rounding_times_condition(gap, condition, dtype):
    A = with_spectrum(paired_spectrum(8, condition, gap), dtype=dtype)
    G = symmetric_noise(8, dtype)
    reference = Reference(A, digits=50)
    for name in ("sqrt", "inv_sqrt", "log", "exp"):
        error = relative_error(gradient(FUNCTIONS[name], A, G), reference.gradient(name, G))
        assert error <= 100 * unit(dtype) * condition, name


@pytest.mark.parametrize("gap", GAPS)
def test_n1_roots_stay_below_1e_12_where_torch_loses_everything(gap):
    A = with_spectrum(paired_spectrum(8, 1e2, gap))
    G = symmetric_noise(8)
    reference = Reference(A)
    for name in ("sqrt", "inv_sqrt"):
        assert relative_error(gradient(FUNCTIONS[name], A, G), reference.gradient(name, G)) < 1e-12


@pytest.mark.parametrize(("p", "name"), [(0.5, "sqrt"), (-0.5, "inv_sqrt")])
@pytest.mark.parametrize("gap", GAPS)
def test_n1_power_with_a_tensor_exponent_agrees_with_the_roots(gap, p, name):
    """The general divided difference of the power, which the closed forms of the roots bypass."""
    A = with_spectrum(paired_spectrum(8, 1e2, gap))
    G = symmetric_noise(8)
    exponent = torch.tensor(p, dtype=torch.float64)
    g = gradient(lambda X: sg.matrix_power(X, exponent), A, G)
    assert relative_error(g, Reference(A).gradient(name, G)) < 1e-12


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("explicit", [True, False])
def test_n1_general_function_agrees_with_the_closed_form(gap, explicit):
    A = with_spectrum(paired_spectrum(8, 1e2, gap))
    G = symmetric_noise(8)
    df = (lambda x: 1 / x) if explicit else None
    g = gradient(lambda X: sg.matrix_function(X, torch.log, df), A, G)
    assert relative_error(g, Reference(A).gradient("log", G)) < 1e-11


@pytest.mark.parametrize(("name", "slope"), [("sqrt", 0.5), ("inv_sqrt", -0.5), ("log", 1.0), ("power", 0.3)])
def test_n1_at_the_identity_the_gradient_is_the_slope_times_the_cotangent(name, slope):
    G = symmetric_noise(8)
    g = gradient(FUNCTIONS[name], torch.eye(8, dtype=torch.float64), G)
    assert_close(g, slope * G, rtol=4 * unit(torch.float64), atol=0)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt", "log", "power", "inverse"])
@pytest.mark.parametrize("spectrum", ["rank-one", "rank-three"])
def test_n3_rank_deficient_gradient_agrees_with_differences_along_constant_rank(name, spectrum, dtype):
    A = matrix(spectrum, dtype)
    X = random_orthogonal(6, dtype=dtype, seed=5)
    f, G, h = FUNCTIONS[name], symmetric_noise(6, dtype), 1e-5

    def moved(t):
        T = torch.matrix_exp(t * X)
        return (f(T @ A @ T.mH) * G.conj()).sum().real

    slope = (moved(h) - moved(-h)) / (2 * h)
    direction = X @ A + A @ X.mH
    expected = (gradient(f, A, G).conj() * direction).sum().real
    assert_close(expected, slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt", "log", "power"])
def test_n3_values_follow_the_pseudo_inverse_convention(name):
    A = matrix("rank-three")
    w, V = torch.linalg.eigh(A)
    values = {"sqrt": w.sqrt(), "inv_sqrt": w.rsqrt(), "log": w.log(), "power": w**0.3}[name]
    values = torch.where(w > 1e-8, values, 0)
    assert_close(FUNCTIONS[name](A), (V * values) @ V.mH, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt"])
@pytest.mark.parametrize(("method", "order"), [("exact", 3), ("svd", 2), ("masked", 2), ("svd-pade", 2)])
def test_n3_higher_derivatives_in_any_direction_agree_with_differences_along_constant_rank(method, order, name, dtype):
    """The directions leave the set of matrices of rank two, the path of differences does not."""
    generator = torch.Generator().manual_seed(1)
    B, C = torch.randn(2, 4, 2, dtype=dtype, generator=generator)
    G, *directions = torch.randn(order, 4, 4, dtype=dtype, generator=generator)
    slopes = [lambda X: (FUNCTIONS[name](X, method=method) * G.conj()).sum().real]
    for E in directions:
        slopes.append(lambda X, f=slopes[-1], E=E: (grad(f)(X) * E.conj()).sum().real)
    t, h = torch.tensor(0.1, dtype=torch.float64), 1e-5
    for slope in slopes:
        moved = lambda t, slope=slope: slope((B + t * C) @ (B + t * C).mH)  # noqa: E731
        expected = (moved(t + h) - moved(t - h)) / (2 * h)
        assert_close(grad(moved)(t), expected, rtol=1e-6, atol=1e-7)
        assert_close(jvp(moved, (t,), (torch.ones_like(t),))[1], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d", [3, 16, 64])
@pytest.mark.parametrize("share", [1 + 2**-6, 1 - 2**-6])
def test_n3_default_tolerance_is_epsilon_times_eight_or_three_roots_of_the_size(share, d, dtype):
    """Diagonal matrices, whose eigenvalues are known; one of them lies just above or just below the tolerance."""
    small = 3 * share * torch.finfo(dtype).eps * max(8.0, 3 * d**0.5)
    A = torch.diag(torch.tensor([small, 3, *[1] * (d - 2)], dtype=torch.float64)).to(dtype)
    M, G = A[:, :2], torch.zeros(d, 2, dtype=dtype)
    G[2, 0] = 1  # turns the first column out of the plane, at the rate 1/σ
    got = sg.matrix_inv_sqrt(A)[0, 0], gradient(sg.polar, M, G)[2, 0], sg.optim.nearest_orthogonal(M)[0, 0]
    expected = small**-0.5, 1 / small, 1.0
    kept = float(share > 1)
    for value, reference in zip(got, expected, strict=True):
        assert_close(value, torch.tensor(kept * reference, dtype=dtype), rtol=64 * unit(dtype), atol=0)


def test_n3_rank_tolerance_can_be_set():
    A, whole, cut = (with_spectrum(w, seed=1) for w in ([1.0, 1e-3], [1.0, 1e1**1.5], [1.0, 0.0]))
    for rtol, expected in ((None, whole), (0.99e-3, whole), (1.01e-3, cut), (1e-2, cut)):
        assert_close(sg.matrix_inv_sqrt(A, rtol=rtol), expected)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("members", [[0], [1, 2], [3, 4], [1, 2, 3, 4]])
@pytest.mark.parametrize("method", ["svd-pade", "masked", "lorentzian"])
def test_n12_projector_loss_is_exact_at_ties(members, method, dtype):
    """Spectrum (0.5, 1, 1, 2, 2); the loss depends on whole eigenspaces only."""
    A = with_spectrum([0.5, 1, 1, 2, 2], dtype=dtype)
    G = symmetric_noise(5, dtype)

    def projector(X):
        V = sg.eigh(X, method=method).eigenvectors[:, members]
        return V @ V.mH

    w, V = torch.linalg.eigh(A)
    inside = torch.zeros(5, dtype=torch.float64).index_fill(0, torch.tensor(members), 1.0)
    step, gap = inside[:, None] - inside, w[:, None] - w
    weights = torch.where(step != 0, step / torch.where(step != 0, gap, 1), 0)
    expected = V @ (weights * (V.mH @ G @ V)) @ V.mH
    tolerance = 1e-9 if method == "lorentzian" else 1e-12  # its bias is δ² at gap one
    assert relative_error(gradient(projector, A, G), expected) < tolerance


def test_n12_projector_on_the_null_space_is_exact():
    """The null eigenvalues are rounding noise with relative gaps of order one; the loss ignores their vectors."""
    A = matrix("rank-three")
    G = symmetric_noise(6)

    def null_projector(X):
        V = sg.eigh(X).eigenvectors[:, :3]
        return V @ V.mH

    expected = -gradient(lambda X: sg.spectral_projector(X, 3), A, G)
    assert relative_error(gradient(null_projector, A, G), expected) < 1e-12


def test_spectral_projector_has_gradient_only_across_the_cut():
    A = with_spectrum([0.5, 1, 1, 2, 2])
    g = gradient(lambda X: sg.spectral_projector(X, 2), A, symmetric_noise(5))
    V = torch.linalg.eigh(A).eigenvectors
    inner = V.mH @ g @ V
    assert inner[:3, :3].abs().max() < 1e-14
    assert inner[3:, 3:].abs().max() < 1e-14
    assert inner[3:, :3].abs().max() > 1e-2


def test_learnable_exponent_and_parameters_get_their_gradient():
    A = with_spectrum([0.5, 1, 1, 2])
    p = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    sg.matrix_power(A, p).diagonal().sum().backward()
    w = torch.linalg.eigvalsh(A)
    assert_close(p.grad, (w**0.7 * w.log()).sum())
    slope = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    sg.matrix_function(A, lambda x: torch.tanh(slope * x)).diagonal().sum().backward()
    assert_close(slope.grad, (w / torch.cosh(1.3 * w) ** 2).sum())


def test_plain_rule_needs_no_gap_where_only_eigenvalues_are_used():
    """At a tie 1/(λi − λj) is infinite; the cotangent of unused vectors must not meet it."""
    A = torch.diag(torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)).requires_grad_()
    (g,) = torch.autograd.grad(sg.eigh(A, method="svd").eigenvalues.sum(), A)
    assert_close(g, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize(("method", "expected"), [("svd", 0.25), ("masked", 0.0), ("svd-pade", 0.0)])
def test_only_the_plain_rule_blows_up_what_rounding_puts_between_tied_vectors(method, expected):
    """Eigenvalues 4ε apart, a skew cotangent of size ε: the textbook gradient divides one by the other."""
    eps = torch.finfo(torch.float64).eps
    A = torch.diag(torch.tensor([1.0, 1 + 4 * eps], dtype=torch.float64))
    G = torch.tensor([[1.0, eps], [-eps, 1.0]], dtype=torch.float64)
    g = gradient(lambda X: (lambda V: V * V.diagonal().sign())(sg.eigh(X, method=method).eigenvectors), A, G)
    assert_close(g, torch.tensor([[0.0, expected], [expected, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("part", range(3))
def test_discarded_singular_triplets_get_no_gradient(part):
    M = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    triplets = lambda X: (lambda U, S, Vh: (U.mT, S, Vh))(*sg.svd(X, method=sg.TopN(keep=2)))  # noqa: E731
    G = symmetric_noise(5)[: len(triplets(M)[part]), : triplets(M)[part].shape[-1]]
    G = G if part != 1 else G[0]
    assert bool((gradient(lambda X: triplets(X)[part][2:], M, G[2:]) == 0).all())
    assert bool((gradient(lambda X: triplets(X)[part][:2], M, G[:2]) != 0).any())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("share", [1 + 2**-6, 1 - 2**-6])
@pytest.mark.parametrize("wide", [False, True])
def test_singular_values_are_exact_zeros_below_epsilon_to_the_five_thirds(wide, share, dtype):
    """The vectors of a singular value σ turn out of the plane at the rate 1/σ; those of an exact zero do not."""
    small = 3 * share * torch.finfo(dtype).eps ** (5 / 3)
    M, G = torch.zeros(2, 3, 2, dtype=dtype)
    M[0, 0], M[1, 1], G[2, 1] = 3, small, 1
    vectors = (lambda X: sg.svd(X).Vh.mH) if wide else (lambda X: sg.svd(X).U)
    M, G = (M.mH, G) if wide else (M, G)
    signed = lambda X: (lambda U: U * U.detach().diagonal().real.sign())(vectors(X))  # noqa: E731
    got = gradient(signed, M, G)[(1, 2) if wide else (2, 1)]
    assert_close(got, torch.tensor((share > 1) / small, dtype=dtype), rtol=64 * unit(dtype), atol=0)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_root_of_a_covariance_from_positions_has_the_gradient_of_that_from_channels(eps, center, dtype):
    X = torch.randn(6, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    G = symmetric_noise(6, dtype)
    sides = [
        lambda Y, side=side: sg.covariance_sqrt(Y, side=side, center=center, eps=eps)
        for side in ("positions", "channels")
    ]
    assert_close(sides[0](X), sides[1](X))
    assert relative_error(*(gradient(side, X, G) for side in sides)) < 1e-10


@pytest.mark.parametrize("spectrum", [[0.7, 0.7, 1.3], [-0.7, -0.7, 0.2], [0.0, 0.0, 0.0]])
def test_second_derivative_at_a_tie_of_a_function_whose_slope_torch_cannot_differentiate(spectrum):
    """The slope comes from outside of torch, so its own slope is a five-point difference."""
    A, E = with_spectrum(spectrum), symmetric_noise(3)
    opaque = lambda x: x.detach().exp()  # noqa: E731
    known, guessed = (
        torch.autograd.functional.vhp(lambda X, f=f: f(X).square().sum(), A, E)[1]
        for f in (sg.matrix_exp, lambda X: sg.matrix_function(X, torch.exp, opaque))
    )
    assert relative_error(guessed, known) < 1e-9


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_fourth_derivatives_of_the_polar_factor_of_square_matrices(dtype):
    M, G, D, *directions = torch.randn(6, 3, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    f = lambda X: (sg.polar(X) * G.conj()).sum().real  # noqa: E731
    for direction in directions:
        f = lambda X, f=f, direction=direction: (grad(f)(X) * direction.conj()).sum().real  # noqa: E731
    h = 1e-5
    expected = (f(M + h * D) - f(M - h * D)) / (2 * h)
    assert_close((grad(f)(M) * D.conj()).sum().real, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("method", ["svd", "masked", "svd-pade", "lorentzian"])
def test_plain_double_backward_of_gap_rules_equals_that_of_torch_func(method, dtype):
    A, E, G = with_spectrum([0.4, 0.9, 1.7], dtype=dtype), symmetric_noise(3, dtype), symmetric_noise(3, dtype, seed=2)
    loss = lambda X: (sg.matrix_sqrt(X, method=method) * G.conj()).sum().real  # noqa: E731
    leaf = A.clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (plain,) = torch.autograd.grad((g * E.conj()).sum().real, leaf)
    assert_close(plain, grad(lambda X: (grad(loss)(X) * E.conj()).sum().real)(A))


def test_parameters_learn_by_gap_rules_too():
    A = with_spectrum([0.4, 0.9, 1.7])
    p = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    sg.matrix_power(A, p, method="svd-taylor").diagonal().sum().backward()
    w = torch.linalg.eigvalsh(A)
    assert_close(p.grad, (w**0.7 * w.log()).sum())


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_the_step_of_a_slope_by_differences_follows_the_eigenvalues(size):
    """f = x³ with a derivative that torch cannot differentiate: all eigenvalues are equal, so f″ is a difference."""
    A, G, Z = size * torch.eye(3, dtype=torch.float64), symmetric_noise(3, seed=1), symmetric_noise(3, seed=2)

    def product(f):
        X = A.clone().requires_grad_()
        (g,) = torch.autograd.grad((f(X) * G).sum(), X, create_graph=True)
        return torch.autograd.grad((g * Z).sum(), X)[0]

    found = product(lambda X: sg.matrix_function(X, lambda x: x**3, lambda x: torch.from_numpy(3 * x.numpy() ** 2)))
    expected = product(lambda X: X @ X @ X)
    # rounding errors of df over the step: unit / ε^(1/5)
    assert relative_error(found, (expected + expected.mT) / 2) < 10 * unit(torch.float64) ** 0.8


@pytest.mark.parametrize("exponent", [-960, 960])
@pytest.mark.parametrize("name", ["power", "learned power", "log"])
def test_powers_and_logarithms_are_as_accurate_far_from_one(name, exponent):
    """exp(p ln λ) and ln a − ln b lose |ln λ| roundings, hundreds of them near overflow and underflow."""
    p = torch.tensor(0.375, dtype=torch.float64, requires_grad=name == "learned power")
    f = {"log": sg.matrix_log}.get(name, lambda A: sg.matrix_power(A, p))
    g = mpmath.log if name == "log" else lambda x: x ** mpmath.mpf(0.375)
    w = [math.ldexp(1.0, exponent), math.ldexp(3.0, exponent)]
    A, G = torch.diag(torch.tensor(w, dtype=torch.float64)), torch.ones(2, 2, dtype=torch.float64)
    with mpmath.workdps(40):
        values = [g(mpmath.mpf(x)) for x in w]
        slope = float((values[1] - values[0]) / (mpmath.mpf(w[1]) - mpmath.mpf(w[0])))
        values = torch.tensor([float(x) for x in values], dtype=torch.float64)
    assert_close(f(A).diagonal(), values, rtol=8 * unit(torch.float64), atol=0)
    assert_close(gradient(f, A, G)[0, 1].item(), slope, rtol=16 * unit(torch.float64), atol=0)


def test_second_derivative_where_divided_differences_vanish_but_the_curvature_does_not():
    """cos 2πx is 1 at whole numbers: f[1, 2, 3] = 0, while f″ = −4π² everywhere on the spectrum."""
    A = with_spectrum([1.0, 2.0, 3.0]).requires_grad_()
    f = lambda X: sg.matrix_function((X + X.mT) / 2, lambda x: torch.cos(2 * torch.pi * x))  # noqa: E731
    assert gradgradcheck(f, (A,))


@pytest.mark.parametrize("ratio", [1.0, 0.3, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("n", [3, 150])
def test_polar_in_single_precision_is_orthogonal_to_rounding_beside_any_neighbour(n, ratio):
    """Singular values from 1 down to the ratio, beside a matrix that any route would do."""
    Q, R = random_orthogonal(n + 1)[:, :n], random_orthogonal(n, seed=1)
    values = ratio ** torch.linspace(0, 1, n, dtype=torch.float64)
    got = sg.polar(torch.stack([(Q * values) @ R, Q @ R]).float()).double()
    tolerance = 30 * n**0.5 * unit(torch.float32)
    assert torch.linalg.matrix_norm(got.mT @ got - torch.eye(n, dtype=torch.float64), 2).max() < tolerance
    assert torch.linalg.matrix_norm(got - Q @ R, 2).max() < tolerance / ratio


_TENSOR = torch.tensor(0.7, dtype=torch.float64)
SCALARS = {
    "exp": scalar_functions.EXP,
    "log": scalar_functions.LOG,
    "sqrt": scalar_functions.SQRT,
    "inv_sqrt": scalar_functions.INV_SQRT,
    "power": scalar_functions.real_power(_TENSOR),
    "cube": scalar_functions.whole_power(3),
    "inverse square": scalar_functions.whole_power(-2),
    "tanh": user_functions.smooth(torch.tanh, None),
    "log_over": scalar_functions.log_over(_TENSOR),
    "inverse_of_sum": scalar_functions.inverse_of_sum(_TENSOR),
}


@pytest.mark.parametrize("name", SCALARS)
def test_divided_differences_are_quotients_and_their_limits_are_derivatives(name):
    """The derivatives are torch's, of the value alone."""
    f = SCALARS[name]
    w = torch.tensor([0.3, 0.9, 1.7, 4.0], dtype=torch.float64)
    slope, curvature = (vmap(g)(w) for g in (grad(lambda x: f.value(x).sum()), grad(grad(lambda x: f.value(x).sum()))))
    values, gamma, bend = f.differences(w)
    assert_close(values, f.value(w))
    assert_close(f.slope(w), slope)
    assert_close(gamma.diagonal(), slope)
    assert_close(bend, curvature)
    gap = w[:, None] - w + torch.eye(4, dtype=torch.float64)
    assert_close(gamma, (values[:, None] - values) / gap + torch.diag(slope))


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("positions", [9, 40])
@pytest.mark.parametrize("eps", [1e-14, 1e-12, 1e-9, 1e-6, 1e-2])
def test_covariance_roots_with_more_positions_than_channels(eps, positions, center):
    """Features U diag(σ) W with known factors: the root is U diag(√(σ²/N + ε)) Uᵀ, its gradient 2/N · D√[G] X."""
    d, generator = 4, torch.Generator().manual_seed(positions)
    U = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=generator)).Q
    W = torch.randn(positions, d, dtype=torch.float64, generator=generator)
    W = torch.linalg.qr(W - W.mean(0) if center else W).Q
    sigma = torch.tensor([1.0, 1.5, 1.5, 2.0], dtype=torch.float64)
    G = torch.randn(d, d, dtype=torch.float64, generator=generator)
    X = ((U * sigma) @ W.mT).requires_grad_()
    s = (sigma**2 / positions + eps).sqrt()
    root = sg.covariance_sqrt(X, center=center, eps=eps, side="positions")
    expected = (U * s) @ U.mT
    assert relative_error(root, expected) < 100 * torch.finfo(torch.float64).eps
    (g,) = torch.autograd.grad((root * G).sum(), X)
    derivative = U @ ((U.mT @ (G + G.mT) @ U / 2) / (s[:, None] + s)) @ U.mT
    assert relative_error(g, 2 / positions * derivative @ X.detach()) < 200 * torch.finfo(torch.float64).eps
