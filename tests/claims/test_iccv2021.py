"""P1–P39: Why Approximate Matrix Square Root Outperforms Accurate SVD (ICCV 2021): formulas, Padé, bounds, tables."""

import math
import operator
from functools import reduce

import mpmath
import numpy as np
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.newton_schulz import newton_schulz
from spectralgrad.rules import robust_pade
from spectralgrad.testing import paired_spectrum, relative_error, with_spectrum

from .helpers import (
    EPS,
    KEEP_ALL,
    SPECTRUM,
    eq2,
    gaussian,
    gradient,
    mp,
    pair_gap,
    sym,
    tensor,
    uniform,
    vector_gradient,
)

PUBLISHED = sg.Pade(faithful=True)


# --- Eq. 1–13 ---------------------------------------------------------------------------------------------------------


def centring(n):
    return (torch.eye(n, dtype=torch.float64) - 1 / n) / n


def test_p1_covariance_is_the_centred_biased_one():
    """XĪXᵀ is the centred biased covariance, and so is ours."""
    X = gaussian(6, 20) + 3
    assert_close(X @ centring(20) @ X.mT, torch.from_numpy(np.cov(X.numpy(), bias=True)), rtol=0, atol=1e-12)
    assert_close(sg.covariance(X), X @ centring(20) @ X.mT, rtol=0, atol=1e-12)


def chain(P, G):
    """Eq. 4–5 for Q = √P and a cotangent G that need not be symmetric: dl/dP as printed."""
    w, U = sg.eigh(P)
    return eq2(U, sg.Analytic().gaps(w), (G + G.mT) @ U * w.sqrt(), (U.mT @ G @ U).diagonal() / (2 * w.sqrt()))


@pytest.mark.parametrize("method", ["svd", "exact"])
def test_p2_gradient_chain_of_the_root(method):
    """Eq. 4–6 with any dl/dQ equal autograd through our covariance and root, and a difference quotient."""
    X, G, Z, step = gaussian(6, 20), gaussian(6, 6, seed=1), gaussian(6, 20, seed=2), 1e-6
    D = chain(sg.covariance(X), G)
    printed = (D + D.mT) @ X @ centring(20)
    ours = gradient(lambda Y: sg.matrix_sqrt(sg.covariance(Y), method=method), X, G)
    assert_close(ours, printed, rtol=1e-10, atol=1e-10)
    ahead, behind = ((sg.matrix_sqrt(sg.covariance(X + s * Z)) * G).sum() for s in (step, -step))
    assert_close((printed * Z).sum(), (ahead - behind) / (2 * step), rtol=1e-7, atol=0)


def test_p3_eq_5_alone_is_almost_antisymmetric():
    """With close eigenvalues dl/dP of Eq. 5 is nearly antisymmetric; its symmetric part is the true gradient."""
    P, G = with_spectrum(paired_spectrum(6, 10.0, 1e-3)), gaussian(6, 6, seed=1)
    D = chain(P, G)
    assert 1.99 < (D - D.mT).norm() / D.norm() <= 2
    assert relative_error(sym(D), gradient(sg.matrix_sqrt, P, G)) < 1e-10


def test_p4_newton_schulz_converges_to_both_roots():
    """The trace-normalised coupled iteration reaches √P and P^(-1/2); 20 steps give 1e-12 at condition 100."""
    P = with_spectrum(np.logspace(-2, 0, 6))
    errors = [relative_error(newton_schulz(P, steps)[0], sg.matrix_sqrt(P)) for steps in (1, 3, 5, 10, 20)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-12
    assert relative_error(newton_schulz(P, 20)[1], sg.matrix_inv_sqrt(P)) < 1e-12


@pytest.mark.parametrize(("a", "limit"), [(2.9, 2.9**0.5), (3.1, -(3.1**0.5))])
def test_p5_newton_schulz_converges_beyond_the_stated_condition(a, limit):
    """‖A − I‖ < 1 is sufficient, not necessary: without scaling 2.9 converges to its root, 3.1 to minus its root."""
    y, z = a, 1.0
    for _ in range(60):
        t = (3 - z * y) / 2
        y, z = y * t, t * z
    assert abs(a - 1) > 1
    assert y == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize("steps", [3, 5, 10])
def test_p6_eq_10_is_the_gradient_through_pre_and_post_scaling(steps):
    """Eq. 10 with dl/dA taken from dl/dY = √tr(P)·dl/dQ equals the gradient of our Newton–Schulz root."""
    P, G, identity = with_spectrum(SPECTRUM), sym(gaussian(8, 8)), torch.eye(8, dtype=torch.float64)

    def iterate(A):
        Y, Z = A, identity
        for _ in range(steps):
            T = (3 * identity - Z @ Y) / 2
            Y, Z = Y @ T, T @ Z
        return Y

    trace = P.trace()
    dA = gradient(iterate, P / trace, trace.sqrt() * G)
    eq10 = (
        -(dA * P).sum() / trace**2 * identity
        + dA / trace
        + (G * iterate(P / trace)).sum() / (2 * trace.sqrt()) * identity
    )
    ours = gradient(lambda M: sg.matrix_sqrt(M, method=sg.NewtonSchulz(steps=steps)), P, G)
    assert relative_error(ours, sym(eq10)) < 1e-12


def test_p8_truncation_as_written_is_not_skew_at_ties():
    """Eq. 12 at a tie gives +T on both sides; ours is zero there and skew everywhere."""
    w = tensor(0.5, 1.0, 1.0)
    K, written = sg.Trunc().gaps(w), sg.Trunc(faithful=True).gaps(w)
    assert torch.equal(K, -K.mT)
    assert written[1, 2] == written[2, 1] == 1e10


def leading_cotangent(d):
    H = torch.zeros(d, d, dtype=torch.float64)
    H[:, -1] = gaussian(d, seed=1)
    return H


def test_p9_b4_power_iteration_gradient_as_printed_is_ill_formed_or_zero():
    """Eq. 13 (NeurIPS Eq. 9): the shapes do not fit, and read with K_11 it is zero where the true gradient is not."""
    A, H = with_spectrum(SPECTRUM), leading_cotangent(8)
    w, V = sg.eigh(A)
    u, K, inner = V[:, -1:], sg.Analytic().gaps(w), V[:, -1] @ H[:, -1]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        u @ (K.mT * inner) @ u.mT
    assert not (u * (K[-1, -1] * inner) @ u.mT).any()
    assert vector_gradient(A, "svd", H).norm() > 0.1


def test_p10_released_power_iteration_gradient_is_zero():
    """With I − UUᵀ over the full U every term vanishes, whatever λ1/λ2; Algorithm 1's gradient does not."""
    A, H = with_spectrum(SPECTRUM), gaussian(8, 8, seed=1)
    U = sg.eigh(A).eigenvectors
    size = (A @ U).norm()
    term = (torch.eye(8, dtype=torch.float64) - U @ U.mT) / size
    total = torch.zeros_like(A)
    for _ in range(21):
        total, term = total + term, A @ term / size
    true = vector_gradient(A, sg.SVDPI(**KEEP_ALL), H)
    assert (total @ H @ U.mT).norm() / true.norm() < 1e-12


# --- Taylor and Padé --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 1e-3, EPS])
def test_p11_taylor_bound_is_attained_at_equal_eigenvalues(size):
    """K̂ ≤ (K+1)/λ, with equality at x = 1 (101/λ at degree 100)."""
    rule, w = sg.Taylor(degree=100), tensor(size, size)
    assert sg.Taylor(degree=100, faithful=True).gaps(w)[0, 1] == pytest.approx(101 / size, rel=1e-12)
    assert rule.bound(w) == pytest.approx(101 / size, rel=1e-12)
    near = rule.gaps(size * tensor(1 - 1e-9, 1.0))[1, 0] * size
    assert 101 * (1 - 1e-6) < near < 101


def pade_system(a, m, n):
    """The matrix of Eq. 19 for the denominator of [m/n]."""
    return np.array([[a[m + i - j] for j in range(1, n + 1)] for i in range(1, n + 1)])


def solve_pade(a, m, n, last):
    """Eq. 19 solved for [m/n], with the coefficient ``last`` in the first column of the last line."""
    q = np.r_[1, np.linalg.solve(pade_system(a, m, n), [-a[m + i] for i in range(1, n)] + [-last])]
    return [sum(q[j] * a[i - j] for j in range(i + 1)) for i in range(m + 1)], q


def quotient(p, q, x):
    return np.polyval(p[::-1], x) / np.polyval(q[::-1], x)


def test_p12_pade_system_needs_the_coefficient_m_plus_n_in_its_last_line():
    """[3/3] of exp at 1/2 errs by 1e-7 from a_(M+N), by a hundred times more from the printed a_(M+N+1)."""
    a = [1 / math.factorial(k) for k in range(8)]
    ours, printed = (
        abs(quotient(*pq, 0.5) - math.exp(0.5)) for pq in (robust_pade(a, 3, 3), solve_pade(a, 3, 3, a[7]))
    )
    assert ours < 1e-6 < 1e-5 < printed
    assert_close(robust_pade(a, 3, 3), tuple(map(list, solve_pade(a, 3, 3, a[6]))), rtol=0, atol=1e-10)


@pytest.mark.parametrize("digits", [15, 20, 50])
def test_p14_pade_system_of_the_geometric_series_is_singular(digits):
    """The Toeplitz matrix is all ones, rank 1 of 50; the exact series cannot be solved at any precision."""
    assert np.linalg.matrix_rank(pade_system([1.0] * 101, 50, 50)) == 1
    with mpmath.workdps(digits), pytest.raises(ZeroDivisionError):
        mpmath.pade([mpmath.mpf(1)] * 101, 50, 50)
    assert robust_pade([1.0] * 101, 50, 50) == ([1.0], [1.0, -1.0])


def spurious_pole():
    """The zero of the published denominator inside (0, 1) but for rounding noise at 1."""
    q = PUBLISHED.coefficients()[1]
    (start,) = (z.real for z in np.roots(q[::-1]) if abs(z.imag) < 1e-9 and 0 < z.real < 0.9999)
    return float(mp.findroot(lambda x: mp.polyval([mp.mpf(c) for c in q[::-1]], x), start))


def relative_deviation(rule, x):
    """|K̂(1 − x) − 1|, the difference 1 − x being exact for x ≥ 1/2."""
    return abs(pair_gap(rule, x) * (1 - x) - 1)


def test_p15_published_coefficients_are_the_geometric_function_times_noise():
    """(1 − x)P = Q to rounding, with pole–zero pairs inside the unit disc, one at x = 0.9973."""
    p, q = PUBLISHED.coefficients()
    assert np.abs(np.convolve(p, [1, -1]) - np.r_[q, 0]).max() < 4 * EPS * np.abs(q).max()
    poles, zeros = np.roots(q[::-1]), np.roots(p[::-1])
    inside = poles[np.abs(poles) < 0.9999]
    assert len(inside) > 10
    assert np.abs(inside[:, None] - zeros).min(1).max() < 1e-3
    assert spurious_pole() == pytest.approx(0.9973, abs=1e-4)


def test_p15_p22_published_approximant_is_wrong_and_not_monotone_at_its_spurious_pole():
    """Near 0.9973 the published quotient is off by half and more and falls; [0/1] is exact there."""
    x = spurious_pole() + np.arange(-40, 41) * 2.0**-53
    values = np.array([pair_gap(PUBLISHED, v) for v in x])
    assert max(relative_deviation(PUBLISHED, v) for v in x) > 0.5
    assert (values[1:] < values[:-1]).any()
    assert max(relative_deviation(sg.Pade(), v) for v in x) < 2 * EPS


TABLE_8 = [  # degree, ratio, printed error of the Taylor polynomial, unit of its last digit
    (50, 0.5, 9e-16, 1e-16), (50, 0.7, 4e-8, 1e-8), (50, 0.9, 5e-2, 1e-2), (50, 0.99, 60, 1), (50, 0.999, 950, 1),
    (100, 0.7, 8e-16, 1e-16), (100, 0.9, 2e-4, 1e-4), (100, 0.99, 36, 1), (100, 0.999, 904, 1),
    (200, 0.9, 6e-9, 1e-9), (200, 0.99, 13, 1), (200, 0.999, 817, 1),
    (300, 0.9, 1e-13, 1e-13), (300, 0.99, 5, 1), (300, 0.999, 740, 1),
]  # fmt: skip


@pytest.mark.parametrize(("degree", "x", "printed", "unit"), TABLE_8)
def test_p16_taylor_errors_are_the_exact_remainder(degree, x, printed, unit):
    """Tables 6 and 8 for x ≥ 0.7 are x^(K+1)/(1 − x), rounded or truncated; our series has that error."""
    ratio = mp.mpf(x)
    remainder = ratio ** (degree + 1) / (1 - ratio)
    assert abs(printed - remainder) < unit
    assert pair_gap(sg.Taylor(degree=degree), x) == pytest.approx(float(1 / (1 - ratio) - remainder), rel=1e-12)


@pytest.mark.parametrize(
    ("degree", "x", "printed"), [(100, 0.1, 9e-19), (100, 0.3, 7e-18), (100, 0.5, 2e-21), (200, 0.7, 4e-17)]
)
def test_p16_small_errors_of_table_8_are_not_double_precision(degree, x, printed):
    """They lie below half an ulp of 1/(1 − x), and are not the remainder either."""
    assert printed < math.ulp(1 / (1 - x)) / 2
    assert mp.mpf(x) ** (degree + 1) / (1 - mp.mpf(x)) < printed / 10


@pytest.mark.parametrize("x", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999])
def test_p17_pade_errors_are_rounding_noise(x):
    """Away from its spurious pole the published approximant has a small relative error, nothing more."""
    assert relative_deviation(PUBLISHED, x) < 1e-8


@pytest.mark.parametrize("bits", [10, 20, 30, 40, 50, 52])
def test_p18_plain_division_is_never_worse_than_the_published_approximant(bits):
    """At x = 1 − 2^(-bits) float64 1/(1 − x) is exact; the approximant loses digits until nothing is left."""
    x = 1 - 2.0**-bits
    assert relative_deviation(sg.Analytic(), x) == 0
    assert relative_deviation(PUBLISHED, x) > 2.0 ** (bits - 60)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_p19_p21_bounds_of_table_7_take_machine_epsilon_for_the_smallest_number():
    """4.55e17 = 101/ε and 4.50e15 = 1/ε with ε = 2⁻⁵²; far smaller eigenvalues exist and are resolved."""
    assert sg.Taylor(degree=100).bound(tensor(2.0**-52, 2.0**-52)) == pytest.approx(4.55e17, rel=1e-3)
    assert 2.0**52 == pytest.approx(4.50e15, rel=1e-3)
    w = sg.eigh(torch.diag(tensor(1e-300, 3e-300))).eigenvalues
    assert_close(w, tensor(1e-300, 3e-300), rtol=1e-12, atol=0)
    assert sg.Pade().gaps(w)[1, 0] == pytest.approx(5e299, rel=1e-12)


def test_p20_published_bounds_are_accidents_of_summation():
    """Q(1) is rounding noise whose sign depends on the order of summation; 6.48e20 is P(1)·2⁷⁰; the bounds disagree.

    Q(1) = Σqᵢ is 0 in exact arithmetic, so a sum that rounds after each addition returns only its own rounding errors.
    The built-in sum does that up to Python 3.11; from 3.12 on it carries those errors along (Neumaier) and the order no
    longer shows. Hence the additions are written out.
    """
    p, q = PUBLISHED.coefficients()
    generator = np.random.default_rng(0)
    sums = [reduce(operator.add, generator.permutation(q).tolist()) for _ in range(200)]
    assert min(sums) < 0 < max(sums)
    assert max(map(abs, sums)) < 100 * EPS
    assert abs(math.fsum(p)) * 2**70 == pytest.approx(6.48e20, rel=0.01)
    assert 6.00e36 / (6.48e20 / EPS) > 2


def test_p20_published_rule_stays_below_the_published_bound():
    """The released repair puts the extreme finite entries where the quotient is infinite, so K̂ ≤ 6.48e20/λ."""
    K = PUBLISHED.gaps(tensor(0.5, 1.0, 1.0))
    assert K[2, 0] == pytest.approx(2, rel=1e-12)
    assert K.abs().max() <= 6.48e20


def test_p23_topn_has_no_bound():
    """1/λ_N does not bound K: kept pairs 1 − 2⁻⁵³ and 1 give 9.0e15, equal ones infinity."""
    w = tensor(EPS, 1 - 2.0**-53, 1.0)
    rule = sg.TopN(keep=2)
    assert rule.gaps(w)[2, 1] == 2.0**53 > 1 / EPS
    assert rule.bound(w).isinf()
    assert sg.Analytic().gaps(tensor(1.0, 1.0))[0, 1] == math.inf


def test_p37_degree_needed_next_to_the_pole():
    """Five per cent at x = 1 − 2⁻⁵² takes degree 1.35e16, not 1e20."""
    x = 1 - 2.0**-52
    terms = math.log(0.05) / math.log(x)
    assert terms == pytest.approx(1.35e16, rel=1e-2)
    assert sg.Taylor(degree=round(terms) - 1).bias(tensor(x, 1.0))[1, 0] == pytest.approx(0.05, rel=1e-6)


# --- convergence of diagonal approximants (appendix C) ----------------------------------------------------------------


def legendre(n, z):
    """Numerator and denominator of the n-th approximant of ½∫dx/(z − x), by their three-term recurrence (Eq. 42)."""
    A, B = [mp.mpf(0), mp.mpf(1)], [mp.mpf(1), mp.mpf(z)]
    for k in range(1, n):
        for c in (A, B):
            c.append(((2 * k + 1) * z * c[k] - k * c[k - 1]) / (k + 1))
    return A[n], B[n]


def legendre_error(n, z):
    A, B = legendre(n, z)
    return mp.log((z + 1) / (z - mp.mpf(1))) / 2 - A / B


def test_p26_error_formula():
    """Eq. 47 for N = 3 at z = 2: both sides are 2.86536490918e-4."""
    B = legendre(3, mp.mpf(2))[1]
    integral = mp.quad(lambda x: legendre(3, x)[1] ** 2 / (2 - x) / 2, [-1, 1])
    assert abs(legendre_error(3, mp.mpf(2)) / (integral / B**2) - 1) < mp.mpf(10) ** -40
    assert float(legendre_error(3, mp.mpf(2))) == pytest.approx(2.86536490918e-4, rel=1e-10)


@pytest.mark.parametrize("n", [3, 5, 7])
def test_p26_numerator_has_degree_n_minus_1(n):
    """Expanded at infinity the approximant is t·[N−1/N]: ours from the moments agrees with the recurrence."""
    moments = [0.0] + [(k % 2 == 0) / (k + 1) for k in range(2 * n)]
    A, B = legendre(n, mp.mpf(2))
    assert quotient(*robust_pade(moments, n, n), 0.5) == pytest.approx(float(A / B), rel=1e-12)


def test_p26_convergence_is_off_the_interval_only():
    """Rate |error|^(1/N) → 1/r² = 0.0718 at z = 2; at z = 0.3, inside [a, b], the approximants oscillate."""
    rates = [abs(legendre_error(n, mp.mpf(2))) ** (mp.mpf(1) / n) for n in (10, 20, 40)]
    limit = 1 / (2 + mp.sqrt(3)) ** 2
    assert rates == sorted(rates)
    assert float(rates[-1]) == pytest.approx(0.0715, abs=1e-3)
    assert 0 < limit - rates[-1] < mp.mpf("0.001")
    inside = [A / B for A, B in (legendre(n, mp.mpf("0.3")) for n in range(20, 60))]
    assert max(inside) - min(inside) > 1


# --- iterations -------------------------------------------------------------------------------------------------------


def test_p28_power_iteration_converges_at_a_tie_to_some_leading_vector():
    """With λ1 = λ2 the limit is the normalised projection of the start on the eigenspace, an eigenvector."""
    A = with_spectrum([0.2, 0.4, 0.5, 1.0, 1.0])

    def leading(steps):
        return sg.eigh(A, method=sg.PI(iterations=steps, **KEEP_ALL)).eigenvectors[:, -1]

    v = leading(200)
    assert (A @ v - v).norm() < 1e-10
    projection = sg.spectral_projector(A, 2) @ leading(0)
    assert_close(v, projection / projection.norm(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("condition", "steps", "low", "high"),
    [
        (1e1, 10, 0, 1e-6),
        (1e2, 10, 1e-3, 0.05),
        (1e4, 10, 0.05, 0.5),
        (1e6, 10, 0.5, 1),
        (1e8, 10, 0.9, 1),
        (1e8, 20, 0.1, 1),
        (1e8, 40, 0, 1e-7),
    ],
)
def test_p38_svd_newton_gradient_error_by_condition(condition, steps, low, high):
    """Ten Newton–Schulz steps give 19 % error at condition 1e4 and 98 % at 1e8; forty are enough."""
    A, G = with_spectrum(np.logspace(0, -np.log10(condition), 32)), sym(gaussian(32, 32))
    g = gradient(lambda M: sg.matrix_sqrt(M, method=sg.SVDNewton(steps=steps)), A, G)
    assert_close(sg.matrix_sqrt(A, method=sg.SVDNewton(steps=steps)), sg.matrix_sqrt(A))
    assert low < relative_error(g, gradient(sg.matrix_sqrt, A, G)) < high


def test_p39_upper_triangle_of_256_channels():
    """The pooled representation of 256 channels has 256·257/2 = 32 896 numbers."""
    S = sg.covariance_sqrt(uniform(256, 7))
    assert relative_error(S, S.mT) < 8 * EPS
    rows, columns = torch.triu_indices(*S.shape)
    assert S[rows, columns].shape == (32896,)
