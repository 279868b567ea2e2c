"""Roots by a Taylor polynomial or a Padé approximant: limits, singular matrices, derivatives once converged."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.iterations.newton_schulz import lyapunov
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import DOUBLES, DTYPES, FUNCTIONS, gradient, matrix, symmetric_noise, symmetrized, unit

ROOTS = ("sqrt", "inv_sqrt")
# On eigenvalues within a factor of 1.5 the polynomial has converged to 0.52^60 and the approximant to 0.2^21.
CONVERGED = [sg.MTP(degree=60, lyapunov_steps=12), sg.MPA(degree=10, lyapunov_steps=12)]
NARROW = [1.0, 1.0, 1.5]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize("method", CONVERGED, ids=str)
def test_with_enough_terms_value_and_gradient_are_those_of_the_root(method, name, dtype):
    """The linear system of the [n/n] approximant has a condition number of up to 4^n, here on y ≥ 0.4 far less."""
    A, G = with_spectrum(NARROW, dtype=dtype), symmetric_noise(3, dtype)
    f = lambda X: FUNCTIONS[name](X, method=method)  # noqa: E731
    assert relative_error(f(A), FUNCTIONS[name](A)) < 100 * unit(dtype)
    assert relative_error(gradient(f, A, G), gradient(FUNCTIONS[name], A, G)) < 400 * unit(dtype)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize("method", CONVERGED, ids=str)
def test_converged_roots_pass_gradcheck_and_gradgradcheck(method, name, dtype):
    A = with_spectrum(NARROW, dtype=dtype).requires_grad_()
    f = symmetrized(lambda X: FUNCTIONS[name](X, method=method))
    assert gradcheck(f, (A,), check_forward_ad=True)
    assert gradgradcheck(f, (A,))


@pytest.mark.parametrize(
    ("method", "root", "inverse"),
    [
        (sg.MTP(), math.comb(20, 10) / 4**10, 21 * math.comb(20, 10) / 4**10),
        (sg.MTP(degree=3), math.comb(6, 3) / 4**3, 7 * math.comb(6, 3) / 4**3),
        (sg.MPA(), 1 / 11, 11.0),
        (sg.MPA(degree=3), 1 / 7, 7.0),
    ],
    ids=str,
)
def test_a_null_direction_gets_the_documented_value(method, root, inverse):
    """The partial sums of (1 − z)^±1/2 at z = 1, and the approximant there."""
    A = torch.diag(torch.tensor([0.0, 3.0, 4.0], dtype=torch.float64))  # Frobenius norm 5
    assert_close(float(sg.matrix_sqrt(A, method=method)[0, 0]), root * 5**0.5, rtol=1e-14, atol=0)
    assert_close(float(sg.matrix_inv_sqrt(A, method=method)[0, 0]), inverse / 5**0.5, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize("method", ["mtp", "mpa", "newton-schulz"])
def test_a_zero_matrix_has_zero_roots_and_no_gradient(method, name):
    A = torch.zeros(2, 3, 3)
    f = lambda X: FUNCTIONS[name](X, method=method)  # noqa: E731
    assert not f(A).any()
    assert not gradient(f, A, torch.ones(2, 3, 3)).any()


@pytest.mark.parametrize(("dtype", "power"), [(torch.float32, 30), (torch.float64, 300)], ids=str)
@pytest.mark.parametrize(("name", "degree"), [("sqrt", 0.5), ("inv_sqrt", -0.5)])
@pytest.mark.parametrize("method", ["mtp", "mpa"])
def test_scaling_by_a_power_of_four_changes_no_bit(method, name, degree, dtype, power):
    A, G = matrix("rank-three", dtype), symmetric_noise(6, dtype)
    f = lambda X: FUNCTIONS[name](X, method=method)  # noqa: E731
    for c in (4.0**power, 4.0**-power):
        assert torch.equal(f(A * c), f(A) * c**degree)
        scaled = gradient(f, A * c, G)
        assert torch.equal(scaled * c, gradient(f, A, G) * c**degree)


@pytest.mark.parametrize("method", ["mtp", "mpa"])
def test_half_types_and_autocast(method):
    A = matrix("tie", torch.float32)
    expected = sg.matrix_inv_sqrt(A, method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(sg.matrix_inv_sqrt(A, method=method), expected)
    half = sg.matrix_inv_sqrt(A.bfloat16(), method=method)
    assert torch.equal(half, sg.matrix_inv_sqrt(A.bfloat16().float(), method=method).bfloat16())


def test_a_closer_scale_solves_the_lyapunov_equation_in_fewer_steps():
    S, G = with_spectrum([0.5] * 15 + [1.0]), symmetric_noise(16)
    frobenius, closer = lyapunov(S, G, 6), lyapunov(S, G, 6, torch.tensor(1.0, dtype=torch.float64))
    assert closer.residual < frobenius.residual / 100
    assert_close(lyapunov(S, G, 6, torch.linalg.matrix_norm(S)).solution, frobenius.solution)


def _released(M, gU, gV):
    """The backward pass of the released code of SVD-inv for real square matrices, pair by pair."""
    U, S, Vh = torch.linalg.svd(M)
    P, Q = U.mT @ gU, Vh @ gV
    core = torch.zeros_like(M)
    for i in range(len(S)):
        for j in range(len(S)):
            if i != j and S[i] == S[j] and S[j] > 0:
                core[i, j] = P[i, j] / S[j]
            elif S[i] != S[j]:
                gap = S[j] ** 2 - S[i] ** 2
                core[i, j] = ((P[i, j] - P[j, i]) * S[j] + S[i] * (Q[i, j] - Q[j, i])) / gap
    return U @ core @ Vh


@pytest.mark.parametrize("values", [[3.0, 2, 2, 1], [2.0, 2, 2, 2], [4.0, 3, 2, 1], [2.0, 2, 0, 0]])
def test_faithful_svd_inv_is_the_released_formula(values):
    M = torch.diag(torch.tensor(values, dtype=torch.float64))  # so that ties are exact
    gU, gV = torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    M.requires_grad_()
    U, _, Vh = sg.svd(M, method="svd-inv:faithful=True")
    (g,) = torch.autograd.grad((U * gU).sum() + (Vh.mT * gV).sum(), M)
    assert_close(g, _released(M.detach(), gU, gV), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_faithful_svd_inv_in_forward_mode_is_the_transpose_of_its_gradient(dtype):
    M = torch.diag(torch.tensor([3.0, 2, 2, 2], dtype=dtype))[:, :3]
    E, gU, gVh = (torch.randn(*shape, dtype=dtype) for shape in ((4, 3), (4, 3), (3, 3)))
    f = lambda X: sg.svd(X, method="svd-inv:faithful=True")[::2]  # noqa: E731
    _, (dU, dVh) = torch.func.jvp(f, (M,), (E,))
    _, back = torch.func.vjp(f, M)
    (g,) = back((gU, gVh))
    assert_close((g.conj() * E).sum().real, ((gU.conj() * dU).sum() + (gVh.conj() * dVh).sum()).real)


def test_what_the_two_forms_of_svd_inv_get_right_at_a_tie():
    """The released one is near the gradient of a shrinkage, the pseudo-inverse has that of the polar factor."""
    M = torch.diag(torch.tensor([3.0, 2, 2, 2], dtype=torch.float64))
    G = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def error(g, method, true):
        def f(X):
            U, S, Vh = sg.svd(X, method=method)
            return (U * g(S)) @ Vh

        return relative_error(gradient(f, M, G), gradient(true, M, G))

    shrunk = lambda s: s - 0.1  # noqa: E731
    assert error(shrunk, "svd-inv:faithful=True", lambda X: X - 0.1 * sg.polar(X)) < 0.05
    assert error(shrunk, "svd-inv", lambda X: X - 0.1 * sg.polar(X)) > 0.3
    assert error(torch.ones_like, "svd-inv:faithful=True", sg.polar) > 0.5
    assert error(torch.ones_like, "svd-inv", sg.polar) < 1e-14


@pytest.mark.parametrize("options", [{}, {"steps": 9}], ids=str)
def test_newton_schulz_as_a_function_and_as_a_method_agree(options):
    A = with_spectrum([0.1, 0.5, 1.0, 2.0], seed=4)
    Y, Z = sg.linalg.newton_schulz(A, **options)
    rule = sg.NewtonSchulz(**options)
    assert relative_error(Y, sg.matrix_sqrt(A, method=rule)) < 1e-13
    assert relative_error(Z, sg.matrix_inv_sqrt(A, method=rule)) < 1e-13
