"""Colour transfer on tensors: colour spaces, mean and covariance of the result, images of every rank, gradients."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import spectralgrad as sg
from spectralgrad.errors import ArgumentError, MethodError, NonFiniteError, ShapeError
from spectralgrad_lab.transfer.color import ColorTransfer, transfer_color
from spectralgrad_lab.transfer.color.layer import SPACES as COLOR_SPACES
from spectralgrad_lab.transfer.color.spaces import (
    lab_to_linear,
    lab_to_srgb,
    linear_to_lab,
    linear_to_srgb,
    srgb_to_lab,
    srgb_to_linear,
)
from spectralgrad_lab.transfer.pictures import read_picture
from spectralgrad_lab.transfer.pictures.shipped import art_path

from .small_pictures import random_image

SPACES = ("rgb", "lab")
ENTER = {"rgb": lambda x: x, "lab": srgb_to_lab}
# Methods that compute the roots from eigenvalues; the others approximate them by an iteration.
APPROXIMATE = ("newton-schulz", "pi", "svd-pi", "mtp", "mpa")
DECOMPOSING = [name for name in sg.methods("sqrt") if name not in APPROXIMATE]


def moments(pixels: torch.Tensor, space: str = "rgb") -> tuple[torch.Tensor, torch.Tensor]:
    colors = ENTER[space](pixels.double()).flatten(1)
    return colors.mean(1), torch.cov(colors, correction=0)


@pytest.fixture(scope="module")
def pictures() -> dict[str, torch.Tensor]:
    return {name: read_picture(art_path(name)).rgb for name in ("cat", "coffee", "rocket", "night_cafe", "harvest")}


# Colour spaces ----------------------------------------------------------------


def test_lab_of_known_colours():
    """The primaries, white and mid grey as tabulated for sRGB and D65 (to the rounding of the tabulated matrices)."""
    rgb = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0], [119 / 255] * 3], dtype=torch.float64)
    lab = torch.tensor(
        [[53.24, 80.09, 67.20], [87.73, -86.18, 83.18], [32.30, 79.19, -107.86], [100, 0, 0], [0, 0, 0], [50.03, 0, 0]],
        dtype=torch.float64,
    )
    assert torch.allclose(srgb_to_lab(rgb.T.unsqueeze(-1)).squeeze(-1).T, lab, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_conversions_invert_each_other(dtype):
    """Each 16-bit level as a grey, and colours inside the gamut; L* reaches 100, where numbers are 64ε apart."""
    tolerance = 128 * torch.finfo(dtype).eps
    grey = (torch.arange(65536, dtype=dtype) / 65535).view(1, 256, 256).expand(3, -1, -1)
    for colors in (grey, torch.rand(3, 100, 100, dtype=dtype)):
        assert (linear_to_srgb(srgb_to_linear(colors)) - colors).abs().max() <= tolerance
        assert (lab_to_linear(linear_to_lab(colors)) - colors).abs().max() <= tolerance
        assert (lab_to_srgb(srgb_to_lab(colors)) - colors).abs().max() <= tolerance


def test_conversions_invert_each_other_outside_the_gamut():
    colors = 3 * torch.rand(3, 50, 50, dtype=torch.float64) - 1
    assert (lab_to_srgb(srgb_to_lab(colors)) - colors).abs().max() < 1e-11


def test_greys_have_no_hue():
    assert srgb_to_lab(torch.linspace(0, 1, 300, dtype=torch.float64).expand(3, 1, -1))[1:].abs().max() < 1e-12


@pytest.mark.parametrize("convert", [srgb_to_lab, lab_to_srgb, srgb_to_linear, linear_to_srgb])
def test_conversions_are_differentiable(convert):
    colors = torch.tensor([[-0.3, 0.0, 1e-3, 0.3], [0.9, 1.0, 1.2, 0.5], [0.2, 0.0, 2e-3, 0.4]], dtype=torch.float64)
    colors = (100 * colors if convert is lab_to_srgb else colors).unsqueeze(-1).requires_grad_()
    assert gradcheck(convert, colors)


def test_no_distance_grows_more_than_stated():
    levels = torch.linspace(0, 1, 11, dtype=torch.float64)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda color: srgb_to_lab(color.view(3, 1, 1)).flatten()))
    largest = torch.linalg.matrix_norm(jacobian(torch.cartesian_prod(levels, levels, levels)), 2).max()
    assert 0.9 * COLOR_SPACES["lab"].stretch < largest <= COLOR_SPACES["lab"].stretch


def test_colours_have_three_channels():
    with pytest.raises(ShapeError, match=r"linear_to_lab: expected colours \(\*, 3, H, W\), got shape \(1, 4, 4\)"):
        linear_to_lab(torch.zeros(1, 4, 4))


# The transform ---------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("names", [("cat", "night_cafe"), ("rocket", "harvest"), ("harvest", "coffee")])
def test_the_result_has_the_mean_and_covariance_of_the_style(pictures, names, space):
    content, style = (pictures[name] for name in names)
    mean, covariance = moments(transfer_color(content, style, space=space), space)
    want_mean, want_covariance = moments(style, space)
    assert (mean - want_mean).norm() <= 1e-4 * want_mean.norm()
    assert (covariance - want_covariance).norm() <= 1e-4 * want_covariance.norm()
    if space == "rgb":
        assert (covariance - want_covariance).abs().max() <= 1e-4


@pytest.mark.parametrize("space", SPACES)
def test_colours_that_hardly_vary_along_one_direction_are_no_exception(space):
    """Condition number 10⁸ of the covariance, in float32."""
    content = random_image(60, 60)
    content[2] = content[:2].mean(0) + 1e-4 * (content[2] - 0.5)
    style = random_image(40, 50, seed=1)
    mean, covariance = moments(transfer_color(content, style, space=space), space)
    want_mean, want_covariance = moments(style, space)
    assert (mean - want_mean).norm() <= 1e-4 * want_mean.norm()
    assert (covariance - want_covariance).norm() <= 1e-4 * want_covariance.norm()


@pytest.mark.parametrize("method", DECOMPOSING)
def test_every_method_that_decomposes_gives_the_same_picture(method):
    content, style = random_image(20, 30), random_image(30, 20, seed=1)
    assert torch.allclose(transfer_color(content, style, method=method), transfer_color(content, style), atol=1e-5)


def test_it_is_the_whitening_and_colouring_layer():
    content, style = (random_image(20, 30, seed=seed, dtype=torch.float64)[None] for seed in (0, 1))
    for strength in (1.0, 0.3):
        layer = sg.nn.WhiteningColoring2d(eps=0.0, strength=strength)
        assert torch.allclose(transfer_color(content, style, strength=strength), layer(content, style), atol=1e-12)


@pytest.mark.parametrize("space", SPACES)
def test_strength(space):
    content, style = random_image(20, 30), random_image(30, 20, seed=1)
    assert torch.equal(transfer_color(content, style, strength=0, space=space), content)
    full = ENTER[space](transfer_color(content, style, space=space).double())
    start = ENTER[space](content.double())
    half = ENTER[space](transfer_color(content, style, strength=0.5, space=space).double())
    assert torch.allclose(half, (start + full) / 2, atol=1e-3 if space == "lab" else 1e-6)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ["cat", "rocket", "grey", "sepia", "constant"])
def test_its_own_style_returns_an_image(pictures, name, space):
    content = pictures.get(name)
    content = image_of_rank(name) if content is None else content
    assert (transfer_color(content, content, space=space) - content).abs().max() < 1e-3


def test_batches_are_transformed_image_by_image():
    contents = torch.stack([random_image(12, 14, seed=seed) for seed in (0, 1)])
    styles = torch.stack([random_image(9, 9, seed=seed) for seed in (2, 3)])
    both = transfer_color(contents, styles)
    assert torch.allclose(both[1], transfer_color(contents[1], styles[1]), atol=1e-6)
    one = transfer_color(contents, styles[0])
    assert torch.allclose(one, transfer_color(contents, styles[:1]))
    assert torch.allclose(one[1], transfer_color(contents[1], styles[:1]), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_of_the_content_is_returned(dtype):
    content, style = random_image(20, 30), random_image(30, 20, seed=1)
    result = transfer_color(content.to(dtype), style)
    assert result.dtype == dtype
    assert torch.allclose(result.float(), transfer_color(content, style), atol=8 * torch.finfo(dtype).eps + 1e-6)


def test_autocast_does_not_lower_the_precision():
    content, style = random_image(20, 30), random_image(30, 20, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(transfer_color(content, style), transfer_color(content, style))
        inside = transfer_color(content, style)
    assert torch.equal(inside, transfer_color(content, style))


# Rank ------------------------------------------------------------------------


def image_of_rank(kind: str, size: int = 12, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Grey and sepia vary along one direction, a constant image along none, two inks along two."""
    grey = torch.linspace(0.2, 0.8, size * size, dtype=torch.float64).view(1, size, size)
    other = grey.flip(-1).mT
    return {
        "constant": torch.tensor([0.3, 0.6, 0.1], dtype=torch.float64).view(3, 1, 1).expand(3, size, size),
        "black": torch.zeros(3, size, size, dtype=torch.float64),
        "grey": grey.expand(3, -1, -1),
        "sepia": grey * torch.tensor([1.0, 0.8, 0.6], dtype=torch.float64).view(3, 1, 1),
        "two inks": torch.cat([grey, other, (grey + other) / 2]),
        "full": random_image(size, size, seed=5, dtype=torch.float64),
    }[kind].to(dtype)


KINDS = ("constant", "black", "grey", "sepia", "two inks", "full")


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("style", KINDS)
@pytest.mark.parametrize("content", KINDS)
def test_images_of_any_rank_have_finite_results_and_gradients(content, style, space):
    x, y = image_of_rank(content).requires_grad_(), image_of_rank(style).requires_grad_()
    result = transfer_color(x, y, space=space)
    gradients = torch.autograd.grad((result * random_image(12, 12, seed=7)).sum(), (x, y))
    assert all(g.isfinite().all() for g in (result, *gradients))
    if space == "rgb":  # CIELAB bends a line of colours, so that its images vary a little along the other directions
        assert max(g.abs().max() for g in gradients) < 1e3
    assert (ENTER[space](result.double()).mean((1, 2)) - ENTER[space](y.double()).mean((1, 2))).abs().max() < 1e-3


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_image_of_one_colour_has_no_variance(dtype, space):
    """A mean that is off by a rounding would give it one, which whitening would blow up to the style's."""
    color = torch.tensor([0.1, 0.7, 0.3], dtype=dtype).view(3, 1, 1)
    style = random_image(9, 9, dtype=dtype)
    result = transfer_color(color.expand(3, 300, 400), style, space=space)
    assert np.ptp(result.numpy(), axis=(1, 2)).max() <= 1e-12


@pytest.mark.parametrize("content", ["constant", "grey", "sepia", "two inks"])
def test_content_of_low_rank_keeps_it(content):
    """The covariance is that of the style restricted to what the content can reach: S P S."""
    x, y = image_of_rank(content, dtype=torch.float64), image_of_rank("full", dtype=torch.float64)
    _, covariance = moments(transfer_color(x, y))
    w, V = torch.linalg.eigh(moments(x)[1])
    V = V[:, w > 1e-12]
    root = sg.matrix_sqrt(moments(y)[1])
    assert torch.allclose(covariance, root @ V @ V.mT @ root, atol=1e-10)


def test_grey_stays_grey_only_with_a_grey_style():
    grey, colorful = image_of_rank("grey"), image_of_rank("full") * torch.tensor([1.0, 0.6, 0.2]).view(3, 1, 1)
    result = transfer_color(grey, image_of_rank("grey", 9).square())
    assert torch.allclose(result, result[:1].expand(3, -1, -1), atol=1e-6)
    tinted = transfer_color(grey, colorful)
    assert (tinted - tinted.mean(0)).abs().max() > 0.05
    faded = transfer_color(colorful, grey)
    assert torch.allclose(faded, faded[:1].expand(3, -1, -1), atol=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_rounding_to_8_bits_is_not_taken_for_colours(space):
    """A sepia print varies along one line; whitening the rounding of its samples would fill it with coloured specks."""
    sepia = image_of_rank("sepia", 64).mul(255).round() / 255
    style = image_of_rank("full", 64)
    assert speckle(transfer_color(sepia, style, space=space, noise=0.5 / 255)) < 0.02
    assert speckle(transfer_color(sepia, style, space=space)) > 0.1  # what would happen otherwise


def speckle(image: torch.Tensor) -> float:
    """Largest difference of neighbours; the content is a ramp."""
    return (image[..., 1:] - image[..., :-1]).abs().max().item()


def test_the_gradient_is_exact_at_full_rank():
    content, style = (random_image(3, 4, seed=seed, dtype=torch.float64).requires_grad_() for seed in (0, 1))
    for space in SPACES:
        assert gradcheck(lambda x, y, space=space: transfer_color(x, y, space=space, strength=0.7), (content, style))


@pytest.mark.parametrize("low", ["content", "style"])
@pytest.mark.parametrize("kind", ["grey", "sepia", "two inks"])
def test_the_gradient_is_exact_at_constant_rank(kind, low):
    """Against central differences along a path of images of the same rank, on which the directions turn."""
    x0 = image_of_rank(kind, 6, dtype=torch.float64)
    other, weight = random_image(6, 6, seed=1, dtype=torch.float64), random_image(6, 6, seed=2, dtype=torch.float64)
    turn = torch.tensor([[0.0, 0.3, -0.2], [0.1, 0.2, 0.4], [0.5, -0.3, 0.1]], dtype=torch.float64)

    def image(t: float) -> torch.Tensor:
        ramp = 0.0 if kind == "two inks" else x0[:1]  # it would raise the rank of two inks
        return torch.einsum("ij,jhw->ihw", torch.eye(3, dtype=torch.float64) + t * turn, x0 * (1 + t * ramp))

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (weight * (transfer_color(x, other) if low == "content" else transfer_color(other, x))).sum()

    h = 1e-5
    x = image(0.0).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    along = (gradient * (image(h) - image(-h)) / (2 * h)).sum()
    assert along.item() == pytest.approx(((loss(image(h)) - loss(image(-h))) / (2 * h)).item(), rel=1e-6, abs=1e-8)


# Opacity, bad input, the module -----------------------------------------------


def test_opacity_weighs_pixels():
    """A pixel of opacity ½ counts like half a pixel, a transparent pixel not at all."""
    content, style = random_image(6, 8), random_image(5, 4, seed=1)
    twice = torch.cat([style, style[..., :2], random_image(5, 1, seed=3)], -1)
    alpha = torch.ones(1, 5, 7)
    alpha[..., :2], alpha[..., 4:6], alpha[..., 6] = 0.5, 0.5, 0.0
    assert torch.allclose(transfer_color(content, twice, style_alpha=alpha), transfer_color(content, style), atol=1e-6)
    for one in (alpha, alpha[None]):
        weighted = transfer_color(content, twice[None], style_alpha=one)
        assert torch.allclose(weighted, transfer_color(content, style), atol=1e-6)
    seen = torch.zeros(1, 6, 8)
    seen[:, :3] = 1
    whole = transfer_color(content, style, content_alpha=seen)
    assert torch.allclose(whole[:, :3], transfer_color(content[:, :3], style), atol=1e-6)


def test_bad_input_is_named():
    x = random_image(4, 5)
    with pytest.raises(ShapeError, match=r"ColorTransfer: expected content \(3, H, W\) or .* got shape \(1, 4, 5\)"):
        transfer_color(x[:1], x)
    with pytest.raises(ShapeError, match=r"expected style .* got shape \(3, 0, 5\)"):
        transfer_color(x, x[:, :0])
    with pytest.raises(ShapeError, match="expected 1 or 2 style images, got 3"):
        transfer_color(x.expand(2, -1, -1, -1), x.expand(3, -1, -1, -1))
    with pytest.raises(ShapeError, match=r"torch\.uint8"):
        transfer_color(x.byte(), x)
    with pytest.raises(ShapeError, match=r"expected content_alpha of shape \(1, 4, 5\), got \(4, 5\)"):
        transfer_color(x, x, content_alpha=x[0])
    with pytest.raises(ArgumentError, match="expected a positive style_alpha somewhere"):
        transfer_color(x, x, style_alpha=torch.zeros(1, 4, 5))
    with pytest.raises(ArgumentError, match=r"expected strength from 0 to 1, got 1\.5"):
        transfer_color(x, x, strength=1.5)
    with pytest.raises(ArgumentError, match="expected noise from 0 to 1, got -1"):
        transfer_color(x, x, noise=-1)
    with pytest.raises(ArgumentError, match="expected space 'rgb' or 'lab', got 'hsv'"):
        transfer_color(x, x, space="hsv")
    with pytest.raises(MethodError, match="unknown method 'magic'"):
        transfer_color(x, x, method="magic")
    with pytest.raises(NonFiniteError, match="ColorTransfer"):
        transfer_color(x / 0, x)


def test_the_module_is_a_spectral_layer():
    layer = ColorTransfer("lab", strength=0.5, method="svd-taylor:degree=19")
    assert repr(layer) == "ColorTransfer('lab', strength=0.5, method='svd-taylor:degree=19')"
    assert layer.state_dict() == {}
    layer.method = "exact"
    with sg.diagnostics.Monitor(layer, every=1) as monitor:
        layer(random_image(6, 6).requires_grad_(), random_image(6, 6, seed=1)).sum().backward()
    assert monitor.records[0].rank == 3
