"""N2, N4–N8: finite, independent of the batch, of the scale, skew, complex, half."""

import math

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.pairwise import norm
from spectralgrad.diagnostics.fuzzing.scaling import RELATIVE
from spectralgrad.precision import magnitude, working_dtype
from spectralgrad.rules import METHODS, GapMethod
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import (
    DECOMPOSERS,
    DTYPES,
    FUNCTIONS,
    REAL,
    SINGULAR,
    SPECTRA,
    every_spectrum,
    gradient,
    matrix,
    noise,
    not_finite,
    pairs,
    symmetric_noise,
    unit,
)

GAP_METHODS = [name for name, cls in METHODS.items() if issubclass(cls, GapMethod)]


def _eigh_and_gradient(A, method):
    A = A.detach().clone().requires_grad_()
    w, V = sg.eigh(A, method=method)
    loss = (V * symmetric_noise(6, A.dtype)).sum((-2, -1)).abs() + (w * torch.arange(6)).sum(-1)
    return w, V, *torch.autograd.grad(loss.sum(), A)


def _svd_and_gradient(M, method):
    M = M.detach().clone().requires_grad_()
    U, S, Vh = sg.svd(M, method=method)
    loss = U.sum((-2, -1)).abs() + Vh.sum((-2, -1)).abs() + S.sum(-1)
    return U, S, Vh, *torch.autograd.grad(loss.sum(), M)


def _function_and_gradient(A, name, method):
    f = lambda X: FUNCTIONS[name](X, method=method)  # noqa: E731
    return f(A), gradient(f, A, symmetric_noise(6, A.dtype))


def _alone(results, batch, *arguments):
    """The results of each matrix by itself, stacked: one matrix takes another way through the kernel than many."""
    return tuple(map(torch.stack, zip(*(results(A, *arguments) for A in batch), strict=True)))


every_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)
alone = pytest.mark.parametrize("one_by_one", [False, pytest.param(True, marks=pytest.mark.full)])


@alone
@every_type
@pytest.mark.parametrize("method", [m for m in DECOMPOSERS if m != "svd"])
def test_n2_eigh_is_finite(method, dtype, one_by_one):
    A = every_spectrum(dtype)
    found = _alone(_eigh_and_gradient, A, method) if one_by_one else _eigh_and_gradient(A, method)
    assert not_finite(SPECTRA, *found) == []


@alone
@every_type
@pytest.mark.parametrize("method", [m for m in SINGULAR if m != "svd"])
def test_n2_svd_is_finite(method, dtype, one_by_one):
    A = every_spectrum(dtype)
    for M in (A, A[..., :4], A[:, :4]):
        found = _alone(_svd_and_gradient, M, method) if one_by_one else _svd_and_gradient(M, method)
        assert not_finite(SPECTRA, *found) == []


@alone
@every_type
@pytest.mark.parametrize(("name", "method"), [p for p in pairs() if p[1] != "svd"])
def test_n2_matrix_functions_are_finite(name, method, dtype, one_by_one):
    A = every_spectrum(dtype)
    found = _alone(_function_and_gradient, A, name, method) if one_by_one else _function_and_gradient(A, name, method)
    assert not_finite(SPECTRA, *found) == []


def _same_beside_any_neighbours(f, H):
    """The first matrix of a batch gets the same bits whatever stands behind it."""
    for spectrum in SPECTRA:
        A = matrix(spectrum)
        first = [torch.stack([A, *(matrix(s, seed=seed) for s in SPECTRA)]) for seed in (1, 2)]
        assert torch.equal(*(f(batch)[0] for batch in first))
        assert torch.equal(*(gradient(f, batch, H)[0] for batch in first))


@pytest.mark.parametrize("method", [m for m in DECOMPOSERS if m != "svd"])
def test_n4_eigh_does_not_depend_on_the_neighbours(method):
    _same_beside_any_neighbours(lambda X: sg.eigh(X, method=method).eigenvectors, symmetric_noise(6))


@pytest.mark.parametrize("method", [m for m in SINGULAR if m != "svd"])
def test_n4_svd_does_not_depend_on_the_neighbours(method):
    _same_beside_any_neighbours(lambda X: sg.svd(X, method=method).Vh, symmetric_noise(6))


@pytest.mark.parametrize(("name", "method"), [p for p in pairs() if p[1] != "svd"])
def test_n4_functions_do_not_depend_on_the_neighbours(name, method):
    _same_beside_any_neighbours(lambda X: FUNCTIONS[name](X, method=method), symmetric_noise(6))


def test_n4_and_its_exception():
    """The released power iteration draws its starts one after the other: place and number of the matrices matter.

    What the other matrices contain does not.
    """
    A = matrix("near-tie")

    def f(X):
        torch.manual_seed(0)
        return sg.matrix_inv_sqrt(X, method=sg.PI(faithful=True))

    assert not torch.equal(f(torch.stack([A, A]))[1], f(A))
    assert torch.equal(*(f(torch.stack([matrix(s), A]))[1] for s in ("spread", "rank-one")))


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 2.0**60), (torch.float64, 2.0**498)], ids=str)
@pytest.mark.parametrize("method", [m for m in GAP_METHODS if m != "svd"])
def test_n5_gap_matrix_scales_as_one_over_the_matrix(method, dtype, scale):
    """c = 1e±18 and 1e±150 as powers of two, so that nothing but the rule's own tolerances could differ."""
    rule = RELATIVE.get(method, METHODS[method]())
    w = torch.tensor([*SPECTRA.values()], dtype=dtype)
    w = torch.where(w.abs() > torch.finfo(dtype).tiny * scale, w, 0)  # what scaling down would flush anyway
    K = rule.gaps(w)
    for c in (scale, 1 / scale):
        assert_close(rule.gaps(w * c) * c, K, rtol=8 * unit(dtype), atol=0)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e18), (torch.float64, 1e150)], ids=str)
@pytest.mark.parametrize("method", [m for m in DECOMPOSERS if m != "svd"])
def test_n5_eigenvector_gradients_scale_as_one_over_the_matrix(method, dtype, scale):
    method = RELATIVE.get(method, method)
    A, H = matrix("spread", dtype), symmetric_noise(6, dtype)
    f = lambda X: sg.eigh(X, method=method).eigenvectors.square()  # noqa: E731
    g = gradient(f, A, H)
    for c in (scale, 1 / scale):
        assert relative_error(gradient(f, A * c, H).double() * c, g) < 1e3 * unit(dtype)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e18), (torch.float64, 1e150)], ids=str)
@pytest.mark.parametrize("spectrum", ["spread", "tie", "rank-three"])
@pytest.mark.parametrize(("name", "degree"), [("sqrt", 0.5), ("inv_sqrt", -0.5), ("power", 0.3)])
def test_n5_functions_scale_as_they_should(name, degree, spectrum, dtype, scale):
    A, G = matrix(spectrum, dtype), symmetric_noise(6, dtype)
    g = gradient(FUNCTIONS[name], A, G).double()
    for c in (scale, 1 / scale):
        scaled = gradient(FUNCTIONS[name], A * c, G).double() * float(c) ** (1 - degree)
        assert relative_error(scaled, g) < 1e4 * unit(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("method", [m for m in GAP_METHODS if m not in ("svd", "svd-pi")])
def test_n6_gap_matrix_is_exactly_skew(method, dtype):
    """svd-pi is one-sided by construction: a vector sees larger eigenvalues with one term less (claim R12)."""
    K = METHODS[method]().gaps(torch.tensor([*SPECTRA.values()], dtype=dtype))
    assert [name for name, k in zip(SPECTRA, K, strict=True) if not torch.equal(k, -k.mT)] == []


@pytest.mark.parametrize(
    "rule", [sg.SVDPI(), sg.Pade(faithful=True), sg.Taylor(faithful=True), sg.Trunc(faithful=True)]
)
def test_rules_that_are_not_skew_say_so(rule):
    K = rule.gaps(torch.tensor([1.0, 1.5, 1.5, 2.0], dtype=torch.float64))
    assert not rule.skew
    assert not torch.equal(K, -K.mT)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("method", [m for m in GAP_METHODS if m not in ("svd", "svd-topn")])
def test_documented_bound_holds(method, dtype):
    rule, w = METHODS[method](), torch.tensor([*SPECTRA.values()], dtype=dtype)
    bounded = rule.gaps(w).abs().amax((-2, -1)) <= rule.bound(w) * (1 + 8 * unit(dtype))
    assert [name for name, held in zip(SPECTRA, bounded, strict=True) if not held] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_n7_complex_agrees_with_its_real_form(name):
    """[[B, −C], [C, B]] for A = B + iC has the same functions and gradients, every eigenvalue twice."""
    A, G = matrix("tie", torch.complex128), symmetric_noise(6, torch.complex128)
    real = lambda Z: torch.cat([torch.cat([Z.real, -Z.imag], -1), torch.cat([Z.imag, Z.real], -1)], -2)  # noqa: E731
    f = FUNCTIONS[name]
    assert_close(real(f(A)), f(real(A)), rtol=1e-11, atol=1e-11)
    assert_close(real(gradient(f, A, G)), gradient(f, real(A), real(G)), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("name", "method"), [p for p in pairs() if p[1] != "pi"])
def test_n7_every_method_is_equivariant_under_phases(name, method):
    """f(DADᴴ) = D f(A) Dᴴ for diagonal unitary D, and the gradient follows (pi starts from fixed vectors)."""
    A, G = matrix("spread"), symmetric_noise(6)
    D = torch.diag(torch.exp(1j * torch.arange(6, dtype=torch.float64)))
    f = lambda X: FUNCTIONS[name](X, method=method)  # noqa: E731
    turn = lambda X: D @ X.to(D.dtype) @ D.mH  # noqa: E731
    assert_close(f(turn(A)), turn(f(A)), rtol=1e-10, atol=1e-10)
    assert_close(gradient(f, turn(A), turn(G)), turn(gradient(f, A, G)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_n8_half_types_compute_in_float32(name, dtype):
    A = matrix("tie", torch.float32).to(dtype)
    G = symmetric_noise(6, torch.float32)
    S = FUNCTIONS[name](A)
    assert S.dtype == dtype
    assert_close(S, FUNCTIONS[name](A.float()).to(dtype))
    assert_close(gradient(FUNCTIONS[name], A, G), gradient(FUNCTIONS[name], A.float(), G.to(dtype).float()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_n8_half_decompositions_return_their_own_type(dtype):
    A = matrix("spread", torch.float32).to(dtype)
    assert {t.dtype for t in (*sg.eigh(A), *sg.svd(A[:, :3]), sg.polar(A))} == {dtype}
    assert_close(sg.eigh(A).eigenvalues, sg.eigh(A.float()).eigenvalues.to(dtype))


@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt", "log", "function"])
def test_n8_autocast_changes_nothing(name):
    A, G = matrix("tie", torch.float32), symmetric_noise(6, torch.float32)
    expected = gradient(FUNCTIONS[name], A, G)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, g = FUNCTIONS[name](A), gradient(FUNCTIONS[name], A, G)
    assert value.dtype == torch.float32
    assert_close(value, FUNCTIONS[name](A), rtol=0, atol=0)
    assert_close(g, expected, rtol=0, atol=0)


def test_n8_autocast_changes_no_decomposition():
    A, H = matrix("spread", torch.float32).requires_grad_(), noise(6, 6, dtype=torch.float32)
    for f in (lambda X: sg.eigh(X).eigenvectors, lambda X: sg.svd(X).U, sg.polar, sg.covariance_sqrt, sg.covariance):
        expected = gradient(f, A, H)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (f(A) * H).sum()
        assert_close(torch.autograd.grad(loss, A)[0], expected, rtol=0, atol=0)


def test_n8_covariance_accumulates_in_float32():
    generator = torch.Generator().manual_seed(0)
    X = (torch.randn(4, 4096, generator=generator) + 3).bfloat16()
    assert_close(sg.covariance(X), sg.covariance(X.double()).float(), rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(sg.covariance(X.float()), sg.covariance(X.double()).float(), rtol=1e-4, atol=1e-4)


def test_n10_lower_triangle_is_read_and_the_gradient_is_hermitian():
    A = matrix("spread", torch.complex128)
    junk = A + torch.triu(torch.full_like(A, 7.0), 1)
    assert_close(sg.eigh(junk).eigenvalues, sg.eigh(A).eigenvalues)
    for f in FUNCTIONS.values():
        g = gradient(f, A, symmetric_noise(6, torch.complex128) + 1j)
        assert_close(g, g.mH)


def test_well_separated_spectra_need_no_remedy():
    """On a spread spectrum every rule that is exact away from ties gives torch's own gradient."""
    A, H = with_spectrum([1.0, 2, 3, 4]), symmetric_noise(4)
    expected = gradient(lambda X: torch.linalg.eigh(X).eigenvectors.square(), A, H)
    for method in ("svd", "svd-clip", "svd-trunc", "svd-topn", "svd-pade", "masked"):
        g = gradient(lambda X, m=method: sg.eigh(X, method=m).eigenvectors.square(), A, H)
        assert_close(g, expected, rtol=1e-12, atol=1e-12)


def test_complex_half_is_computed_in_complex64():
    """Few operations of torch take complex32, so its working type is checked where it is chosen."""
    assert working_dtype(torch.complex32) == torch.complex64
    assert working_dtype(torch.complex64) == torch.complex64


def test_the_norm_that_scales_tolerances_carries_no_gradient():
    assert not norm(torch.tensor([1.0, -2.0], requires_grad=True)).requires_grad


@pytest.mark.parametrize("before", [2.0**-20, 1.0, 2.0**20])
@pytest.mark.parametrize("value", [1e-37, 1e-30, 3e30, 3e37, 1e-30j, 3e30j, 1e-37 + 1e-30j, 3e30 + 1j])
def test_magnitude_is_the_power_of_two_below_the_largest_entry_but_not_too_small(value, before):
    """Fifteen sixteenths of the 128 exponents of single precision at the lower end."""
    dtype = torch.complex64 if isinstance(value, complex) else torch.float32
    X = torch.tensor([[0.0, value], [0.0, 0.0]], dtype=dtype)
    largest = max(abs(complex(value).real), abs(complex(value).imag))
    expected = max(2.0 ** math.floor(math.log2(largest)), 2.0**-120 / before)
    assert float(magnitude(X, before)) == expected
