"""Image files for transfer: every form is read, nothing is lost in silence, and what is wrong is said in one line."""

import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from spectralgrad.errors import ShapeError, SpectralError
from spectralgrad_lab.transfer.pictures import Picture, encoding, read_picture, write_picture
from spectralgrad_lab.transfer.pictures.errors import PictureError, PictureWarning
from spectralgrad_lab.transfer.pictures.shipped import art, find_picture

from .small_pictures import bomb, chunk

SHAPE = HEIGHT, WIDTH = 5, 7
COLORS = np.random.default_rng(0).integers(0, 256, (*SHAPE, 4), dtype=np.uint8)
DEEP = np.random.default_rng(1).integers(0, 65536, (*SHAPE, 4), dtype=np.uint16)
CHANNELS = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def levels(picture: Picture) -> np.ndarray:
    """Pixels and alpha as (H, W, C), in whole numbers of the picture's bits."""
    channels = torch.cat([picture.pixels] + ([] if picture.alpha is None else [picture.alpha]))
    scaled = channels * (2**picture.bits - 1)
    assert (scaled - scaled.round()).abs().max() < 0.01
    return scaled.round().permute(1, 2, 0).numpy().astype(int)


def picture_of(values: np.ndarray, **kept) -> Picture:
    channels = torch.from_numpy(values.astype(np.float32)).permute(2, 0, 1) / np.iinfo(values.dtype).max
    alpha = channels[-1:] if len(channels) in (2, 4) else None
    return Picture(channels[: 1 if len(channels) < 3 else 3], alpha, 8 * values.itemsize, **kept)


def saved(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


# Reading ---------------------------------------------------------------------

MODES = {
    "png": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    "tiff": ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I"],
    "bmp": ["1", "L", "P", "RGB", "RGBA"],
    "gif": ["1", "L", "P", "RGB", "RGBA"],
    "ppm": ["1", "L", "RGB", "I;16"],
    "webp": ["L", "RGB", "RGBA"],
    "jpg": ["L", "RGB", "CMYK", "YCbCr"],
    "tga": ["L", "RGB", "RGBA"],
}


@pytest.mark.parametrize(("suffix", "mode"), [(suffix, mode) for suffix, modes in MODES.items() for mode in modes])
def test_every_mode_of_a_format_is_read(tmp_path, suffix, mode):
    deep = mode.startswith("I")
    image = Image.fromarray(DEEP[..., 0]) if deep else Image.fromarray(COLORS)
    image = image.convert("RGB") if mode in ("CMYK", "YCbCr", "LAB") else image
    path = saved(tmp_path / f"a.{suffix}", image.convert(mode))
    picture = read_picture(path)
    with Image.open(path) as again:
        stored, want = again.mode, np.array(again if deep else again.convert("RGBA"))
        transparent = again.has_transparency_data
    assert picture.pixels.shape == (1 if stored in ("1", "L", "LA", "I", "I;16") else 3, *SHAPE)
    assert picture.pixels.dtype == torch.float32
    if deep:
        assert np.array_equal(levels(picture)[..., 0], DEEP[..., 0])
        return
    visible = want[..., 3] > 0
    rgb = levels(replace(picture, pixels=picture.rgb, alpha=None))
    assert np.array_equal(rgb[visible], want[..., :3][visible])
    assert (picture.alpha is not None) == transparent
    if transparent:
        assert np.array_equal(levels(picture)[..., -1], want[..., 3])


def test_a_colour_declared_transparent_becomes_alpha(tmp_path):
    values = np.zeros((2, 3, 3), np.uint8)
    values[0, 0] = 9
    path = saved(tmp_path / "a.png", Image.fromarray(values), transparency=(9, 9, 9))
    assert read_picture(path).alpha.flatten().tolist() == [0, 1, 1, 1, 1, 1]
    grey = saved(tmp_path / "b.png", Image.fromarray(values[..., 0]), transparency=9)
    assert read_picture(grey).alpha.flatten().tolist() == [0, 1, 1, 1, 1, 1]


def test_of_an_animation_the_first_frame_is_read(tmp_path):
    frames = [Image.new("L", (4, 3), level) for level in (50, 200)]
    path = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert levels(read_picture(path)).reshape(-1).tolist() in ([50] * 12, [50] * 36)


def test_cmyk_is_converted_and_its_profile_is_not_kept(tmp_path):
    path = saved(tmp_path / "a.jpg", Image.fromarray(COLORS[..., :3]).convert("CMYK"), icc_profile=b"not a profile")
    picture = read_picture(path)
    assert picture.pixels.shape == (3, *SHAPE)
    assert picture.profile is None


@pytest.mark.parametrize("size", [(64, 100), (100, 64)])
def test_an_image_is_reduced_to_the_longest_side(tmp_path, size):
    smooth = Image.fromarray(COLORS[..., :3]).resize(size, Image.Resampling.BICUBIC)
    path = saved(tmp_path / "a.png", smooth)
    small = read_picture(path, longest=25)
    assert max(small.size) == 25
    assert small.size in ((25, 16), (16, 25))
    want = np.array(smooth.resize((small.size[1], small.size[0]), Image.Resampling.BILINEAR))
    assert abs(levels_of(small) - want).max() <= 1.5
    assert read_picture(path, longest=100).size == read_picture(path).size == (size[1], size[0])


def levels_of(picture: Picture) -> np.ndarray:
    return picture.pixels.permute(1, 2, 0).mul(255).numpy()


def test_reduction_weighs_by_opacity(tmp_path):
    values = np.zeros((2, 2, 4), np.uint8)
    values[0, 0] = 200, 100, 50, 255
    path = saved(tmp_path / "a.png", Image.fromarray(values))
    small = read_picture(path, longest=1)
    assert torch.allclose(small.pixels.flatten() * 255, torch.tensor([200.0, 100.0, 50.0]), atol=0.01)
    assert small.alpha.item() == pytest.approx(0.25)


# 16 bits -----------------------------------------------------------------


def png16(values: np.ndarray, *, interlaced: bool = False, key: tuple[int, ...] = ()) -> bytes:
    """A PNG file by the specification, with unfiltered rows: what a reader has to understand."""
    height, width, channels = values.shape
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [values[y::dy, x::dx] for y, x, dy, dx in passes] if interlaced else [values]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for part in parts if part.size for row in part)
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, int(interlaced))
    transparent = chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) if key else b""
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + transparent + data + chunk(b"IEND", b"")


def tiff16(values: np.ndarray, order: str, *, compressed: bool, white_is_zero: bool = False, planes: int = 1) -> bytes:
    height, width, channels = values.shape
    head = {"<": b"II*\0\x08\0\0\0", ">": b"MM\0*\0\0\0\x08"}[order]
    data = values.astype(f"{order}u2").tobytes()
    data = zlib.compress(data) if compressed else data
    tags = ImageFileDirectory_v2(ifh=head)
    photometric = 2 if channels > 2 else 0 if white_is_zero else 1
    for tag, value in {256: width, 257: height, 258: (16,) * channels, 259: 8 if compressed else 1}.items():
        tags[tag] = value
    for tag, value in {262: photometric, 273: 0, 277: channels, 278: height, 279: len(data), 284: planes}.items():
        tags[tag] = value
    if channels == 4:
        tags[338] = 2
    return head + tags.tobytes(8) + data


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("channels", CHANNELS)
def test_16_bit_png_is_read_with_all_bits(tmp_path, channels, interlaced):
    path = tmp_path / "a.png"
    path.write_bytes(png16(DEEP[..., CHANNELS[channels]], interlaced=interlaced))
    picture = read_picture(path)
    assert picture.bits == 16
    assert np.array_equal(levels(picture), DEEP[..., CHANNELS[channels]])


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_png_with_a_transparent_colour(tmp_path, channels):
    values = DEEP[..., CHANNELS[channels]]
    path = tmp_path / "a.png"
    path.write_bytes(png16(values, key=tuple(values[1, 2])))
    alpha = read_picture(path).alpha[0]
    assert alpha[1, 2] == 0
    assert alpha.sum() == alpha.numel() - 1


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_16_bit_tiff_is_read_with_all_bits(tmp_path, channels, order, compressed):
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff16(DEEP[..., CHANNELS[channels]], order, compressed=compressed))
    assert np.array_equal(levels(read_picture(path)), DEEP[..., CHANNELS[channels]])


def test_16_bit_tiff_in_which_0_is_white(tmp_path):
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff16(DEEP[..., :1], "<", compressed=False, white_is_zero=True))
    assert np.array_equal(levels(read_picture(path)), 65535 - DEEP[..., :1].astype(int))


def test_16_bit_tiff_in_planes_is_refused(tmp_path):
    """Pillow 13.0 decodes it, wrongly."""
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff16(DEEP[..., :3], "<", compressed=True, planes=2))
    with pytest.raises(PictureError, match="16-bit samples in separate planes are not supported"):
        read_picture(path)


@pytest.mark.parametrize("largest", [65535, 1023])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_ppm_is_read_with_all_bits(tmp_path, channels, largest):
    values = (DEEP[..., CHANNELS[channels]].astype(int) * largest) // 65535
    path = tmp_path / "a.ppm"
    kind = 5 if channels == 1 else 6
    path.write_bytes(b"P%d %d %d %d\n" % (kind, WIDTH, HEIGHT, largest) + values.astype(">u2").tobytes())
    assert np.array_equal(levels(read_picture(path)), np.rint(values * (65535 / largest)).astype(int))


def test_bits_that_cannot_be_read_are_warned_about(tmp_path):
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P3 1 1 65535\n256 65535 0\n")
    with pytest.warns(PictureWarning, match=r"a\.ppm: 16 bits per sample, read as 8"):
        assert levels(read_picture(path)).reshape(-1).tolist() == [1, 255, 0]


@pytest.mark.parametrize("suffix", ["png", "tiff", "ppm"])
@pytest.mark.parametrize("channels", CHANNELS)
def test_16_bits_are_written(tmp_path, channels, suffix):
    values = DEEP[..., CHANNELS[channels]]
    if suffix == "ppm" and channels in (2, 4):
        return
    path = tmp_path / f"a.{suffix}"
    write_picture(path, picture_of(values))
    with Image.open(path) as image:  # Pillow by itself, which sees the upper bytes of colours
        seen = np.array(image if channels == 1 else image.convert("RGBA")).reshape(*SHAPE, -1)
    want = values if channels == 1 else (values[..., [0, 0, 0, -1]] if channels == 2 else values) >> 8
    assert abs(seen[..., : want.shape[-1]].astype(int) - want).max() <= (suffix == "ppm")  # where Pillow rounds
    again = levels(read_picture(path))
    assert np.array_equal(again[..., [0, 3]] if suffix == "tiff" and channels == 2 else again, values)


@pytest.mark.parametrize("suffix", ["png", "tiff", "ppm"])
@pytest.mark.parametrize("bits", [8, 16])
def test_tall_images_are_written_in_bands(tmp_path, bits, suffix):
    values = np.random.default_rng(2).integers(0, 2**bits, (200, 3, 3)).astype(f"uint{bits}")
    write_picture(tmp_path / f"a.{suffix}", picture_of(values))
    assert np.array_equal(levels(read_picture(tmp_path / f"a.{suffix}")), values)


@pytest.mark.parametrize("suffix", ["jpg", "webp", "bmp"])
def test_16_bits_become_8_with_a_warning(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    with pytest.warns(PictureWarning, match=rf"a\.{suffix}: .* has 8 bits per sample; 16 were given"):
        write_picture(path, picture_of(DEEP[..., :3]))
    assert read_picture(path).bits == 8
    if suffix == "bmp":
        assert np.array_equal(levels(read_picture(path)), np.rint(DEEP[..., :3] / 257).astype(int))


# Writing -----------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp", "ppm", "PNG"])
@pytest.mark.parametrize("channels", CHANNELS)
def test_8_bits_survive_a_round_trip(tmp_path, channels, suffix):
    if suffix in ("bmp", "ppm") and channels in (2, 4):
        return
    path = tmp_path / f"a.{suffix}"
    write_picture(path, picture_of(COLORS[..., CHANNELS[channels]]))
    assert np.array_equal(levels(read_picture(path)), COLORS[..., CHANNELS[channels]])
    assert os.listdir(tmp_path) == [path.name]


def test_lossy_formats_come_close(tmp_path):
    smooth = np.array(Image.fromarray(COLORS).resize((70, 50), Image.Resampling.BICUBIC))
    smooth[..., 3] = 200
    write_picture(tmp_path / "a.jpg", picture_of(smooth[..., :3]))
    assert abs(levels(read_picture(tmp_path / "a.jpg")) - smooth[..., :3]).mean() < 3
    write_picture(tmp_path / "a.webp", picture_of(smooth))
    again = levels(read_picture(tmp_path / "a.webp"))
    assert abs(again - smooth).mean() < 6
    assert (again[..., 3] == 200).all()


def test_pixels_are_clipped_and_rounded(tmp_path):
    write_picture(tmp_path / "a.png", Picture(torch.tensor([-0.5, 0.4999 / 255, 0.5001 / 255, 7.0]).view(1, 1, 4)))
    assert levels(read_picture(tmp_path / "a.png")).reshape(-1).tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("suffix", ["jpg", "bmp", "ppm"])
def test_transparency_needs_a_format_that_has_it(tmp_path, suffix):
    with pytest.raises(PictureError, match=r"has no transparency; write \.png, \.webp or \.tiff instead"):
        write_picture(tmp_path / f"a.{suffix}", picture_of(COLORS))
    assert os.listdir(tmp_path) == []
    opaque = COLORS.copy()
    opaque[..., 3] = 255
    write_picture(tmp_path / f"a.{suffix}", picture_of(opaque))
    assert read_picture(tmp_path / f"a.{suffix}").alpha is None


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spectralgrad.io.files.os.replace", full)
    with pytest.raises(PictureError, match=r"a\.png: cannot be written: No space left on device"):
        write_picture(path, picture_of(COLORS))
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.png", b"old")]


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    picture = picture_of(COLORS)
    for name, text in {
        "a.gif": "cannot write the format '.gif'; choose from .png",
        "a": "cannot write a file without a suffix; choose from .png",
        "no/a.png": "no/a.png: cannot be written: the folder .*no does not exist; create it first",
        "folder.png": "folder.png: cannot be written: is a folder",
    }.items():
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        with pytest.raises(PictureError, match=text):
            write_picture(tmp_path / name, picture)

    def refuse(path):  # the tests may run as root
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(encoding.files, "_probe", refuse)
    with pytest.raises(PictureError, match=r"cannot be written: the folder .* is not writable"):
        write_picture(tmp_path / "a.png", picture)
    assert os.listdir(tmp_path) == ["folder.png"]


def test_nan_and_sizes_a_format_cannot_hold_are_refused(tmp_path):
    with pytest.raises(PictureError, match=r"a\.png: cannot be written: the pixels contain NaN or infinity"):
        write_picture(tmp_path / "a.png", Picture(torch.full((1, 2, 2), torch.nan)))
    with pytest.raises(PictureError, match=r"a\.webp: cannot be encoded as WEBP"):
        write_picture(tmp_path / "a.webp", Picture(torch.zeros(1, 1, 20000)))
    assert os.listdir(tmp_path) == []


def test_pictures_have_the_shape_of_pictures():
    with pytest.raises(ShapeError, match=r"expected pixels \(3, H, W\) or \(1, H, W\), got \(2, 4, 4\)"):
        Picture(torch.zeros(2, 4, 4))
    with pytest.raises(ShapeError, match=r"expected alpha \(1, 4, 5\), got \(4, 5\)"):
        Picture(torch.zeros(3, 4, 5), torch.zeros(4, 5))


# Orientation, EXIF, profile -----------------------------------------------


def turned(values: np.ndarray, orientation: int) -> np.ndarray:
    """What has to be stored for an upright image, by the definition of the tag: where row 0 and column 0 are."""
    stored = values.swapaxes(0, 1) if orientation > 4 else values  # 5 to 8: row 0 is a side of the image
    right, bottom = orientation in (2, 3, 7, 8), orientation in (3, 4, 6, 7)
    if orientation > 4:
        rows = orientation in (6, 7)  # row 0 is the right side
        columns = orientation in (7, 8)  # column 0 is the bottom
        return stored[:: -1 if rows else 1, :: -1 if columns else 1]
    return stored[:: -1 if bottom else 1, :: -1 if right else 1]


@pytest.mark.parametrize("suffix", ["png", "tiff", "webp", "jpg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright(tmp_path, suffix, orientation):
    upright = np.zeros((48, 64, 4), np.uint8)
    upright[:24, :32], upright[:24, 32:] = (250, 20, 20, 250), (20, 250, 20, 200)
    upright[24:, :32], upright[24:, 32:] = (20, 20, 250, 150), (240, 240, 20, 100)
    upright = upright[..., :3] if suffix == "jpg" else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turned(upright, orientation)))
    path = saved(tmp_path / f"a.{suffix}", stored, exif=exif)
    picture = read_picture(path)
    assert picture.size == (48, 64)
    error = abs(levels(picture) - upright)[8:16, 8:16] + abs(levels(picture) - upright)[-16:-8, -16:-8]
    assert error.max() < 30
    again = tmp_path / "b.png"
    write_picture(again, picture)
    with Image.open(again) as image:
        assert image.size == (64, 48)
        assert image.getexif().get(0x0112, 1) == 1


def test_16_bit_images_are_turned_too(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "a.png"
    raw = png16(np.ascontiguousarray(turned(DEEP, 6)))
    path.write_bytes(raw[:33] + chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + raw[33:])
    assert np.array_equal(levels(read_picture(path)), DEEP)


@pytest.mark.parametrize("target", ["png", "jpg", "webp", "tiff", "deep.png", "deep.tiff"])
@pytest.mark.parametrize("source", ["png", "jpg", "webp", "tiff"])
def test_exif_and_profile_are_kept(tmp_path, source, target):
    exif = Image.Exif()
    exif[0x010F], exif[0x0112], exif[0x013B] = "Maker", 3, "Someone"
    exif.get_ifd(0x8769).update({0x9003: "2020:01:02 03:04:05", 0xA002: 999})
    path = saved(tmp_path / f"a.{source}", Image.fromarray(COLORS[..., :3]), exif=exif.tobytes(), icc_profile=SRGB)
    picture = read_picture(path)
    picture = replace(picture, bits=16) if target.startswith("deep") else picture
    write_picture(tmp_path / f"b.{target}", picture)
    with Image.open(tmp_path / f"b.{target}") as image:
        image.load()
        kept = image.getexif()
        assert (kept[0x010F], kept[0x013B], kept.get(0x0112, 1)) == ("Maker", "Someone", 1)
        assert kept.get_ifd(0x8769)[0x9003] == "2020:01:02 03:04:05"
        assert 0xA002 not in kept.get_ifd(0x8769)
        assert image.info["icc_profile"] == SRGB
    assert read_picture(tmp_path / f"b.{target}").profile == SRGB


def test_a_profile_for_other_channels_is_left_out(tmp_path):
    write_picture(tmp_path / "a.png", replace(picture_of(COLORS[..., :1]), profile=SRGB))
    assert read_picture(tmp_path / "a.png").profile is None


def test_exif_data_too_long_for_jpeg_are_left_out_with_a_warning(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "x" * 70000
    with pytest.warns(PictureWarning, match=r"a\.jpg: the EXIF data are too long for JPEG"):
        write_picture(tmp_path / "a.jpg", picture_of(COLORS[..., :3], exif=exif.tobytes()))
    assert read_picture(tmp_path / "a.jpg").exif == b""


def test_damaged_exif_data_do_not_matter(tmp_path):
    path = saved(tmp_path / "a.jpg", Image.fromarray(COLORS[..., :3]), exif=b"Exif\0\0" + b"II*\0\xff\xff\xff\xff" * 3)
    assert read_picture(path).size == SHAPE


# What is wrong with a file -------------------------------------------------


def test_decompression_bombs_are_refused(tmp_path):
    path = bomb(tmp_path / "a.png", 60000)
    with pytest.raises(PictureError, match=r"60000×60000 = 3600000000 pixels exceed the limit of 134217728; if you"):
        read_picture(path)


def test_the_limit_can_be_lowered_and_raised(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.png", Image.fromarray(COLORS))
    with pytest.raises(PictureError, match=r"7×5 = 35 pixels exceed the limit of 34"):
        read_picture(path, max_pixels=34)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # Pillow by itself refuses more than twice as many
    assert read_picture(path, max_pixels=35).size == SHAPE
    assert Image.MAX_IMAGE_PIXELS == 10


def cut(path: Path, image: Image.Image, share: float, **options) -> Path:
    content = saved(path, image, **options).read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


@pytest.mark.parametrize("share", [0.3, 0.7, 0.98])
@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tiff", "deflated.tiff", "bmp", "gif", "ppm"])
def test_truncated_files_are_named(tmp_path, capfd, suffix, share):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
    options = {"compression": "tiff_deflate"} if suffix.startswith("deflated") else {}
    path = cut(tmp_path / f"a.{suffix}", noise, share, **options)
    with pytest.raises(PictureError, match=rf"a\.{suffix}: (cannot be decoded|not an image)") as caught:
        read_picture(path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_files_that_are_not_images_are_named(tmp_path):
    def refuses(path: Path, text: str) -> None:
        with pytest.raises(PictureError, match=text) as caught:
            read_picture(path)
        assert isinstance(caught.value, SpectralError)
        assert isinstance(caught.value, ValueError)
        assert caught.value.path == path

    empty, text, folder = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"
    empty.touch()
    text.write_text("hello")
    folder.mkdir()
    refuses(empty, r"a\.png: the file is empty$")
    refuses(text, r"b\.png: not an image, or not in a known format \(PNG, JPEG")
    refuses(folder, r"c\.png: is a folder; expected an image file$")
    refuses(tmp_path / "d.png", r"d\.png: no such file$")
    refuses(saved(tmp_path / "e.tiff", Image.fromarray(np.ones(SHAPE, np.float32))), "samples are floating-point")
    refuses(saved(tmp_path / "f.tiff", Image.fromarray(np.full(SHAPE, 10**6, np.int32))), "samples of 32 bits")
    postscript = tmp_path / "g.eps"
    postscript.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    refuses(postscript, "not an image")  # Pillow would start Ghostscript
    with pytest.raises(PictureError, match="expected longest ≥ 1, got 0"):
        read_picture(text, longest=0)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "gif", "bmp", "ppm"])
def test_damaged_files_give_a_picture_or_one_error(tmp_path, suffix):
    """Fifty files with random bytes changed: never another error or a warning."""
    random = np.random.default_rng(0)
    whole = saved(tmp_path / f"a.{suffix}", Image.fromarray(COLORS[..., :3])).read_bytes()
    refused = 0
    for _ in range(50):
        damaged = np.frombuffer(whole, np.uint8).copy()
        damaged[random.integers(0, len(damaged), 5)] = random.integers(0, 256, 5)
        (tmp_path / "b").write_bytes(damaged.tobytes())
        try:
            assert read_picture(tmp_path / "b", max_pixels=10**6).pixels.isfinite().all()
        except PictureError:
            refused += 1
    assert refused or suffix in ("bmp", "ppm")  # formats in which most bytes are pixels


# Pictures of the lab --------------------------------------------------------


def test_the_pictures_of_the_lab_are_read():
    assert len(art()) == 12
    for path in art().values():
        assert read_picture(path, longest=32).rgb.shape[0] == 3


def test_a_file_is_preferred_to_a_picture_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_picture("cat").name == "photo_cat.png"
    (tmp_path / "cat").write_bytes(b"mine")
    assert find_picture("cat") == Path("cat")
    assert find_picture("coffee.png") == Path("coffee.png")
    with pytest.raises(PictureError, match=r"dog: no such file, nor a picture of the lab; those are astronaut, cat,"):
        find_picture("dog")
