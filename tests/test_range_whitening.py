"""Whitening and colouring with ε = 0: on the range of the features, by the smaller side, exact in single precision."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jvp, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn.functional import color, wct, whiten
from spectralgrad.testing import relative_error

from .helpers import REAL, unit

DOUBLE = torch.float64
# channels, positions, rank
SHAPES = {
    "wide": (6, 40, 6),
    "tall": (40, 7, 6),
    "square": (8, 8, 7),
    "wide, singular": (9, 40, 4),
    "tall, singular": (40, 9, 4),
}


def features(d, n, rank, dtype=DOUBLE, seed=0, mean=2.0):
    """Centred features of a given rank, with singular values between 1 and 3 times √n, plus a mean."""
    generator = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(d, rank, dtype=DOUBLE, generator=generator))
    right = torch.randn(n, rank, dtype=DOUBLE, generator=generator)
    right, _ = torch.linalg.qr(right - right.mean(0))
    X = (left * torch.linspace(1, 3, rank, dtype=DOUBLE)) @ right.mT * n**0.5
    return (X + mean * torch.rand(d, 1, dtype=DOUBLE, generator=generator)).to(dtype)


def noise(d, n, seed=1):
    return torch.randn(d, n, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def white(X):
    """The layer on one matrix of features (d, n)."""
    return whiten(X.unsqueeze(0), eps=0.0)[0]


def transferred(content, style, **options):
    return wct(content.unsqueeze(0), style.unsqueeze(0), eps=0.0, **options)[0]


def covariance(Y):
    return torch.cov(Y.detach().double(), correction=0)


def thin(X, rank):
    """The thin singular value decomposition U, s, V of the centred features, by LAPACK."""
    U, s, Vh = torch.linalg.svd(X.double() - X.double().mean(1, keepdim=True), full_matrices=False)
    return U[:, :rank], s[:rank], Vh[:rank].mT


def derivative(X, rank, G):
    """The derivative of X ↦ √n UVᵀ at constant rank, from the singular value decomposition.

    With M = UᵀGV it is √n [U (M − Mᵀ)_ij/(s_i + s_j) Vᵀ + (I − UUᵀ) G V s⁻¹ Vᵀ + U s⁻¹ Uᵀ G (I − VVᵀ)]; it is
    self-adjoint, and centring removes the mean from the direction and from the result.
    """
    U, s, V = thin(X, rank)
    G = G - G.mean(1, keepdim=True)
    M = U.mT @ G @ V
    turned = U @ ((M - M.mT) / (s[:, None] + s)) @ V.mT
    moved = (G - U @ (U.mT @ G)) @ (V / s) @ V.mT + (U / s) @ U.mT @ (G - (G @ V) @ V.mT)
    total = turned + moved
    return (total - total.mean(1, keepdim=True)) * X.shape[1] ** 0.5


def backward(f, X, G):
    X = X.detach().clone().requires_grad_()
    return torch.autograd.grad(f(X), X, G.to(X.dtype))[0]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_white_features_are_the_singular_vectors(shape, dtype):
    d, n, rank = SHAPES[shape]
    X = features(d, n, rank, dtype)
    U, _, V = thin(X, rank)
    assert relative_error(white(X), U @ V.mT * n**0.5) < 100 * unit(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_is_that_of_constant_rank(shape, dtype):
    d, n, rank = SHAPES[shape]
    X, G = features(d, n, rank, dtype), noise(d, n)
    assert relative_error(backward(white, X, G), derivative(X, rank, G)) < 100 * unit(dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_smaller_matrix_is_decomposed(shape):
    d, n, rank = SHAPES[shape]
    seen = []
    layer = sg.nn.WhiteningColoring2d(eps=0.0)
    layer.register_spectral_hook(lambda _, matrices: seen.append(tuple(matrices.shape[-2:])))
    layer(features(d, n, rank).reshape(1, d, n, 1), features(d, n + 3, rank).reshape(1, d, n + 3, 1))
    assert seen == [(min(d, n),) * 2, (min(d, n + 3),) * 2]


@pytest.mark.parametrize("shape", ["wide", "tall", "square"])
def test_derivatives_of_first_and_second_order(shape):
    """Where the rank is as large as it can be, every direction keeps it."""
    d, n, rank = SHAPES[shape]
    X, style = features(d, n, rank), features(d, n + 2, min(d, n + 1), seed=3)
    for f, inputs in ((white, (X,)), (transferred, (X, style))):
        inputs = tuple(x.requires_grad_() for x in inputs)
        assert gradcheck(f, inputs, fast_mode=True)
        assert gradgradcheck(f, inputs, fast_mode=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_transforms_and_compilation_agree_with_eager_mode(shape):
    d, n, rank = SHAPES[shape]
    X, G = features(d, n, rank), noise(d, n)
    expected = derivative(X, rank, G)
    assert_close(jvp(white, (X,), (G,))[1], expected)
    batch = torch.stack([X, 2 * X])
    assert_close(vmap(grad(lambda x: (white(x) * G).sum()))(batch), torch.stack([expected, expected / 2]))
    compiled = torch.compile(white, fullgraph=True, backend="aot_eager")
    assert_close(backward(compiled, X, G), expected)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e6])
@pytest.mark.parametrize("dtype", [torch.bfloat16, *REAL], ids=str)
@pytest.mark.parametrize("shape", [(6, 40), (40, 7)], ids=str)
def test_constant_maps_have_rank_zero(shape, dtype, value):
    """The mean of equal numbers is rounded, so the centred map is noise; it must not become white noise."""
    X = torch.full(shape, value, dtype=dtype).requires_grad_()
    Y = white(X)
    assert torch.equal(Y, torch.zeros_like(Y))
    (g,) = torch.autograd.grad((Y * noise(*shape).to(dtype)).sum(), X)
    assert torch.equal(g, torch.zeros_like(g))
    varied = features(*shape, 3, dtype)
    mean = varied.double().mean(1, keepdim=True).to(dtype).expand(shape)
    assert_close(transferred(X, varied), mean)
    assert_close(transferred(varied, X), X)


@pytest.mark.parametrize("shape", [(6, 40), (40, 9)], ids=str)
def test_a_large_mean_adds_no_rank(shape):
    """Rounding of 1000 + x is 3e-5: a thousand times more than that of x, and far above the solver's tolerance."""
    X = features(*shape, 3, mean=0.0)
    far = (X + 1000).float()
    singular = torch.linalg.svdvals(white(far).double() / shape[1] ** 0.5)
    assert_close(singular, torch.tensor([1.0] * 3 + [0.0] * (len(singular) - 3), dtype=DOUBLE), rtol=0, atol=1e-4)
    assert (white(far) - white(X)).abs().max() < 64 * 1000 * unit(torch.float32)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
@pytest.mark.parametrize("shape", SHAPES)
def test_scale_does_not_matter(shape, scale):
    d, n, rank = SHAPES[shape]
    X, G = features(d, n, rank, torch.float32), noise(d, n)
    scaled = X * scale
    assert relative_error(white(scaled), white(scaled.double() / scale)) < 100 * unit(torch.float32)
    expected = derivative(scaled.double() / scale, rank, G)
    assert relative_error(backward(white, scaled, G).double() * scale, expected) < 100 * unit(torch.float32)


@pytest.mark.parametrize("exponent", [-600, -300, 300, 600])
def test_scale_does_not_matter_in_double_precision(exponent):
    X, G = features(40, 9, 8), noise(40, 9)
    assert_close(white(X * 2.0**exponent), white(X), rtol=0, atol=1e-12)
    assert_close(backward(white, X * 2.0**exponent, G) * 2.0**exponent, backward(white, X, G), rtol=1e-10, atol=1e-10)


def ill_conditioned(d, n, decades, dtype, seed=0):
    """Features whose standard deviations along the principal axes range over so many decades, with correlation."""
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(d, d, dtype=DOUBLE, generator=generator))
    X = torch.randn(d, n, dtype=DOUBLE, generator=generator) * torch.logspace(0, -decades, d, dtype=DOUBLE)[:, None]
    return (turn @ X + torch.rand(d, 1, dtype=DOUBLE, generator=generator)).to(dtype)


class TestTransfer:
    @pytest.mark.parametrize("decades", [0, 2, 4])
    def test_the_result_has_the_mean_and_covariance_of_the_style(self, decades):
        """In float32, with variances over up to eight decades; relative to the style's largest variance."""
        content = ill_conditioned(64, 1000, decades, torch.float32)
        style = ill_conditioned(64, 300, decades, torch.float32, seed=1)
        Y = transferred(content, style)
        wanted = covariance(style)
        assert (covariance(Y) - wanted).abs().max() < 1e-4 * wanted.abs().max()
        assert (Y.double().mean(1) - style.double().mean(1)).abs().max() < 1e-4 * style.abs().max()

    def test_positive_features_with_dead_channels(self):
        """As after a ReLU: channels that are zero in content and style lower the rank, but nothing is lost."""
        content, style = (
            ill_conditioned(64, n, 1, torch.float32, seed=n).relu() * (torch.arange(64) % 5 > 0)[:, None]
            for n in (900, 700)
        )
        wanted = covariance(style)
        assert (covariance(transferred(content, style)) - wanted).abs().max() < 1e-4 * wanted.abs().max()

    @pytest.mark.parametrize("positions", [49, 256])
    def test_content_of_low_rank_receives_the_style_on_its_range(self, positions):
        """512 channels, few positions. No linear map raises the rank, so the covariance is S P S with P the projector
        on the range of the content and S the root of the style's covariance."""
        content = ill_conditioned(512, positions, 1, torch.float32)
        style = ill_conditioned(512, 900, 1, torch.float32, seed=1)
        U, _, _ = thin(content, positions - 1)
        w, V = torch.linalg.eigh(covariance(style))
        S = (V * w.clamp_min(0).sqrt()) @ V.mT
        wanted = S @ U @ U.mT @ S
        Y = transferred(content, style)
        assert (covariance(Y) - wanted).abs().max() < 1e-4 * wanted.abs().max()
        assert (Y.double().mean(1) - style.double().mean(1)).abs().max() < 1e-4

    def test_a_style_of_low_rank_is_received_completely(self):
        content = ill_conditioned(128, 900, 1, torch.float32)
        style = ill_conditioned(128, 60, 1, torch.float32, seed=1)
        wanted = covariance(style)
        assert (covariance(transferred(content, style)) - wanted).abs().max() < 1e-4 * wanted.abs().max()

    @pytest.mark.parametrize("positions", [49, 256, 1000])
    def test_features_with_their_own_style_come_back(self, positions):
        X = ill_conditioned(256, positions, 3, torch.float32)
        assert (transferred(X, X) - X).abs().max() < 1e-3 * X.abs().max()
        assert (transferred(X.double(), X.double()) - X).abs().max() < 1e-6

    @pytest.mark.parametrize("dtype", [torch.bfloat16, *REAL], ids=str)
    def test_strength_zero_is_the_content(self, dtype):
        content, style = (features(40, n, 6, dtype) for n in (9, 12))
        assert torch.equal(transferred(content, style, strength=0.0), content)

    def test_gradients_against_double_precision(self):
        content, style = (features(64, n, r, torch.float32, seed=n) for n, r in ((30, 20), (50, 49)))
        G = noise(64, 30)
        of_content = lambda x: transferred(x, style.to(x.dtype))  # noqa: E731
        of_style = lambda x: transferred(content.to(x.dtype), x)  # noqa: E731
        for f, X in ((of_content, content), (of_style, style)):
            assert relative_error(backward(f, X, G), backward(f, X.double(), G)) < 1e-4

    @pytest.mark.parametrize("method", sg.methods("sqrt"))
    def test_every_method_is_finite_on_maps_of_low_rank(self, method):
        content, style = features(12, 5, 4, torch.float32).requires_grad_(), features(12, 30, 3, torch.float32, seed=2)
        Y = transferred(content, style, method=method)
        Y.sum().backward()
        assert Y.isfinite().all()
        assert content.grad.isfinite().all() or method == "svd"


def test_groups_and_batch_statistics():
    X = features(12, 40, 10).reshape(1, 12, 5, 8)
    halves = torch.cat([whiten(x, eps=0.0) for x in X.chunk(2, 1)], 1)
    assert_close(whiten(X, groups=2, eps=0.0), halves)
    both = torch.cat([X[..., :4], X[..., 4:]])
    whole = whiten(X, eps=0.0)
    assert_close(whiten(both, eps=0.0, per_sample=False), torch.cat([whole[..., :4], whole[..., 4:]]))


def test_colouring_by_few_positions_equals_the_root_of_the_covariance():
    style, X = features(20, 6, 5), noise(20, 9)
    w, V = torch.linalg.eigh(covariance(style))
    expected = (V * w.clamp_min(0).sqrt()) @ V.mT @ X + style.mean(1, keepdim=True)
    assert_close(color(X[None], style[None], eps=0.0)[0], expected, rtol=1e-6, atol=1e-6)


def test_a_map_without_samples_or_positions():
    for shape in ((0, 4, 5), (2, 4, 0)):
        assert whiten(torch.zeros(shape), eps=0.0).shape == shape
