"""The losses of the translation network, in both directions.

Notation: a and b are images of the two domains; ab has the content of a and the style of b; aba is ab translated back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss

from .generator import Decoded, Generator

LOSS_NAMES = ("adversarial", "reconstruction", "cycle", "content", "style")
"""The losses of the generators; ``TranslationConfig`` has their weights."""
GD_WEIGHTS = {"whitening": 0.001, "coloring": 10.0}
"""The weights of GD-WCT's regularizers."""


class Codes(NamedTuple):
    """Content features and style codes of images of both domains."""

    content_a: Tensor
    style_a: Tensor
    content_b: Tensor
    style_b: Tensor


class Translation(NamedTuple):
    """Images translated in both directions, and the codes they are made of."""

    codes: Codes
    ab: Decoded
    ba: Decoded


def encode(a: Generator, b: Generator, images_a: Tensor, images_b: Tensor) -> Codes:
    """The codes of images by the encoders of their domains."""
    return Codes(a.content(images_a), a.style(images_a), b.content(images_b), b.style(images_b))


def translate(a: Generator, b: Generator, images_a: Tensor, images_b: Tensor) -> Translation:
    """Translate images of each domain to the other one, with the styles of each other."""
    codes = encode(a, b, images_a, images_b)
    return Translation(codes, b.decode(codes.content_a, codes.style_b), a.decode(codes.content_b, codes.style_a))


def generator_losses(
    generators: tuple[Generator, Generator],
    discriminators: tuple[nn.Module, nn.Module],
    images: tuple[Tensor, Tensor],
    there: Translation,
) -> dict[str, Tensor]:
    """The losses of the generators.

    * adversarial: the translated images should pass for real ones,
    * reconstruction: an image decoded from its own content and style should be itself,
    * cycle: an image that is translated there and back should be itself,
    * content, style: a translated image should have the content and the style it was made of,
    * whitening, coloring: GD-WCT's regularizers, if its whitening is used.

    Args:
        generators: of both domains.
        discriminators: of both domains.
        images: of both domains, (N, 3, H, W), from −1 to 1.
        there: of these images.

    Returns:
        scalars, with the names of ``LOSS_NAMES`` and possibly ``GD_WEIGHTS``; sums over both directions, except for the
        regularizers, which are means over the four translations.
    """
    (a, b), codes = generators, there.codes
    back = translate(a, b, there.ba.images, there.ab.images)  # its ab is bab, its ba is aba
    own = (a.decode(codes.content_a, codes.style_a), b.decode(codes.content_b, codes.style_b))
    pairs = {
        "reconstruction": ((own[0].images, images[0]), (own[1].images, images[1])),
        "cycle": ((back.ba.images, images[0]), (back.ab.images, images[1])),
        "content": ((back.codes.content_b, codes.content_a), (back.codes.content_a, codes.content_b)),
        "style": ((back.codes.style_b, codes.style_b), (back.codes.style_a, codes.style_a)),
    }
    found = {name: torch.stack([l1_loss(x, y) for x, y in both]).sum() for name, both in pairs.items()}
    fooled = [*discriminators[0](there.ba.images), *discriminators[1](there.ab.images)]
    found["adversarial"] = _distance_to(1.0, fooled)
    passes = (there.ab, there.ba, back.ab, back.ba)
    return found | {
        name: torch.stack([decoded.penalties[name] for decoded in passes]).mean() for name in there.ab.penalties
    }


def discriminator_losses(
    discriminators: tuple[nn.Module, nn.Module], images: tuple[Tensor, Tensor], there: Translation
) -> dict[str, Tensor]:
    """The loss of the discriminators: 1 for real images, 0 for translated ones.

    Args:
        discriminators: of both domains.
        images: of both domains.
        there: of these images; no gradient flows to it.

    Returns:
        one scalar with the name ``discriminator``.
    """
    real = [y for judge, x in zip(discriminators, images, strict=True) for y in judge(x)]
    made = (there.ba.images.detach(), there.ab.images.detach())
    fake = [y for judge, x in zip(discriminators, made, strict=True) for y in judge(x)]
    return {"discriminator": _distance_to(1.0, real) + _distance_to(0.0, fake)}


def _distance_to(target: float, judged: Sequence[Tensor]) -> Tensor:
    """Least squares, summed over domains and scales."""
    return torch.stack([(y - target).square().mean() for y in judged]).sum()
