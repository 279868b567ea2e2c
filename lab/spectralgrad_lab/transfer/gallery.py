"""A gallery: every content with every style, by colours, features or translation, for several methods and strengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from torch import Tensor

from .color.layer import SpaceName, transfer_color
from .features.mirror_decoder import Decoder
from .features.stylization import stylize
from .features.vgg_encoder import Encoder
from .pictures.contact_sheet import Row, contact_sheet
from .translation import Translator

HALF_A_LEVEL = 0.5 / 255
KINDS = {"color": "colours", "style": "features", "translation": "translation"}
"""Kinds of transfer, and what they are called below a picture."""


@dataclass(frozen=True)
class Look:
    """A way to transfer.

    Attributes:
        kind: ``"color"`` for the colours of pixels, ``"style"`` for features, ``"translation"`` for a trained network.
        method: of the matrix roots; for a translation the name of the network.
        strength: from 0 to 1; a translation has only 1.
    """

    kind: str
    method: str
    strength: float

    @property
    def words(self) -> tuple[str, str, str]:
        """Kind, method and strength, as a label has them."""
        return KINDS[self.kind], self.method, "" if self.kind == "translation" else f"{self.strength:g}"

    def __str__(self) -> str:
        return ", ".join(filter(None, self.words))


def looks(kinds: Iterable[str], methods: Iterable[str], strengths: Iterable[float]) -> list[Look]:
    """All combinations.

    Example:
        >>> [str(look) for look in looks(["color"], ["exact"], [0.5, 1])]
        ['colours, exact, 0.5', 'colours, exact, 1']
    """
    return [Look(*values) for values in product(kinds, methods, strengths)]


def distinctions(wanted: Sequence[Look]) -> list[str]:
    """Labels with what distinguishes the looks, since there is little room; the whole look if there is only one.

    Example:
        >>> distinctions(looks(["color"], ["exact"], [0.5, 1]))
        ['strength 0.5', 'strength 1']
        >>> distinctions(looks(["color", "style"], ["exact", "svd-pi"], [1]))[:2]
        ['colours, exact', 'colours, svd-pi']
    """
    differ = [len({look.words[place] for look in wanted}) > 1 for place in range(3)]
    if not any(differ):
        return [str(look) for look in wanted]
    only_strength = differ == [False, False, True]
    return [
        ("strength " if only_strength else "")
        + ", ".join(word for word, shown in zip(look.words, differ, strict=True) if shown and word)
        for look in wanted
    ]


@dataclass(frozen=True)
class Transfer:
    """Applies looks.

    Attributes:
        space: color space of ``"color"``.
        encoder, decoders, levels: of ``"style"``; may be missing if no look needs them.
        translators: networks of ``"translation"`` by name.
    """

    space: SpaceName = "rgb"
    encoder: Encoder | None = None
    decoders: Mapping[int, Decoder] | None = None
    levels: Sequence[int] = (3, 2, 1)
    translators: Mapping[str, Translator] = field(default_factory=dict)

    def __call__(self, content: Tensor, style: Tensor, look: Look) -> Tensor:
        """The content (3, H, W) with the colours or features of the style (3, H', W')."""
        if look.kind == "translation":
            return self.translators[look.method](content, style)
        if look.kind == "color":
            options = {"strength": look.strength, "method": look.method, "noise": HALF_A_LEVEL}
            return transfer_color(content, style, space=self.space, **options).clamp(0, 1)  # type: ignore[arg-type]
        assert self.encoder is not None
        assert self.decoders is not None
        return stylize(
            content, style, self.encoder, self.decoders, self.levels, strength=look.strength, method=look.method
        )


def gallery(
    contents: Mapping[str, Tensor],
    styles: Mapping[str, Tensor],
    wanted: Sequence[Look],
    transfer: Transfer | None = None,
    *,
    side: int = 192,
    report: Callable[[int], object] = lambda done: None,
) -> Tensor:
    """A contact sheet with a column for each style, and for each content a row for each look.

    Args:
        contents: pictures (3, H, W) by name.
        styles: pictures (3, H, W) by name.
        wanted: the looks.
        transfer: applies them (default: colours in RGB).
        side: of a cell, in pixels.
        report: called with the number of pictures made since the last call.

    Returns:
        the sheet (3, H, W), values from 0 to 1.

    Example:
        >>> pictures = {"one": torch.rand(3, 20, 30), "two": torch.rand(3, 25, 20)}
        >>> gallery(pictures, pictures, looks(["color"], ["exact"], [1.0]), side=40).shape
        torch.Size([3, 229, 144])
    """
    apply = transfer or Transfer()

    def row(name: str, content: Tensor, look: Look, first: bool) -> Row:
        cells = []
        for style in styles.values():
            cells.append(apply(content, style, look))
            report(1)
        return Row(content, f"{name}\n{labels[look]}", cells) if first else Row(None, labels[look], cells)

    labels = dict(zip(wanted, distinctions(wanted), strict=True))
    rows = [row(name, content, look, first) for name, content, look, first in _each(contents, wanted)]
    return contact_sheet(list(styles.items()), rows, side)


def _each(contents: Mapping[str, Tensor], wanted: Sequence[Look]) -> Iterator[tuple[str, Tensor, Look, bool]]:
    for name, content in contents.items():
        for number, look in enumerate(wanted):
            yield name, content, look, number == 0
