"""Sheets of samples: content, style, translation and reconstruction, in both directions."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..pictures import Picture, write_picture
from .losses import translate
from .networks import Generators

_GAP = 4


@torch.no_grad()
def sample_sheet(generators: Generators, a: Tensor, b: Tensor) -> Tensor:
    """Translate images of both domains and arrange them in a sheet.

    Each row has a content image of the first domain, a style image of the second, the translation and the
    reconstruction of the content; then the same in the other direction.

    Args:
        generators: of both domains.
        a: images (N, 3, H, W) of the first domain, from −1 to 1.
        b: of the second domain.

    Returns:
        pixels (3, height, width), from 0 to 1.

    Example:
        >>> from spectralgrad_lab.transfer.translation import TranslationConfig
        >>> images = torch.rand(2, 3, 3, 32, 32)
        >>> sample_sheet(Generators(TranslationConfig(width=2)), *images).shape
        torch.Size([3, 120, 268])
    """
    generators.eval()
    there, (first, second) = translate(*generators.both, a, b), generators.both
    own_a = first.decode(there.codes.content_a, there.codes.style_a).images
    own_b = second.decode(there.codes.content_b, there.codes.style_b).images
    generators.train()
    gap = torch.ones(*a.shape[:3], _GAP, dtype=a.dtype, device=a.device)
    rows = torch.cat([a, b, there.ab.images, own_a, gap, b, a, there.ba.images, own_b], -1)
    sheet = torch.nn.functional.pad(rows, (_GAP,) * 4, value=1.0).permute(1, 0, 2, 3).flatten(1, 2)
    return sheet.add(1).div(2).clamp(0, 1).cpu()


def write_sheet(folder: Path, step: int, sheet: Tensor) -> Path:
    """Write a sheet as ``samples/STEP.png`` in the folder of a run, and return its path."""
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    path = folder / "samples" / f"{step:06d}.png"
    write_picture(path, Picture(sheet))
    return path
