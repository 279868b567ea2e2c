"""Roots of covariances at every scale of the features: they are homogeneous, and so are their gradients.

float32 is compared with float64, whose range holds the squares and cubes of all float32 numbers; float64 with itself at
scale one, from which powers of two differ by nothing but what a rule does at its own thresholds.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch.func import grad, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn.functional.normalization import normalize
from spectralgrad.precision import magnitude
from spectralgrad.testing import relative_error

SINGLE, DOUBLE = torch.float32, torch.float64
TINY = torch.finfo(SINGLE).tiny


def _pooled(**options):
    return lambda X: sg.nn.functional.covariance_pooling(X.unsqueeze(0), output="full", **options)[0]


ROOTS = {
    "positions": sg.covariance_sqrt,
    "positions, not centred": lambda X: sg.covariance_sqrt(X, center=False),
    "channels": lambda X: sg.covariance_sqrt(X, side="channels"),
    "pooling": _pooled(),
    "pooling, channels": _pooled(side="channels"),
}

# Gradients over the whole range; pooling from positions multiplies the cotangent by the scale.
FULL = [name for name in ROOTS if name != "pooling"]


def _features(scale, dtype=SINGLE, seed=0):
    X = torch.randn(9, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))
    return (X * scale).to(dtype)


def _derivatives(f, X):
    """The value, the gradient in a fixed direction, plain and with a graph, and the second derivative in two."""
    generator = torch.Generator().manual_seed(1)
    G = torch.randn(9, 9, dtype=DOUBLE, generator=generator).to(X.dtype)
    E = torch.randn(9, 4, dtype=DOUBLE, generator=generator).to(X.dtype)
    X = X.clone().requires_grad_()
    S = f(X)
    (plain,) = torch.autograd.grad(S, X, G, retain_graph=True)
    (first,) = torch.autograd.grad(S, X, G, create_graph=True)
    (second,) = torch.autograd.grad((first * E).sum(), X)
    return [t.detach() for t in (S, plain, first, second)]


def _agree(f, X, count=4):
    """All derivatives in single precision against those in double, as good as at scale one."""
    tolerance = 500 * torch.finfo(SINGLE).eps
    wide = _derivatives(f, X.double())
    for got, expected in list(zip(_derivatives(f, X), wide, strict=True))[:count]:
        assert relative_error(got.double(), expected) < tolerance


@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e-20, 1e-13, 1e-6, 1e6, 1e13, 1e20, 1e30, 1e36])
@pytest.mark.parametrize("name", ROOTS)
def test_roots_of_covariances_are_homogeneous_in_single_precision(name, scale):
    _agree(ROOTS[name], _features(scale))


@pytest.mark.parametrize("exponent", [-900, -700, -350, -200, 200, 350, 700, 900])
@pytest.mark.parametrize("name", ROOTS)
def test_roots_of_covariances_are_homogeneous_in_double_precision(name, exponent):
    expected = _derivatives(ROOTS[name], _features(1.0, DOUBLE))
    for got, wanted, power in zip(
        _derivatives(ROOTS[name], _features(2.0**exponent, DOUBLE)), expected, (1, 0, 0, -1), strict=True
    ):
        wanted = wanted * 2.0 ** (power * exponent)
        assert_close(got / got.abs().amax(), wanted / wanted.abs().amax(), rtol=0, atol=1e-13)
        assert_close(got.abs().amax(), wanted.abs().amax(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("scale", [1e-43, 1e-40, 1e-38, 1e37, 1e38])
@pytest.mark.parametrize("center", [True, False])
def test_gradient_of_the_root_from_positions_over_the_whole_range(center, scale):
    """The default of covariance_sqrt: no cotangent is multiplied by the scale. Denormal features are exact input."""
    f = lambda X: sg.covariance_sqrt(X, center=center)  # noqa: E731
    X = _features(scale)
    got, expected = _derivatives(f, X), _derivatives(f, X.double())
    for a, b in zip(got[1:3], expected[1:3], strict=True):
        assert relative_error(a.double(), b) < 500 * torch.finfo(SINGLE).eps
    spacing = TINY * torch.finfo(SINGLE).eps
    assert_close(got[0].double(), expected[0], rtol=500 * torch.finfo(SINGLE).eps, atol=16 * spacing)


@pytest.mark.parametrize("side", ["positions", "channels"])
@pytest.mark.parametrize("ratio", [1e-14, 1e-3, 1.0, 1e10])
@pytest.mark.parametrize("scale", [1e-34, 1e-20, 1e-13, 1.0, 1e13, 1e18])
def test_roots_of_shifted_covariances(scale, ratio, side):
    """ε is ``ratio`` times the mean square of the features; ε of 1e-68 is beyond float32 and its root is not."""
    eps = ratio * scale**2
    _agree(lambda X: sg.covariance_sqrt(X, eps=eps, side=side), _features(scale), count=3)


@pytest.mark.parametrize("side", ["positions", "channels"])
@pytest.mark.parametrize("scale", [1e20, 1e30])
def test_a_shift_far_below_huge_features_costs_nothing(scale, side):
    _agree(lambda X: sg.covariance_sqrt(X, eps=1e-3, side=side), _features(scale), count=3)


def test_a_shift_far_above_the_features():
    X = _features(1e-30)
    S, _, g, _ = _derivatives(lambda X: sg.covariance_sqrt(X, eps=1e-2), X)
    assert_close(S, 0.1 * torch.eye(9))
    assert relative_error(g, _derivatives(lambda X: sg.covariance_sqrt(X, eps=1e-2), X.double())[2]) < 1e-5


@pytest.mark.parametrize("power", [0.3, 0.7, -0.2, "log"])
@pytest.mark.parametrize("side", ["positions", "channels"])
@pytest.mark.parametrize("scale", [1e-25, 1e-13, 1e-8, 1e8, 1e13, 1e18])
def test_pooling_with_any_function(scale, side, power):
    _agree(_pooled(power=power, side=side), _features(scale), count=3)


@pytest.mark.parametrize("scale", [1e-13, 1e20])
def test_the_layer_trains_on_features_of_any_scale(scale):
    generator = torch.Generator().manual_seed(0)
    X = (torch.randn(2, 256, 7, 7, generator=generator) * scale).requires_grad_()
    sg.nn.CovariancePooling(256)(X).sum().backward()
    assert bool(torch.isfinite(X.grad).all())
    assert 1e-3 < float(X.grad.norm()) < 1e3


@pytest.mark.parametrize("whitening", ["zca", "pca", "cholesky"])
@pytest.mark.parametrize("scale", [1e-16, 1e-13, 1e-8, 1e8, 1e13, 1e17])
def test_whitening_without_eps_is_independent_of_scale(scale, whitening):
    """As long as the covariance itself is inside the type; the gradient is that of scale one over the scale."""
    X = torch.randn(64, 6, 4, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    H = torch.randn(64, 6, 4, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    results = []
    for dtype, factor in ((SINGLE, scale), (DOUBLE, 1.0)):
        layer = sg.nn.DecorrelatedBatchNorm2d(6, eps=0.0, whitening=whitening, dtype=dtype)
        Y = (X * factor).to(dtype).requires_grad_()
        out = layer(Y)
        (g,) = torch.autograd.grad(out, Y, H.to(dtype))
        results.append((out.detach().double(), g.double() * factor))
    for got, expected in zip(*results, strict=True):
        assert relative_error(got, expected) < 500 * torch.finfo(SINGLE).eps


def test_a_large_mean_hides_no_small_features():
    X = _features(1e-20)
    X[0] = 1.0
    _agree(sg.covariance_sqrt, X, count=3)


@pytest.mark.parametrize("f", [sg.covariance_sqrt, lambda X: sg.covariance_sqrt(X, eps=1e-3)])
def test_each_matrix_has_its_own_scale(f):
    scales = (1e-30, 1e-13, 1.0, 1e20)
    X = torch.stack([_features(scale, seed=seed) for seed, scale in enumerate(scales)])
    for got, x in zip(f(X), X, strict=True):
        assert relative_error(got, f(x)) < 100 * torch.finfo(SINGLE).eps


def test_scaling_under_transforms():
    X = torch.stack([_features(scale, seed=seed) for seed, scale in enumerate((1e-30, 1e-13, 1.0, 1e20, 1e30))])
    loss = lambda x: sg.covariance_sqrt(x).sum()  # noqa: E731
    for got, x in zip(vmap(grad(loss))(X), X, strict=True):
        assert relative_error(got, grad(loss)(x.double())) < 500 * torch.finfo(SINGLE).eps


def test_derivative_of_the_inverse_root_where_its_weights_alone_overflow():
    """λ^(−3/2) is 1e45; the cotangent brings it back."""
    w = torch.tensor([1e-30, 3e-30, 2e-30])
    for count in (1, 4):  # LAPACK and products, or the kernel
        A = torch.diag(w).expand(count, 3, 3).clone().requires_grad_()
        G = torch.full((count, 3, 3), 1e-20)
        (g,) = torch.autograd.grad(sg.matrix_inv_sqrt(A), A, G)
        B = A.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(sg.matrix_inv_sqrt(B), B, G.double())
        assert relative_error(g, expected) < 100 * torch.finfo(SINGLE).eps


@pytest.mark.parametrize("eps", [-1.0, float("inf"), float("nan")])
def test_eps_is_checked(eps):
    with pytest.raises(sg.errors.ArgumentError, match=r"expected eps to be a (finite )?number"):
        sg.covariance_sqrt(_features(1.0), eps=eps)


@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
@pytest.mark.parametrize("center", [True, False])
def test_root_from_positions_squares_back_however_steep_the_spectrum(center, dtype):
    """By products with M = (XᴴX)^(−1/2), whose norm is 1e7 here, S·S would be off by 1e-10."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(34, 33, dtype=dtype, generator=generator) * torch.logspace(0, -20, 34, dtype=DOUBLE).unsqueeze(-1)
    S = sg.covariance_sqrt(X, center=center)
    C = sg.covariance(X, center=center)
    assert_close(S @ S, C, rtol=0, atol=1e-14 * float(C.abs().max()))


def test_tiny_features_leave_the_root_of_eps():
    """Features far below √ε are not scaled up to where ε would overflow."""
    root = sg.covariance_sqrt(_features(1e-30), eps=1e-14, side="channels")
    assert_close(root, 1e-7 * torch.eye(9), rtol=1e-6, atol=0)


def test_scales_of_empty_matrices_have_the_shape_of_the_batch():
    for shape in [(5, 0, 3), (5, 3, 0), (2, 5, 0, 0)]:
        assert magnitude(torch.zeros(shape)).shape == (*shape[:-2], 1, 1)


@pytest.mark.parametrize("name", ["channels", "pooling, channels"])
def test_gradients_from_channels_of_large_features_with_a_steep_spectrum(name):
    """A cotangent times the scale (2^118) times the slope of the root (2^12) would leave the type."""
    X = _features(1.0) * torch.logspace(0, -3.5, 4)
    got, expected = (_derivatives(ROOTS[name], X * scale)[1] for scale in (2.0**117, 1.0))
    assert relative_error(got, expected) < 1e-4


@pytest.mark.parametrize(
    ("scale", "name"), [(2.0**1015, name) for name in ROOTS] + [(2.0**-1072, name) for name in FULL]
)
def test_roots_of_covariances_at_the_ends_of_double_precision(scale, name):
    """Denormal features, whose root is rounded to multiples of the smallest number, and nearly the largest ones."""
    X = _features(1.0, DOUBLE) * scale
    S, gradient = _derivatives(ROOTS[name], X)[:2]
    wanted, slope = _derivatives(ROOTS[name], X / scale)[:2]  # of the features as they were rounded
    assert_close(S, wanted * scale, rtol=1e-11, atol=2.0**-1074)
    assert relative_error(gradient, slope) < 1e-11


@pytest.mark.parametrize("eps", [1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13])
@pytest.mark.parametrize("side", ["positions", "channels"])
@pytest.mark.parametrize("center", [True, False])
def test_small_eps_is_neither_lost_nor_magnified(center, side, eps):
    """Of both sides, although in single precision these ε are at or below the rounding of the largest eigenvalue."""
    generator = torch.Generator().manual_seed(0)
    X, G = torch.randn(64, 20, generator=generator), torch.randn(64, 64, generator=generator)

    def value_and_gradient(X):
        X = X.clone().requires_grad_()
        S = sg.covariance_sqrt(X, eps=eps, side=side, center=center)
        return S.detach(), torch.autograd.grad(S, X, G.to(X.dtype))[0]

    (S, g), (wanted, slope) = value_and_gradient(X), value_and_gradient(X.double())
    null = torch.linalg.svd(X.double() - X.double().mean(-1, keepdim=True) * center)[0][:, 20:]
    assert relative_error(g.double(), slope) < 1e-4
    assert relative_error(S.double(), wanted) < 1e-5
    on_null, expected = (null.T @ S.double() @ null).diagonal().mean(), torch.tensor(eps**0.5, dtype=DOUBLE)
    rounding = float(torch.finfo(S.dtype).eps * torch.linalg.matrix_norm(wanted, 2)) / 8  # a mean of 44 rounded numbers
    assert_close(on_null, expected, rtol=1e-2, atol=rounding)


@pytest.mark.parametrize("power", ["log", -0.5, 0.3, 0.5])
def test_pooling_keeps_a_small_eps_on_the_null_space(power):
    X = torch.randn(1, 64, 20, generator=torch.Generator().manual_seed(0))
    S = sg.nn.functional.covariance_pooling(X, power=power, eps=1e-5, output="full")[0].double()
    null = torch.linalg.svd(X[0].double() - X[0].double().mean(-1, keepdim=True))[0][:, 20:]
    expected = torch.tensor(1e-5, dtype=DOUBLE)
    expected = expected.log() if power == "log" else expected**power
    assert_close((null.T @ S @ null).diagonal(), expected.expand(44), rtol=1e-2, atol=0)


def _in_parts(call, parts):
    """``call(part, reduce)`` of each part in a thread of its own; ``reduce`` sums over them, as over processes."""
    meeting, given = Barrier(len(parts)), [None] * len(parts)

    def work(i):
        def reduce(x):
            given[i] = x
            meeting.wait()
            total = sum(given)
            meeting.wait()
            return total

        try:
            return call(parts[i], reduce)
        except BaseException:
            meeting.abort()  # or the other would wait for ever
            raise

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(work, range(len(parts))))


@pytest.mark.parametrize("scales", [(2.0**600, 2.0**590), (2.0**-600, 2.0**-590), (2.0**600, 0.0)], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_parts_of_a_batch_that_differ_in_size_agree_on_a_scale(scales, groups):
    def normalized(X, reduce=None):
        whiten = lambda C, eps=0.0: sg.matrix_inv_sqrt(C + eps * torch.eye(C.shape[-1], dtype=DOUBLE))  # noqa: E731
        return normalize(X, whiten, None, None, groups=groups, reduce=reduce, eps=0.0)

    parts = [_features(scale, DOUBLE, seed) for seed, scale in enumerate(scales)]
    whole, found = normalized(torch.cat(parts)), _in_parts(normalized, parts)
    assert_close(torch.cat([part.output for part in found]), whole.output)
    for part in found:
        assert_close(part.mean / scales[0], whole.mean / scales[0])
        assert_close(part.matrix * scales[0], whole.matrix * scales[0])
