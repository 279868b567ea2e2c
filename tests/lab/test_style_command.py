"""The command ``spectralgrad transfer style``: pictures of every kind, and one line for what is wrong."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from spectralgrad.cli import main
from spectralgrad.errors import ArgumentError
from spectralgrad_lab.transfer.features.decoder_files import load_decoders
from spectralgrad_lab.transfer.features.encoder_file import load_encoder
from spectralgrad_lab.transfer.features.style_command import visible
from spectralgrad_lab.transfer.features.stylization import stylize
from spectralgrad_lab.transfer.pictures import Picture, read_picture, write_picture

from .small_pictures import bomb
from .style_networks import decoder_folder, encoder_file


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    return encoder_file(folder), decoder_folder(folder / "decoders")


@pytest.fixture
def pictures(tmp_path):
    generator = torch.Generator().manual_seed(0)
    paths = []
    for name, size in (("content", (40, 52)), ("style", (30, 30))):
        paths.append(tmp_path / f"{name}.png")
        write_picture(paths[-1], Picture(torch.rand(3, *size, generator=generator)))
    return paths


def words(networks, *more):
    encoder, decoders = networks
    return [*map(str, ("transfer", "style", "--encoder", encoder, "--any-encoder", "--decoders", decoders, *more))]


def test_the_picture_is_that_of_the_function(networks, pictures, tmp_path, capsys):
    out = tmp_path / "out.png"
    flags = ["--levels", "4,2,1", "--strength", "1,0.5,0.7"]
    assert main(words(networks, *pictures, *flags, "-o", out)) == 0
    assert capsys.readouterr().out == f"{out}: 52×40 pixels\n"
    encoder = load_encoder(networks[0], any_weights=True)
    content, style = (read_picture(path).rgb for path in pictures)
    decoders = load_decoders(networks[1], encoder, (4, 2, 1))
    made = stylize(content, style, encoder, decoders, (4, 2, 1), strength=(1, 0.5, 0.7))
    assert (read_picture(out).pixels - made).abs().max() < 0.51 / 255


def test_strength_zero_keeps_every_sample(networks, pictures, tmp_path):
    out = tmp_path / "out.png"
    assert main(words(networks, *pictures, "--strength", "0", "-o", out)) == 0
    with Image.open(out) as made, Image.open(pictures[0]) as content:
        assert np.array_equal(np.array(made), np.array(content))


def test_pictures_of_the_lab_are_known_by_name_and_reduced(networks, tmp_path):
    out = tmp_path / "out.jpg"
    assert main(words(networks, "cat", "night_cafe", "--size", "64", "-o", out)) == 0
    with Image.open(out) as made:
        assert made.size == (64, 43)


def test_transparency_is_kept_and_transparent_pixels_have_no_style(networks, pictures, tmp_path):
    content = read_picture(pictures[0])
    alpha = torch.zeros(1, 40, 52)
    alpha[:, 10:30] = 1
    made = []
    for hidden in (0.0, 1.0):
        pixels = torch.where(alpha > 0, content.pixels, hidden)
        path = tmp_path / f"hidden{hidden}.png"
        write_picture(path, Picture(pixels, alpha))
        for number, given in enumerate(([path, pictures[1]], [pictures[1], path])):
            out = tmp_path / f"out{hidden}{number}.png"
            assert main(words(networks, *given, "-o", out)) == 0
            made.append(read_picture(out))
    assert torch.equal(made[0].alpha, alpha)
    assert torch.equal(made[0].pixels[:, 10:30], made[2].pixels[:, 10:30])
    assert torch.equal(made[1].pixels, made[3].pixels)


def test_strength_zero_keeps_invisible_pixels_too(networks, pictures, tmp_path):
    content, out = Picture(torch.rand(3, 9, 9), torch.rand(1, 9, 9).round()), tmp_path / "out.png"
    write_picture(tmp_path / "in.png", content)
    assert main(words(networks, tmp_path / "in.png", pictures[1], "--strength", "0", "-o", out)) == 0
    with Image.open(out) as made, Image.open(tmp_path / "in.png") as before:
        assert np.array_equal(np.array(made), np.array(before))


def test_invisible_pixels_have_the_mean_colour():
    picture = Picture(torch.rand(3, 4, 4), torch.zeros(1, 4, 4))
    with pytest.raises(ArgumentError, match="transparent everywhere"):
        visible(picture)
    assert torch.equal(visible(Picture(picture.pixels)), picture.pixels)
    half = Picture(picture.pixels, torch.tensor([0.0, 0.1, 1.0, 1.0]).expand(1, 4, 4))
    assert torch.equal(visible(half)[..., 1:], picture.pixels[..., 1:])


def test_grey_and_deep_pictures(networks, pictures, tmp_path):
    deep, out = tmp_path / "deep.png", tmp_path / "out.png"
    write_picture(deep, Picture(torch.rand(1, 20, 24), bits=16, profile=b"of a grey image"))
    assert main(words(networks, deep, pictures[1], "-o", out)) == 0
    made = read_picture(out)
    assert (made.pixels.shape, made.bits, made.profile) == (torch.Size([3, 20, 24]), 16, None)


@pytest.mark.parametrize("method", ["svd-taylor", "newton-schulz"])
def test_methods(networks, pictures, tmp_path, method):
    assert main(words(networks, *pictures, "--method", method, "-o", tmp_path / "out.png")) == 0


class TestErrors:
    """One line, exit status 1, nothing written."""

    def refused(self, capsys, folder, given):
        before = sorted(folder.rglob("*"))
        assert main([*map(str, given)]) == 1
        err = capsys.readouterr().err
        assert err.startswith("spectralgrad transfer: ")
        assert len(err.splitlines()) == 1
        assert sorted(folder.rglob("*")) == before
        return err

    def test_pictures(self, networks, pictures, tmp_path, capsys):
        broken, empty, text = (tmp_path / name for name in ("broken.png", "empty.png", "text.png"))
        broken.write_bytes(pictures[0].read_bytes()[:300])
        empty.write_bytes(b"")
        text.write_text("not an image", "utf-8")
        huge = bomb(tmp_path / "bomb.png", 60000)
        for path, said in (
            (tmp_path / "none.png", "no such file"),
            ("nobody", "no such file, nor a picture of the lab"),
            (tmp_path, "is a folder"),
            (broken, "broken.png: "),
            (empty, "the file is empty"),
            (text, "not an image"),
            (huge, "exceed the limit"),
        ):
            for given in ((path, pictures[1]), (pictures[0], path)):
                assert said in self.refused(capsys, tmp_path, words(networks, *given, "-o", tmp_path / "out.png"))

    def test_weights(self, networks, pictures, tmp_path, capsys):
        encoder, decoders = networks
        out = ["-o", tmp_path / "out.png"]
        start = ["transfer", "style", *pictures]
        wrong = tmp_path / "wrong.safetensors"
        wrong.write_bytes(b"wrong")
        for more, said in (
            ([], "--encoder is required. Pass the 13 convolutions of VGG-16"),
            (["--encoder", tmp_path / "none"], "none: no such file. Pass the 13 convolutions"),
            (["--encoder", wrong], "expected a safetensors file"),
            (["--encoder", encoder, "--decoders", decoders], "other weights than those trained on ImageNet"),
            (["--encoder", encoder, "--any-encoder", "--decoders", tmp_path], "Train it with: spectralgrad transfer"),
        ):
            assert said in self.refused(capsys, tmp_path, [*start, *more, *out])

    def test_numbers_and_names(self, networks, pictures, tmp_path, capsys):
        for more, said in (
            (["--strength", "1.5"], "strength from 0 to 1, got 1.5"),
            (["--strength", "1,0.5"], "one strength or 3"),
            (["--levels", "2,2"], "different levels"),
            (["--levels", "6"], "level from 1 to 5, got 6"),
            (["--method", "svd-tailor"], "svd-tailor"),
        ):
            given = words(networks, *pictures, *more, "-o", tmp_path / "out.png")
            assert said in self.refused(capsys, tmp_path, given)
        for more in (["--levels", "deep"], ["--strength", "much"], ["--size", "0"], ["--size", "big"]):
            with pytest.raises(SystemExit, match="2"):
                main(words(networks, *pictures, *more, "-o", tmp_path / "out.png"))
            assert f"argument {more[0]}: " in capsys.readouterr().err

    def test_outputs(self, networks, pictures, tmp_path, capsys):
        for out, said in (
            (tmp_path / "none" / "out.png", "the folder"),
            (tmp_path / "out.xyz", "cannot write the format '.xyz'"),
            (tmp_path / "out", "a file without a suffix"),
            (pictures[0], "is an input file"),
            (pictures[1], "is an input file"),
        ):
            assert said in self.refused(capsys, tmp_path, words(networks, *pictures, "-o", out))

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_is_not_writable(self, networks, pictures, tmp_path, capsys):
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o555)
        assert "not writable" in self.refused(capsys, tmp_path, words(networks, *pictures, "-o", locked / "out.png"))

    def test_transparency_in_a_format_without_it(self, networks, pictures, tmp_path, capsys):
        path = tmp_path / "transparent.png"
        write_picture(path, Picture(torch.rand(3, 8, 8), torch.rand(1, 8, 8)))
        given = words(networks, path, pictures[1], "-o", tmp_path / "out.jpg")
        assert "out.jpg" in self.refused(capsys, tmp_path, given)
