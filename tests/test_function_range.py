"""N16 and N17 for matrix functions: rounding at large scales, entries beside infinite ones, values with a gradient."""

import itertools
import math

import mpmath
import pytest
import torch

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from .helpers import in_turn, noise

pytestmark = pytest.mark.usefixtures("both_ways")

SINGLE, DOUBLE = torch.float32, torch.float64
POWERS = (-3, -2, -1, 0, 1, 2, 3, 0.5, -0.5, 1 / 3, -1 / 3, 0.3)
FUNCTIONS = {
    **{f"power {p:.2g}": lambda A, p=p: sg.matrix_power(A, p) for p in POWERS},
    "sqrt": sg.matrix_sqrt,
    "inv_sqrt": sg.matrix_inv_sqrt,
    "log": sg.matrix_log,
    "exp": sg.matrix_exp,
    "function": lambda A: sg.matrix_function(A, torch.tanh),
    "projector": lambda A: sg.spectral_projector(A, 1),
}


@in_turn("name", FUNCTIONS, shape=[(2, 2), (5, 5), (3, 4, 4), (33, 33)], dtype=[SINGLE, DOUBLE, torch.complex128])
def test_values_are_the_same_with_a_gradient(name, shape, dtype):
    A = with_spectrum(torch.linspace(0.3, 3, shape[-1]).tolist(), dtype=dtype, seed=1).expand(shape).clone()
    assert torch.equal(FUNCTIONS[name](A), FUNCTIONS[name](A.clone().requires_grad_()).detach())


def _error(found, values, f):
    """The largest relative error of the diagonal, in units of the type's epsilon."""
    with mpmath.workdps(50):
        pairs = zip(found.diagonal().tolist(), values.tolist(), strict=True)
        worst = max(abs(mpmath.mpf(x) / f(mpmath.mpf(v)) - 1) for x, v in pairs)
    return float(worst) / torch.finfo(found.dtype).eps


@pytest.mark.parametrize(("dtype", "e"), [(SINGLE, 100), (SINGLE, -100), (DOUBLE, 1000), (DOUBLE, -1000)], ids=str)
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("p", [1 / 3, 0.3, -0.3, 0.7])
def test_powers_at_large_scales_are_as_accurate_as_at_scale_one(p, learned, dtype, e):
    """The power of two that undoes the scaling has an exponent of hundreds, whose rounding error must not count."""
    values = torch.tensor([1.3, 1.7], dtype=dtype) * 2.0**e
    exponent = torch.tensor(p, dtype=dtype) if learned else p
    found = sg.matrix_power(torch.diag(values), exponent)
    assert _error(found, values, lambda x: x ** mpmath.mpf(float(exponent))) < 8


@pytest.mark.parametrize(("dtype", "top"), [(SINGLE, 80.0), (SINGLE, 88.0), (DOUBLE, 500.0), (DOUBLE, 709.0)], ids=str)
def test_exponentials_near_overflow_are_as_accurate_as_elsewhere(dtype, top):
    values = torch.tensor([top, top - 3], dtype=dtype)
    assert _error(sg.matrix_exp(torch.diag(values)), values, mpmath.exp) < 8


@pytest.mark.parametrize("learned", [False, True])
def test_gradients_at_large_scales_are_as_accurate_as_at_scale_one(learned):
    values = torch.tensor([1.3, 1.7], dtype=DOUBLE) * 2.0**1000
    p = torch.tensor(0.7, dtype=DOUBLE, requires_grad=True) if learned else 0.7
    A = torch.diag(values).requires_grad_()
    (g,) = torch.autograd.grad(sg.matrix_power(A, p).diagonal().sum(), A)
    assert _error(g, values, lambda x: mpmath.mpf(0.7) * x ** (mpmath.mpf(0.7) - 1)) < 16


# name → function, eigenvalues and values, of which some overflow; the others are representable
BESIDE = {
    "exp": (sg.matrix_exp, (1000.0, 0.0, -1.0), (torch.inf, 1.0, math.exp(-1))),
    "power 2": (lambda A, **k: sg.matrix_power(A, 2, **k), (2.0**600, 1.0, -(2.0**-90)), (torch.inf, 1.0, 2.0**-180)),
    "power 3": (lambda A, **k: sg.matrix_power(A, 3, **k), (-(2.0**600), 2.0**400, 2.0), (-torch.inf, torch.inf, 8.0)),
    "power -2": (
        lambda A, **k: sg.matrix_power(A, -2, rtol=0.0, **k), (2.0**-600, 1.0, 4.0), (torch.inf, 1.0, 1 / 16)
    ),
    "large power": (lambda A, **k: sg.matrix_power(A, 2.5, rtol=0.0, **k), (2.0**400, 2.0**-20), (2.0**1000, 2.0**-50)),
    "function": (lambda A, **k: sg.matrix_function(A, torch.exp, **k), (1000.0, 0.0, 800.0), (torch.inf, 1, torch.inf)),
}  # fmt: skip


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("method", ["exact", "svd", "svd-pade", "svd-taylor", "lorentzian", "masked"])
@pytest.mark.parametrize("name", BESIDE)
def test_values_beside_infinite_ones_are_what_they_would_be_alone(name, method, tracked):
    f, values, expected = BESIDE[name]
    A = torch.diag(torch.tensor(values, dtype=DOUBLE))
    for X in (A, torch.stack([A, torch.eye(len(values), dtype=DOUBLE)]), A.to(torch.complex128)):
        found = f(X.clone().requires_grad_(tracked), method=method).detach()
        first = found[0] if X.dim() == 3 else found
        wanted = torch.diag(torch.tensor(expected, dtype=DOUBLE)).to(X.dtype)
        torch.testing.assert_close(first.real, wanted.real, rtol=64 * torch.finfo(DOUBLE).eps, atol=0)
        assert not bool(torch.view_as_real(found.to(torch.complex128)).isnan().any())


OVERFLOWING = {"exp": torch.exp, "fourth power": lambda x: x**4, "odd": torch.sinh}


@pytest.mark.parametrize("method", ["exact", "svd-pade", "svd-taylor", "svd-clip", "svd-topn", "lorentzian", "masked"])
@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.full)])
def test_functions_of_the_user_that_overflow_give_no_nan(name, method, alone):
    places, matrices = zip(*_large_matrices(), strict=True)
    f, matrices = OVERFLOWING[name], torch.stack(matrices)
    for named, A in zip([[place] for place in places], matrices, strict=True) if alone else [(places, matrices)]:
        A = A.clone().requires_grad_()
        S = sg.matrix_function(A, f, method=method)
        (g,) = torch.autograd.grad(S, A, noise(3, 3, dtype=DOUBLE).expand(A.shape))
        nan = (S.isnan() | g.isnan()).flatten(-2).any(-1).view(-1)
        assert not [place for place, wrong in zip(named, nan, strict=True) if wrong]
        assert torch.equal(S.detach(), sg.matrix_function(A.detach(), f, method=method))


def _large_matrices():
    """Dense and diagonal matrices at scales where the functions overflow, and what they are."""
    for values, e in itertools.product([(1.0, 2.0, 3.0), (1.0, 1.0, 1.0), (0.0, 2.0, 3.0)], [9, 340, 500, 900]):
        dense, diagonal = with_spectrum(values, dtype=DOUBLE), torch.diag(torch.tensor(values, dtype=DOUBLE))
        yield from (((values, e, "dense"), dense * 2.0**e), ((values, e, "diagonal"), diagonal * 2.0**e))


STEEP = {
    "inverse": (lambda A, **k: sg.matrix_power(A, -1, **k), 1e-20),
    "third inverse": (lambda A, **k: sg.matrix_power(A, -3, **k), 1e-12),
    "power -1.5": (lambda A, **k: sg.matrix_power(A, -1.5, **k), 1e-18),
    "inverse root": (sg.matrix_inv_sqrt, 1e-26),
    "cube": (lambda A, **k: sg.matrix_power(A, 3, **k), 1e20),
    "exponential": (sg.matrix_exp, 100.0),
}
TRANSFORMED = {
    "vjp": lambda f, A, G: torch.func.vjp(f, A)[1](G)[0],
    "grad": lambda f, A, G: torch.func.grad(lambda A: (f(A) * G).sum())(A),
    "vmap of vjp": lambda f, A, G: torch.func.vmap(lambda A: torch.func.vjp(f, A)[1](G)[0])(A[None])[0],
    "jvp": lambda f, A, G: torch.func.jvp(f, (A,), (G,))[1],  # the derivative is self-adjoint
}


# Where the values overflow, the exact method needs eager mode: transforms multiply the cotangent by their power of two.
CASES = [
    *((name, method) for name in STEEP for method in ("svd-pade", "svd-clip", "lorentzian", "masked")),
    *((name, "exact") for name in STEEP if name not in ("cube", "exponential")),
]


@in_turn("name, method", CASES, spectrum=[(1.0, 1.0), (1.0, 2.0)], transform=TRANSFORMED)
def test_gradients_that_overflow_are_the_same_under_transforms(name, spectrum, method, transform):
    """Infinite with their sign by the exact method, clamped by rules that saturate; f(A) is not part of the loss."""
    f, size = STEEP[name]
    A, G = (torch.diag(torch.tensor(spectrum)) * size), torch.tensor([[1.0, 0.25], [0.25, -2.0]])
    B = A.clone().requires_grad_()
    (expected,) = torch.autograd.grad(f(B, method=method), B, G)
    found = TRANSFORMED[transform](lambda A: f(A, method=method), A, G)
    assert not bool(expected.isnan().any())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", ["exact", "svd-pade"])
@pytest.mark.parametrize("name", ["inverse", "inverse root"])
def test_gradients_that_overflow_are_the_same_in_compiled_code(name, method):
    f, size = STEEP[name]
    A, G = (torch.eye(2) * size).requires_grad_(), torch.tensor([[1.0, 0.25], [0.25, -2.0]])
    compiled = torch.compile(lambda A: f(A, method=method), backend="aot_eager", fullgraph=True)
    (found,), (expected,) = (torch.autograd.grad(g(A), A, G) for g in (compiled, lambda A: f(A, method=method)))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_large_powers_of_eigenvalues_near_one_have_no_nan(dtype, both_ways):
    """2⁻¹²⁸ is representable, and 1.1 to a large power is beside 1 and 0.9 to the same power."""
    ends = 128 if dtype == torch.float32 else 1060
    w = torch.tensor([0.9, 1.0, 1.1], dtype=dtype)
    for A, p in (
        (2 * torch.eye(2, dtype=dtype), -ends),
        (torch.diag(w), 0.9 * ends * 4 + 0.5),
        (torch.diag(w), ends + 3),
    ):
        leaf = A.clone().requires_grad_()
        S = sg.matrix_power(leaf, p)
        (gradient,) = torch.autograd.grad(S.diagonal(dim1=-2, dim2=-1).sum(), leaf)
        values, rtol = A.diagonal(), 8 * abs(p) * torch.finfo(dtype).eps  # rounding of an eigenvalue grows p times
        torch.testing.assert_close(S.diagonal().detach(), values**p, rtol=rtol, atol=0)
        torch.testing.assert_close(gradient.diagonal(), p * values ** (p - 1), rtol=rtol, atol=0)
        assert not gradient.isnan().any()


@pytest.mark.parametrize("n", [17, 100, 2**24, 2**24 + 1, 2**31])
def test_whole_powers_of_any_size_have_their_sign_and_gradient(n, both_ways):
    leaf = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)).requires_grad_()
    S = sg.matrix_power(leaf, n)
    (gradient,) = torch.autograd.grad(S.diagonal().sum(), leaf)
    odd = n % 2
    assert S.diagonal().tolist() == [1.0, -1.0 if odd else 1.0, 1.0]
    assert gradient.diagonal().tolist() == [n, n if odd else -n, n]


@pytest.mark.parametrize("p", [10**400, 1e300, -1e300, 2**53 + 1])
def test_a_power_that_is_no_exact_number_is_an_error(p):
    with pytest.raises(sg.errors.ArgumentError, match="matrix_power: expected p to be a number"):
        sg.matrix_power(torch.eye(2), p)


@pytest.mark.parametrize("function", [sg.matrix_log, sg.matrix_exp, lambda A: sg.matrix_power(A, 0.7)])
def test_results_may_be_modified_in_place(function, both_ways):
    A = torch.eye(2).requires_grad_()
    (expected,) = torch.autograd.grad(function(A).mul(2).sum(), A)
    (found,) = torch.autograd.grad(function(A).mul_(2).sum(), A)
    assert torch.equal(found, expected)


def test_powers_do_not_remember_the_default_device():
    A = torch.eye(2).requires_grad_()
    with torch.device("meta"):
        sg.matrix_power(A, 0.71)
    (gradient,) = torch.autograd.grad(sg.matrix_power(A, 0.71).sum(), A, create_graph=True)
    assert gradient.device == A.device
