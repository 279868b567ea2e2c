"""Colour transfer between files: tiles, what is kept, and the command line."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spectralgrad.cli import main
from spectralgrad.errors import ArgumentError
from spectralgrad_lab.transfer.color import recoloring, transfer_color
from spectralgrad_lab.transfer.color.recoloring import recolor, style_colors
from spectralgrad_lab.transfer.moments import color_moments, merged
from spectralgrad_lab.transfer.pictures import Picture, read_picture, write_picture
from spectralgrad_lab.transfer.pictures.decoding import read_samples
from spectralgrad_lab.transfer.pictures.samples import Samples
from spectralgrad_lab.transfer.pictures.shipped import art, art_path

from .small_pictures import bomb, random_image

SPACES = ("rgb", "lab")


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
    monkeypatch.setattr(recoloring, "TILE", 1000)
    floats = []
    monkeypatch.setattr(recoloring, "quantized", lambda tile, bits: floats.append(tile.clone()) or 0)
    content, style = (read_samples(art_path(name)) for name in names)
    recolor(content, style_colors(style, space), strength=0.8)
    tiled = torch.cat(floats).T.view(3, *content.values.shape[:2])
    whole = [read_picture(art_path(name)).rgb for name in names]
    assert (tiled - transfer_color(*whole, space=space, strength=0.8)).abs().max() < 1e-6


def test_no_tile_is_larger_than_its_limit(monkeypatch):
    monkeypatch.setattr(recoloring, "TILE", 64)
    sizes, done = [], []
    mapped = recoloring._mapped
    monkeypatch.setattr(recoloring, "_mapped", lambda tile, *rest: sizes.append(tile.shape) or mapped(tile, *rest))
    content = Samples(np.random.default_rng(0).integers(0, 256, (3, 100, 4), dtype=np.uint8))
    recolor(content, style_colors(content), progress=done.append)
    assert [size[1] for size in sizes] == [64, 64, 64, 64, 44]
    assert sum(done) == 2 * content.pixels


_MEMORY = """
import resource, sys
import numpy as np, torch
from spectralgrad_lab.transfer.color.recoloring import recolor, style_colors
from spectralgrad_lab.transfer.pictures.samples import Samples
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


@pytest.mark.parametrize("space", SPACES)
def test_a_print_in_one_ink_stays_smooth(space):
    """The rounding of its samples is no colour; and an image onto itself is the same image, rare colours included."""
    ramp = np.linspace(60, 240, 4096).reshape(64, 64, 1)
    sepia = Samples(np.rint(ramp * [1.0, 0.8, 0.6]).astype(np.uint8))
    colorful = Samples(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    result = recolor(sepia, style_colors(colorful, space)).samples.values.astype(int)
    assert abs(np.diff(result, axis=1)).max() <= 6
    stamped = sepia.values.copy()
    stamped[0, 0] = 255, 0, 0
    for content in (sepia, Samples(stamped), Samples(np.full((4, 4, 3), 77, np.uint8))):
        own = recolor(content, style_colors(content, space)).samples.values
        assert np.array_equal(own, content.values)


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


def test_only_visible_samples_count_as_clipped():
    values = np.random.default_rng(0).integers(100, 156, (20, 30, 4), dtype=np.uint8)
    values[..., 3] = 255
    values[:10] = 255, 0, 0, 0  # far from the visible colours
    content = Samples(values)
    assert recolor(content, style_colors(content)).clipped == 0
    assert (
        0.2 < recolor(content, style_colors(Samples(np.repeat(np.eye(2, dtype=np.uint8) * 255, 3).reshape(2, 2, 3))))[1]
    )


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


def test_the_function_makes_the_picture_of_the_command(here):
    """The three lines of the documentation."""
    content, style = read_picture(art_path("cat")), read_picture(art_path("harvest"))
    write_picture("x.png", content.with_pixels(transfer_color(content.rgb, style.rgb)))
    assert run("cat", "harvest", "-o", "y.png") == 0
    assert np.array_equal(read_samples("x.png").values, read_samples("y.png").values)
