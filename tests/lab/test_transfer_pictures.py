"""Image files for transfer: every form is read, nothing is lost in silence, and what is wrong is said in one line."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spectralgrad_lab.transfer.pictures import Picture, read_picture

HEIGHT, WIDTH = 5, 7
COLORS = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)
DEEP = np.random.default_rng(1).integers(0, 65536, (HEIGHT, WIDTH, 4), dtype=np.uint16)


def levels(picture: Picture) -> np.ndarray:
    """Pixels and alpha as (H, W, C) in whole numbers of the picture's bits."""
    channels = torch.cat([picture.pixels] + ([] if picture.alpha is None else [picture.alpha]))
    scaled = channels * (2**picture.bits - 1)
    assert (scaled - scaled.round()).abs().max() < 0.01
    return scaled.round().permute(1, 2, 0).numpy().astype(int)


def saved(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I"])
@pytest.mark.parametrize("suffix", ["png", "tiff", "bmp", "gif", "ppm", "webp", "jpg"])
def test_every_mode_a_format_can_hold_is_read(tmp_path, mode, suffix):
    image = Image.fromarray(COLORS).convert("RGB" if mode in ("CMYK", "YCbCr") else "RGBA")
    if mode.startswith("I"):
        image = Image.fromarray(DEEP[..., 0]).convert(mode)
    else:
        image = image.convert(mode)
    path = tmp_path / f"a.{suffix}"
    try:
        image.save(path)
    except (OSError, ValueError, KeyError):
        pytest.skip(f"{suffix} has no mode {mode}")
    picture = read_picture(path)
    assert picture.pixels.shape in ((1, HEIGHT, WIDTH), (3, HEIGHT, WIDTH))
    assert picture.pixels.dtype == torch.float32
    assert 0 <= picture.pixels.min() <= picture.pixels.max() <= 1
    with Image.open(path) as again:
        grey = again.mode in ("1", "L", "LA", "I", "I;16")
        assert picture.pixels.shape[0] == (1 if grey else 3)
        if not again.mode.startswith("I"):
            want = np.array(again.convert("RGBA"))
            rgb = picture.rgb.permute(1, 2, 0).mul(255).round().numpy()
            opaque = want[..., 3] > 0
            assert np.array_equal(rgb[opaque], want[..., :3][opaque])
            assert (picture.alpha is not None) == ("A" in again.mode or again.has_transparency_data)
        else:
            assert np.array_equal(levels(picture)[..., 0], DEEP[..., 0])
