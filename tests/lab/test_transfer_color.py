"""Colour transfer: its mathematics, images of every rank, tiles and the command line."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.autograd import gradcheck

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.errors import ArgumentError, MethodError, NonFiniteError, ShapeError
from spectralgrad_lab.transfer import color_files
from spectralgrad_lab.transfer.art_pictures import art, art_path
from spectralgrad_lab.transfer.color import SPACES as COLOR_SPACES
from spectralgrad_lab.transfer.color import ColorTransfer, transfer_color
from spectralgrad_lab.transfer.color_files import recolor, style_colors
from spectralgrad_lab.transfer.color_moments import color_moments, merged
from spectralgrad_lab.transfer.color_spaces import (
    lab_to_linear,
    lab_to_srgb,
    linear_to_lab,
    linear_to_srgb,
    srgb_to_lab,
    srgb_to_linear,
)
from spectralgrad_lab.transfer.decoding import read_samples
from spectralgrad_lab.transfer.pictures import Picture, read_picture, write_picture
from spectralgrad_lab.transfer.samples import Samples

from ..small_pictures import bomb

SPACES = ("rgb", "lab")
ENTER = {"rgb": lambda x: x, "lab": srgb_to_lab}
# Methods that compute the roots from eigenvalues; the others approximate them by an iteration.
DECOMPOSING = [name for name in sg.methods("sqrt") if name not in ("newton-schulz", "pi", "svd-pi")]


def moments(pixels: torch.Tensor, space: str = "rgb") -> tuple[torch.Tensor, torch.Tensor]:
    colors = ENTER[space](pixels.double()).flatten(1)
    return colors.mean(1), torch.cov(colors, correction=0)


def random_image(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Correlated colours within 0.2..0.8."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.rand(3, 3, generator=generator, dtype=torch.float64) + torch.eye(3, dtype=torch.float64)
    colors = torch.rand(3, *shape, generator=generator, dtype=torch.float64)
    return (0.2 + 0.6 * torch.einsum("ij,jhw->ihw", mix / mix.sum(1, keepdim=True), colors)).to(dtype)


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


# Tiles -----------------------------------------------------------------------


def test_moments_are_merged_exactly():
    colors = torch.rand(3, 1000, dtype=torch.float64) + 100
    weight = torch.rand(1, 1000, dtype=torch.float64)
    weight[:, 300:400] = 0
    parts = [color_moments(colors[:, i : i + 100], weight[:, i : i + 100]) for i in range(0, 1000, 100)]
    total = parts[3]  # without weight
    for part in parts[:3] + parts[4:]:
        total = merged(total, part)
    assert torch.allclose(total.mean, color_moments(colors, weight).mean, rtol=1e-14)
    want = torch.cov(colors, correction=0, aweights=weight[0])
    assert torch.allclose(total.covariance, want, rtol=1e-11)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("names", [("cat", "night_cafe"), ("coffee", "harvest")])
def test_tiles_agree_with_the_module(monkeypatch, names, space):
    monkeypatch.setattr(color_files, "TILE", 1000)
    floats = []
    monkeypatch.setattr(color_files, "quantized", lambda tile, bits: floats.append(tile.clone()) or 0)
    content, style = (read_samples(art_path(name)) for name in names)
    recolor(content, style_colors(style, space), strength=0.8)
    tiled = torch.cat(floats).T.view(3, *content.values.shape[:2])
    whole = [read_picture(art_path(name)).rgb for name in names]
    assert (tiled - transfer_color(*whole, space=space, strength=0.8)).abs().max() < 1e-6


def test_no_tile_is_larger_than_its_limit(monkeypatch):
    monkeypatch.setattr(color_files, "TILE", 64)
    sizes, done = [], []
    mapped = color_files._mapped
    monkeypatch.setattr(color_files, "_mapped", lambda tile, *rest: sizes.append(tile.shape) or mapped(tile, *rest))
    content = Samples(np.random.default_rng(0).integers(0, 256, (3, 100, 4), dtype=np.uint8))
    recolor(content, style_colors(content), progress=done.append)
    assert [size[1] for size in sizes] == [64, 64, 64, 64, 44]
    assert sum(done) == 2 * content.pixels


_MEMORY = """
import resource, sys
import numpy as np, torch
from spectralgrad_lab.transfer.color_files import recolor, style_colors
from spectralgrad_lab.transfer.samples import Samples
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small = Samples(np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), dtype=np.uint8))
recolor(small, style_colors(small))
before = peak()
large = Samples(np.tile(small.values, (4, 3, 1)))
recolor(large, style_colors(large))
print((peak() - before) / large.pixels)
"""


def test_memory_for_a_large_image_is_its_samples():
    """Three bytes for each pixel of the image and three for the result; floats would be 24 for each copy."""
    answer = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    assert float(answer.stdout) < 9


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_samples_keep_what_is_not_colour(channels, bits):
    random = np.random.default_rng(channels)
    values = random.integers(0, 2**bits, (20, 30, channels)).astype(f"uint{bits}")
    content = Samples(values, profile=b"profile", exif=b"exif")
    style = style_colors(Samples(random.integers(50, 90, (9, 9, 3), dtype=np.uint8)))
    result, clipped = recolor(content, style)
    assert result.values.shape == (20, 30, 3 if channels % 2 else 4)
    assert (result.bits, result.profile, result.exif, clipped) == (bits, b"profile", b"exif", 0.0)
    if content.has_alpha:
        assert np.array_equal(result.values[..., -1], values[..., -1])
    grey = recolor(content, style_colors(Samples(random.integers(50, 90, (9, 9, 1), dtype=np.uint8)))).samples
    assert grey.values.shape[2] == channels
    if channels > 2:
        assert np.ptp(grey.values[..., :3].astype(int), axis=-1).max() <= 1
    assert recolor(content, style, strength=0).samples is content


def test_transparent_pixels_do_not_count():
    values = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    values[..., 3] = 255
    framed = np.full((30, 40, 4), 13, np.uint8)
    framed[..., 3] = 0
    framed[5:25, 5:35] = values
    content = Samples(values[:10])
    whole, inside = (recolor(content, style_colors(Samples(v))).samples.values for v in (values, framed))
    assert np.array_equal(whole, inside)
    with pytest.raises(ArgumentError, match="transparent everywhere"):
        style_colors(Samples(framed[:5]))


# The command -----------------------------------------------------------------


def run(*arguments: object) -> int:
    return main(["transfer", "color", *map(str, arguments)])


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_names_are_enough(here, capsys):
    assert run("cat", "night_cafe") == 0
    out = capsys.readouterr()
    assert out.err == ""
    assert out.out.startswith("cat_night_cafe.png: 451×300 pixels, ")
    assert os.listdir(here) == ["cat_night_cafe.png"]
    want = transfer_color(read_picture(art_path("cat")).rgb, read_picture(art_path("night_cafe")).rgb)
    assert (read_picture("cat_night_cafe.png").rgb - want.clamp(0, 1)).abs().max() <= 0.501 / 255


def test_options_reach_the_transform(here):
    assert run("cat", "harvest", "--strength", 0.4, "--space", "lab", "--method", "svd-taylor", "-o", "x.png") == 0
    content, style = (read_picture(art_path(name)).rgb for name in ("cat", "harvest"))
    want = transfer_color(content, style, strength=0.4, space="lab")
    assert (read_picture("x.png").rgb - want.clamp(0, 1)).abs().max() <= 0.501 / 255


def test_strength_0_and_its_own_style_return_the_image(here):
    cat = read_samples(art_path("cat")).values
    assert run("cat", "harvest", "--strength", 0, "-o", "zero.png") == 0
    assert np.array_equal(read_samples("zero.png").values, cat)
    assert run("cat", "cat", "-o", "own.png") == 0
    assert np.array_equal(read_samples("own.png").values, cat)


def test_the_pictures_are_listed(here, capsys):
    with pytest.raises(SystemExit) as stopped:
        run("--list")
    assert stopped.value.code == 0
    assert capsys.readouterr().out.split() == list(art())


@pytest.mark.parametrize("name", ["a.jpg", "a.webp", "a.tiff", "a.bmp", "a.ppm", "a.gif"])
def test_the_default_output_has_the_format_of_the_content(here, name):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(here / name)
    assert run(name, "harvest") == 0
    assert (here / name.replace("a.", "a_harvest.").replace(".gif", ".png")).exists()


def test_16_bits_alpha_and_orientation_survive_the_command(here):
    generator = torch.Generator().manual_seed(0)
    deep = Picture(torch.rand(3, 8, 12, generator=generator), torch.rand(1, 8, 12, generator=generator), 16)
    write_picture("deep.png", deep)
    assert run("deep.png", "harvest") == 0
    result = read_picture("deep_harvest.png")
    assert result.bits == 16
    assert torch.equal(result.alpha, read_picture("deep.png").alpha)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)).save("t.jpg", exif=exif)
    assert run("t.jpg", "harvest") == 0
    with Image.open("t_harvest.jpg") as image:
        assert image.size == (20, 30)
        assert image.getexif().get(0x0112, 1) == 1


def test_lost_bits_are_warned_about_in_one_line(here, capsys):
    write_picture("deep.png", Picture(random_image(8, 12), None, 16))
    assert run("deep.png", "harvest", "-o", "x.jpg") == 0
    assert capsys.readouterr().err == (
        "spectralgrad transfer: warning: x.jpg: JPEG has 8 bits per sample; 16 were given\n"
    )


def bad(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.png"
    whole = art_path("cat").read_bytes()
    if kind == "bomb":
        return bomb(path, 60000)
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes({"text": b"hello", "empty": b"", "truncated": whole[: len(whole) // 2]}[kind])
    return path


PROBLEMS = {
    "text": "not an image, or not in a known format",
    "empty": "the file is empty",
    "truncated": "cannot be decoded",
    "bomb": "60000×60000 = 3600000000 pixels exceed the limit of 134217728",
    "folder": "is a folder",
    "missing": "no such file",
}


@pytest.mark.parametrize("place", ["content", "style"])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_bad_file_is_one_line(here, capfd, kind, place):
    path = bad(here, kind)
    before = os.listdir(here)
    assert run(*((path, "cat") if place == "content" else ("cat", path)), "-o", "out.png") == 1
    out = capfd.readouterr()
    assert out.out == ""
    assert out.err.startswith(f"spectralgrad transfer: {path}: {PROBLEMS[kind]}")
    assert out.err.count("\n") == 1
    assert os.listdir(here) == before


def test_bad_arguments_are_one_line(here, capsys):
    write_picture("in.png", Picture(random_image(8, 12)))
    write_picture("clear.png", Picture(random_image(8, 12), torch.zeros(1, 8, 12)))
    write_picture("half.png", Picture(random_image(8, 12), torch.full((1, 8, 12), 0.5)))
    (here / "link.png").symlink_to("in.png")
    before = sorted(os.listdir(here))
    for arguments, text in {
        ("in.png", "starry"): "starry: no such file, nor a picture of the lab; those are astronaut, cat,",
        ("in.png", "cat", "-o", "in.png"): "in.png: is an input file, which would be overwritten",
        ("cat", "in.png", "-o", "./in.png"): "in.png: is an input file, which would be overwritten",
        ("in.png", "cat", "-o", "link.png"): "link.png: is an input file, which would be overwritten",
        ("in.png", "cat", "-o", "x.gif"): "x.gif: cannot write the format '.gif'",
        ("in.png", "cat", "-o", "no/x.png"): "no/x.png: cannot be written: the folder no does not exist",
        ("half.png", "cat", "-o", "x.jpg"): "x.jpg: JPEG has no transparency; write .png, .webp or .tiff instead",
        ("clear.png", "cat"): "clear.png: the image is transparent everywhere",
        ("cat", "clear.png"): "clear.png: the image is transparent everywhere",
        ("in.png", "cat", "--strength", "2"): "--strength: expected a number from 0 to 1, got 2.0",
        ("in.png", "cat", "--strength", "nan"): "--strength: expected a number from 0 to 1, got nan",
        ("in.png", "cat", "--method", "magic"): "unknown method 'magic'",
        ("cat", "in.png", "--max-pixels", "95"): "in.png: 12×8 = 96 pixels exceed the limit of 95",
    }.items():
        assert run(*arguments) == 1, arguments
        err = capsys.readouterr().err
        assert err.startswith(f"spectralgrad transfer: {text}"), err
        assert err.count("\n") == 1
        assert sorted(os.listdir(here)) == before


def test_an_interrupted_command_leaves_nothing(here, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("spectralgrad.io.files.os.replace", interrupted)
    assert run("cat", "harvest") == 130
    assert os.listdir(here) == []


def test_large_images_have_a_progress_bar_on_a_terminal(here, monkeypatch):
    from spectralgrad_lab.transfer import reporting

    moved = []

    class Bar:
        def __init__(self, **_): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def add_task(self, what, total):
            moved.append((what, total))
            return what

        def advance(self, task, count):
            moved.append((task, count))

    monkeypatch.setattr("rich.progress.Progress", Bar)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with reporting.pixel_progress("style", 2**22) as done:
        done(5)
    with reporting.pixel_progress("style", 2**22 - 1) as done:
        done(5)
    assert moved == [("style", 2**22), ("style", 5)]


def test_a_picture_made_of_replaced_pixels_keeps_the_rest(here):
    """The three lines of the documentation."""
    content, style = read_picture(art_path("cat")), read_picture(art_path("harvest"))
    write_picture("x.png", replace(content, pixels=transfer_color(content.rgb, style.rgb)))
    assert run("cat", "harvest", "-o", "y.png") == 0
    assert np.array_equal(read_samples("x.png").values, read_samples("y.png").values)
