"""A contact sheet: pictures in rows and columns, with names above the columns and below the first of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from spectralgrad.errors import ShapeError

_GAP = 6  # pixels between cells
_INK = (32, 32, 32)
_DIM = (110, 110, 110)


@dataclass(frozen=True)
class Row:
    """A row of a contact sheet.

    Attributes:
        first: the picture (3, H, W) in the first column; None leaves it white.
        text: below it, or in its place; lines are separated by line breaks.
        cells: the other pictures (3, H, W).
    """

    first: Tensor | None
    text: str
    cells: Sequence[Tensor]


def contact_sheet(heads: Sequence[tuple[str, Tensor]], rows: Sequence[Row], side: int = 192) -> Tensor:
    """Put pictures on a white sheet, each cropped to a square around its center.

    Args:
        heads: name and picture (3, H, W) of each column but the first.
        rows: each with as many cells as there are heads.
        side: of a cell, in pixels.

    Returns:
        the sheet (3, H, W), values from 0 to 1.

    Raises:
        ShapeError: a row has more or fewer cells than there are heads.

    Example:
        >>> picture = torch.rand(3, 40, 30)
        >>> contact_sheet([("night", picture)], [Row(picture, "cat", [picture])], side=48).shape
        torch.Size([3, 148, 114])
    """
    for row in rows:
        if len(row.cells) != len(heads):
            raise ShapeError(f"contact_sheet: expected {len(heads)} cells in a row, got {len(row.cells)}")
    height = sum(map(_Sheet(1, 1, side).height, rows))
    sheet = _Sheet(1 + len(heads), height, side)
    sheet.add_heads(heads)
    for row in rows:
        sheet.add(row)
    return torch.from_numpy(np.array(sheet.image)).permute(2, 0, 1).float() / 255


class _Sheet:
    """A sheet in progress: ``top`` is where the next row begins."""

    def __init__(self, columns: int, height: int, side: int) -> None:
        from PIL import Image, ImageDraw, ImageFont

        self.side, self.step = side, side + _GAP
        self.size = max(11, side // 12)  # of letters
        self.line = self.size + _GAP
        self.top = _GAP + self.line
        self.image = Image.new("RGB", (_GAP + columns * self.step, self.top + self.step + height), "white")
        self.pen, self.font = ImageDraw.Draw(self.image), ImageFont.load_default(size=self.size)

    def height(self, row: Row) -> int:
        """A row's height: a cell, and the text below the first one."""
        return self.step + (0 if row.first is None else self.line * (1 + row.text.count("\n")))

    def add_heads(self, heads: Sequence[tuple[str, Tensor]]) -> None:
        for column, (name, picture) in enumerate(heads, 1):
            self._write(column, _GAP // 2, name)
            self._paste(column, picture)
        self.top += self.step

    def add(self, row: Row) -> None:
        if row.first is not None:
            self._paste(0, row.first)
        self._write(0, self.top + (0 if row.first is None else self.side), row.text)
        for column, picture in enumerate(row.cells, 1):
            self._paste(column, picture)
        self.top += self.height(row)

    def _paste(self, column: int, picture: Tensor) -> None:
        from PIL import Image

        self.image.paste(Image.fromarray(_square(picture, self.side)), (_GAP + column * self.step, self.top))

    def _write(self, column: int, top: int, text: str) -> None:
        """Write lines of text, the first one darker; a line that is too long is shortened."""
        for number, line in enumerate(text.split("\n")):
            while len(line) > 1 and self.pen.textlength(line, self.font) > self.side:
                line = f"{line.rstrip('…')[:-1]}…"
            place = (_GAP + column * self.step, top + number * self.line)
            self.pen.text(place, line, _DIM if number else _INK, self.font)


def _square(picture: Tensor, side: int) -> np.ndarray:
    """The middle of a picture as uint8 (side, side, 3)."""
    short = min(picture.shape[-2:])
    top, left = ((length - short) // 2 for length in picture.shape[-2:])
    middle = picture[:, top : top + short, left : left + short].detach().cpu().float()
    resized = interpolate(middle[None], (side, side), mode="bilinear", antialias=True, align_corners=False)[0]
    return resized.clamp(0, 1).mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()
