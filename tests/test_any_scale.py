"""N16 and N17: results and gradients at any scale, ±inf where they overflow; the same values with a gradient."""

import math

import mpmath
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics.fuzzing.homogeneous import HOMOGENEOUS
from spectralgrad.diagnostics.fuzzing.scaling import BITS
from spectralgrad.precision import all_ordinary, exponent, ldexp
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import noise

SINGLE, DOUBLE = torch.float32, torch.float64
S = torch.tensor([[2, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 3]], dtype=DOUBLE)


def _gradient(f, *inputs, seed=0):
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = f(*leaves)
    G = torch.randn(value.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)).to(value.dtype)
    return torch.autograd.grad(value, leaves, G)


def _positive(dtype, seed=0):
    return with_spectrum([0.3, 0.7, 1.1, 1.9], dtype=dtype, seed=seed)


# Scales beyond the fuzzer's ±500 and ±60: name → function, degrees in its inputs, exponents in float32 and in float64
BEYOND = {
    "gaussian_transport": (sg.gaussian_transport, (0, 0), (-90, 100), (-1000, -530, 565, 1000)),
    "frechet_distance": (lambda X, Y: sg.frechet_distance(X, Y, squared=False), (1, 1), (-90, 100), (-600, 532, 1000)),
    "matrix_power": (lambda A: sg.matrix_power(A, 1.5), (1.5,), (-96, 60), (-1000, 600)),
    "matrix_inv_sqrt": (sg.matrix_inv_sqrt, (-0.5,), (-80, 100), (-600, 1000)),
    "low_rank": (lambda A: sg.low_rank(A, 2), (1,), (-125, 120), (-1010, 1000)),
    "polar": (sg.polar, (0,), (-120, 120), (-1000, 1000)),
    "wct": (lambda X, Y: sg.nn.functional.wct(X[None], Y[None], eps=0.0), (1, 1), (-120, 120), (-1010, 1010)),
    "log_euclidean": (sg.log_euclidean, (0, 0), (-120, 120), (-1000, 1000)),
    "newton_schulz": (lambda A: sg.linalg.newton_schulz(A)[1], (-0.5,), (-80, 100), (-600, 1000)),
    "lyapunov": (lambda S, G: sg.linalg.lyapunov(S, G).solution, (0, 0), (-110, 110), (-1000, 1000)),
    "eigvalsh of pencils": (sg.eigvalsh, (0, 0), (-110, 110), (-1000, 1000)),
}


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("name", BEYOND)
def test_far_beyond_the_squares_that_are_representable(name, dtype):
    """Both inputs times 2ᵉ: values have the degree q, gradients q − 1, to the rounding of scale one."""
    f, degrees, *exponents = BEYOND[name]
    inputs = [_positive(dtype, seed) for seed in range(len(degrees))]
    q, bound, most = degrees[0], 2000 * torch.finfo(dtype).eps, 1015 if dtype == DOUBLE else 122
    base = f(*inputs), *_gradient(f, *inputs)
    for e in exponents[dtype == DOUBLE]:
        moved = [ldexp(x, torch.tensor(float(e))) for x in inputs]
        found = f(*moved), *_gradient(f, *moved)
        for x, y, shift in zip(found, base, (e * q, *[e * (q - 1)] * len(inputs)), strict=True):
            if abs(shift) < most:  # otherwise it is not representable
                assert relative_error(ldexp(x.double(), torch.tensor(-float(shift))), y.double()) < bound


PAIRS = {
    "gaussian_transport": sg.gaussian_transport,
    "bures_wasserstein": sg.bures_wasserstein,
    "log_euclidean": sg.log_euclidean,
    "affine_invariant": sg.affine_invariant,
    "lyapunov": lambda A, B: sg.linalg.lyapunov(A, B).solution,
    "eigvalsh of pencils": sg.eigvalsh,
}


@pytest.mark.parametrize("e", [0, -900, 900])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_one_matrix_and_a_batch_at_every_scale(name, turned, e):
    """Values are those of single pairs, and the gradient of the one matrix is the sum over the batch."""
    f = (lambda A, B: PAIRS[name](B, A)) if turned else PAIRS[name]
    one, *others = (ldexp(_positive(DOUBLE, seed), torch.tensor(float(e))) for seed in range(3))
    one, batch = one.requires_grad_(), torch.stack(others).requires_grad_()
    values, alone = f(one, batch), torch.stack([f(one, other) for other in batch])
    G = noise(*values.shape)
    found, expected = ((x, *torch.autograd.grad(x, (one, batch), G)) for x in (values, alone))
    for x, y in zip(found, expected, strict=True):
        assert relative_error(x / y.abs().max(), y / y.abs().max()) < 1000 * torch.finfo(DOUBLE).eps


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1.0, 1e12, 1e25])
@pytest.mark.parametrize("options", [{}, {"scale": True}], ids=str)
def test_alignment_does_not_depend_on_whether_a_gradient_is_wanted(scale, options, native, monkeypatch):
    if not native:
        monkeypatch.setattr("spectralgrad.solvers.kernel.point_sets.kernel", lambda: None)
    generator = torch.Generator().manual_seed(3)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator))[0]
    X, Y = (torch.nn.functional.pad(torch.randn(6, 2, generator=generator), (0, 1)) @ turn * scale for _ in range(2))
    plain, tracked = sg.procrustes(X, Y, **options), sg.procrustes(X.clone().requires_grad_(), Y, **options)
    for part, other, unit in zip(plain[:3], tracked[:3], (1, scale, 1), strict=True):
        assert_close(part / unit, other.detach() / unit, rtol=0, atol=1e-4)
    assert_close(plain.residual, tracked.residual.detach(), rtol=1e-4, atol=0)
    assert_close(plain.rotation, sg.procrustes(X.double(), Y.double(), **options).rotation.float(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("dtype", "size"), [(SINGLE, 2.0**-16), (DOUBLE, 2.0**-160)], ids=str)
@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 2, 3, 1, 0.5, 1])], ids=["equal", "weighted"])
def test_alignment_of_points_whose_distances_are_much_smaller_than_they(dtype, size, weights):
    """The points are of ordinary size, their distances are not; a power of two changes nothing."""
    X, Y = ((1 + noise(6, 3, seed=seed) / 256).to(dtype) for seed in (1, 2))
    weights = None if weights is None else weights.to(dtype)
    expected = sg.procrustes(X, Y, scale=True, weights=weights)
    for tracked in (False, True):
        found = sg.procrustes((X * size).requires_grad_(tracked), Y * size, scale=True, weights=weights)
        units = (1, size, 1, size**2, 1)
        for x, y, unit in zip(found, expected, units, strict=True):
            assert relative_error(x.detach() / unit, y) < 2**12 * torch.finfo(dtype).eps


@pytest.mark.parametrize("factor", [2.0**-60, 1.0, 2.0**60])
def test_the_scale_of_coinciding_points_is_one_whatever_their_size(factor):
    X, Y = torch.ones(5, 3), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for pair in ((X * factor, Y), (X, Y * factor), (X * factor, Y * factor)):
        assert sg.procrustes(*pair, scale=True).scale == 1


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("method", ["exact", "svd-pade", "svd-taylor"])
def test_values_that_overflow_are_infinite_with_their_sign(dtype, method):
    wide = dtype in (DOUBLE, torch.complex128)
    A = _positive(dtype) * 2.0 ** (500 if wide else 60)
    base = sg.matrix_power(_positive(dtype), 3)
    found = sg.matrix_power(A, 3, method=method)
    clear = base.real.abs() > 1e-3
    assert torch.equal(found.real[clear], base.real.sign()[clear] * math.inf)
    assert not bool(torch.isnan(torch.view_as_real(found) if dtype.is_complex else found).any())


@pytest.mark.parametrize(
    ("f", "size"),
    [
        (lambda A: sg.matrix_power(A, -1), 1e-20),
        (sg.matrix_inv_sqrt, 1e-26),
        (sg.matrix_log, 1e-42),
        (lambda A: sg.linalg.newton_schulz(A)[1], 1e-30),
        (lambda A: sg.linalg.lyapunov(A, _positive(A.dtype, seed=1) * 1e9).solution, 1e-36),
    ],
    ids=["inverse", "inverse root", "logarithm", "iterated inverse root", "Lyapunov equation"],
)
def test_gradients_that_overflow_are_infinite_with_their_sign(f, size):
    A = (_positive(DOUBLE) * size).float()
    (g,) = _gradient(f, A)
    (expected,) = _gradient(f, A.double())
    clear = expected.abs() > 4 * torch.finfo(SINGLE).max
    assert bool(clear.any())
    assert torch.equal(g[clear], expected.sign()[clear].float() * math.inf)
    assert not bool(torch.isnan(g).any())


def test_gradients_that_small_cotangents_make_representable_are_exact():
    A = (_positive(DOUBLE) * 1e-26).float().requires_grad_()
    (g,) = torch.autograd.grad(sg.matrix_inv_sqrt(A), A, torch.full((4, 4), 1e-9))
    wide = A.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(sg.matrix_inv_sqrt(wide), wide, torch.full((4, 4), 1e-9, dtype=DOUBLE))
    assert relative_error(g.double(), expected) < 1e-4


@pytest.mark.parametrize("method", ["exact", "svd", "svd-pade"])
@pytest.mark.parametrize("fixed", [True, False])
def test_the_gradient_of_an_exponent_at_extreme_scales(method, fixed):
    """Σ G̃ᵢᵢ λᵖ ln λ, in 50 digits, whether or not the matrix requires a gradient."""
    values = [2.0**-900, 3 * 2.0**-900, 7 * 2.0**-900]
    p = torch.tensor(-0.75, dtype=DOUBLE, requires_grad=True)
    A = torch.diag(torch.tensor(values, dtype=DOUBLE)).requires_grad_(not fixed)
    (g,) = torch.autograd.grad(sg.matrix_power(A, p, method=method).diagonal().sum(), p)
    with mpmath.workdps(50):
        expected = mpmath.fsum(mpmath.mpf(x) ** -0.75 * mpmath.log(x) for x in values)
        assert abs(mpmath.mpf(g.item()) / expected - 1) < 1e-13


class _WithoutGradient(torch.autograd.Function):
    """The identity, whose backward pass returns None."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return None


@pytest.mark.parametrize("name", BEYOND)
@pytest.mark.parametrize("e", [0, 500])
def test_a_backward_pass_without_cotangents(name, e):
    """Where the rest of the graph returns None, no gradient arrives, at every scale."""
    f, degrees, *_ = BEYOND[name]
    inputs = [ldexp(_positive(DOUBLE, seed), torch.tensor(float(e))).requires_grad_() for seed in range(len(degrees))]
    (_WithoutGradient.apply(f(*inputs)).sum() + sum(x.trace() for x in inputs)).backward()
    assert all(torch.equal(x.grad, torch.eye(4, dtype=DOUBLE)) for x in inputs)


def test_an_exponential_that_overflows():
    A = with_spectrum([-3.0, 700.0, 712.0, 715.0])
    found, (g,) = sg.matrix_exp(A), _gradient(sg.matrix_exp, A)
    expected = sg.matrix_exp(A - 100 * torch.eye(4, dtype=DOUBLE))
    assert torch.equal(found.isinf(), expected.abs() > torch.finfo(DOUBLE).max * math.exp(-100))
    assert torch.equal(found.sign(), expected.sign())
    assert not bool(torch.isnan(g).any())
    huge = sg.matrix_exp(A * 1e200)
    assert not bool(torch.isnan(huge).any())
    assert bool(huge.diagonal().isinf().all())


@pytest.mark.parametrize("shape", [(3, 3), (9, 3), (3, 9), (40, 40), (120, 40)], ids=str)
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_singular_values_that_overflow_are_infinite(dtype, shape):
    """No entry overflows, but the norm does."""
    M = torch.full(shape, torch.finfo(dtype).max / 2, dtype=dtype)
    for f in (sg.svdvals, lambda M: sg.svd(M).S, sg.nuclear_norm, sg.spectral_norm, lambda M: sg.schatten_norm(M, 3)):
        for x in (M, M.clone().requires_grad_()):
            assert f(x).flatten()[0] == math.inf
    tolerance = 64 * torch.finfo(dtype).eps
    assert_close(sg.low_rank(M, 1), M, rtol=tolerance, atol=0)
    if shape[0] == shape[1]:
        assert sg.eigvalsh(M)[-1] == sg.eigh(M).eigenvalues[-1] == math.inf


@pytest.mark.parametrize("d", [3, 40, 100])
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, torch.complex64], ids=str)
def test_roots_and_logarithms_of_matrices_whose_norm_overflows(dtype, d):
    A = torch.full((2, d, d), torch.finfo(dtype).max, dtype=dtype)
    A[1] = _block(d, dtype)
    tolerance = 1e4 * torch.finfo(dtype).eps
    small = A / 2.0**20
    for f, factor in ((sg.matrix_sqrt, 2.0**10), (lambda A: sg.matrix_power(A, 0.25), 2.0**5)):
        expected = f(small) * factor
        for found in (f(A), f(A.clone().requires_grad_()).detach()):
            for x, y in zip(found, expected, strict=True):
                assert relative_error(x, y) < tolerance
    (expected,), (found,) = _gradient(sg.matrix_sqrt, small[:1]), _gradient(sg.matrix_sqrt, A[:1])
    assert relative_error(found, expected / 2.0**10) < tolerance


def _block(d, dtype):
    """An ordinary matrix beside one whose norm overflows: it is not scaled."""
    return with_spectrum(torch.linspace(1, 2, d).tolist(), dtype=dtype)


def test_a_layer_whitens_features_whose_squares_overflow():
    X = torch.randn(8, 4, 5, 5, generator=torch.Generator().manual_seed(0)) + 1
    layer, reference = (sg.nn.DecorrelatedBatchNorm2d(4, eps=0.0, groups=2) for _ in range(2))
    moved = X.clone()
    moved[:, :2] *= 2.0**66  # another scale in each group
    moved[:, 2:] *= 2.0**-66
    leaves = [x.clone().requires_grad_() for x in (moved, X)]
    found, expected = layer(leaves[0]), reference(leaves[1])
    assert_close(found, expected, rtol=0, atol=1e-5)
    G = torch.randn(X.shape, generator=torch.Generator().manual_seed(1))
    g, wanted = (torch.autograd.grad(y, x, G)[0] for x, y in zip(leaves, (found, expected), strict=True))
    assert_close(g[:, :2] * 2.0**66, wanted[:, :2], rtol=0, atol=1e-5)
    assert_close(g[:, 2:] * 2.0**-66, wanted[:, 2:], rtol=0, atol=1e-5)
    assert_close(layer.running_mean[:2] / 2.0**66, reference.running_mean[:2])


def test_running_statistics_that_overflow_are_infinite_and_evaluation_says_so():
    layer = sg.nn.DecorrelatedBatchNorm2d(3)
    layer(1e20 * torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)))
    assert bool(layer.running_cov.diagonal(dim1=-2, dim2=-1).isinf().all())
    layer.eval()
    with pytest.raises(sg.SpectralError, match="running covariance, got one that overflowed"):
        layer(torch.randn(1, 3, 2, 2))
    layer = sg.nn.DecorrelatedBatchNorm2d(3, statistics="whitening", momentum=1.0)
    X = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    trained = layer(1e20 * X)
    assert_close(layer.eval()(1e20 * X), trained, rtol=0, atol=1e-5)


def test_true_infinity_in_features_is_still_named():
    X = torch.randn(4, 3, 5, 5)
    X[0, 0, 0, 0] = math.inf
    with pytest.raises(sg.NonFiniteError):
        sg.nn.DecorrelatedBatchNorm2d(3)(X)


@pytest.mark.parametrize("seed", range(4))
def test_transport_of_singular_matrices_in_single_precision(seed):
    """Rounding errors of the roots on the null space are not inverted."""
    pair = [with_spectrum([0.0, 0.0, 0.0, 0.3, 0.3, 1.0], seed=2 * seed + k) for k in range(2)]
    expected = _gradient(sg.gaussian_transport, *pair)
    for x, y in zip(_gradient(sg.gaussian_transport, *(A.float() for A in pair)), expected, strict=True):
        assert relative_error(x.double(), y) < 1e-4


@pytest.mark.parametrize("length", [1, 3, 64, 4096])
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_powers_of_two_are_exact_over_the_whole_range(dtype, length):
    """With the exponential function that torch chooses for this processor, in whole vectors and at their ends."""
    bits = BITS[dtype] * 2 if dtype == SINGLE else 1022
    for e in torch.arange(float(-bits), bits, dtype=dtype).split(length):
        ones = torch.ones_like(e)
        assert ldexp(ones, e).tolist() == [math.ldexp(1.0, int(k)) for k in e]
        assert torch.equal(ldexp(ldexp(3 * ones, e), -e), 3 * ones)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_powers_of_two_beyond_the_range_are_infinite(dtype):
    extreme = ldexp(torch.tensor([1.0, -1.0, 0.0], dtype=dtype), torch.tensor(4000.0))
    assert extreme.tolist() == [math.inf, -math.inf, 0.0]
    assert ldexp(torch.tensor(complex(1, 0)), torch.tensor(4000.0)) == complex(math.inf, 0)


def test_exponents_are_even_and_zero_for_ordinary_matrices():
    X = torch.stack([torch.full((2, 2), x) for x in (0.0, 1.0, 2.0**30, 3 * 2.0**-30, math.inf, math.nan)])
    assert exponent(X).tolist() == [0.0, 0.0, 30.0, -28.0, 0.0, 0.0]
    assert [all_ordinary(x) for x in X] == [True, True, False, False, False, False]
    assert all_ordinary(X[:2])
    assert not all_ordinary(X[:3])


@pytest.mark.parametrize(("dtype", "e"), [(torch.complex64, 30), (torch.complex128, 200)], ids=str)
@pytest.mark.parametrize("part", [1, -1, 1j, -1j])
def test_complex_matrices_are_as_large_as_their_largest_part_of_either_sign(part, dtype, e):
    X = part * 2.0**e * torch.eye(2, dtype=dtype)
    assert exponent(X).item() == e
    assert not all_ordinary(X)


@pytest.mark.parametrize(("dtype", "e"), [(SINGLE, -132), (DOUBLE, -1030)], ids=str)
def test_gaps_of_subnormal_singular_values_whose_reciprocals_overflow(dtype, e, both_ways):
    M, info = with_spectrum([1.0, 0.5, 0.25], dtype=dtype, seed=2), torch.finfo(dtype)
    low_rank = lambda M: sg.low_rank(M, 1)  # noqa: E731
    found, expected = (_gradient(low_rank, ldexp(M, torch.tensor(float(k))))[0] for k in (e, 0))
    assert relative_error(found, expected.double()) < 32 * info.tiny * info.eps / 2.0**e  # M is rounded to this


def test_every_public_function_of_matrices_is_in_the_table_of_scales_or_not_homogeneous():
    scaled = {name.split()[0] for name in HOMOGENEOUS}
    others = {
        "matrix_log", "matrix_exp", "matrix_function",  # not homogeneous; fuzzed at every scale against closed forms
        "log_det",  # a logarithm, with a test of its own
        "eigsh", "lyapunov", "newton_schulz",  # iterations, with tests of their own
    }  # fmt: skip
    functions = {name for name in sg.linalg.__all__ if name[0].islower()}
    assert functions == (scaled & functions) | others


@pytest.mark.parametrize("size", [1.0, 100.0, 1e5])
@pytest.mark.parametrize("method", ["svd-taylor", "svd-pade", "svd-clip", "svd-pi:eps=0", "lorentzian", "masked"])
def test_gradients_of_rules_that_saturate_are_finite_for_large_cotangents(method, size):
    X = noise(4, 8, dtype=DOUBLE)
    A = (X @ X.mT * 2.0**-1000).requires_grad_()
    (g,) = torch.autograd.grad(sg.matrix_inv_sqrt(A, method=method), A, size * noise(4, 4, dtype=DOUBLE, seed=1))
    assert torch.isfinite(g).all()
    assert g.abs().amax() > torch.finfo(DOUBLE).max / 100


@pytest.mark.parametrize("p", [0.3, 0.7, -0.3])
def test_whether_a_matrix_is_scaled_does_not_depend_on_its_neighbours(p):
    for t in range(60):
        A = with_spectrum([2.0 ** (-30 + t / 6) * c for c in (1.0, 1.1, 1.3)], dtype=SINGLE, seed=t)
        alike, beside = torch.stack([A, A]), torch.stack([A, torch.eye(3) * 2.0**-100])
        assert torch.equal(sg.matrix_power(alike, p)[0], sg.matrix_power(beside, p)[0])


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_derivatives_of_user_functions_reach_the_largest_numbers(dtype):
    size = torch.finfo(dtype).max * 0.9
    trace = lambda A: sg.matrix_function(A, lambda x: x.abs().sqrt()).diagonal().sum()  # noqa: E731
    found = torch.func.grad(trace)(size * torch.eye(2, dtype=dtype))
    torch.testing.assert_close(found, torch.eye(2, dtype=dtype) / (2 * size**0.5), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("size", [40.0, 128.0, 2.0**60])
@pytest.mark.parametrize("method", ["pi", "svd-pi:unrolled=True"])
def test_exponentials_by_power_iteration_are_infinite_where_they_overflow(method, size):
    A = (torch.tensor([[2.0, 1.0], [1.0, 3.0]]) * size).requires_grad_()
    S = sg.matrix_exp(A, method=method)
    (g,) = torch.autograd.grad(S, A, torch.tensor([[1.0, 0.5], [0.5, 2.0]]))
    assert torch.equal(S, torch.full((2, 2), torch.inf))
    assert torch.equal(g, torch.full((2, 2), torch.inf))
