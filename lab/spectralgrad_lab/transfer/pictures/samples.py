"""An image as files store it: whole numbers, and what else has to survive when the image is saved again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

# Position of the colour space in the header of an ICC profile, and its value for 1 and 3 colour channels.
_SPACE, _SPACES = slice(16, 20), {1: b"GRAY", 3: b"RGB "}


@dataclass(frozen=True)
class Samples:
    """The samples of an image, upright, with its colour profile and its EXIF data.

    Args:
        values: uint8 or uint16 (H, W, C) with C = 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha).
        profile: ICC profile of the colours, or None.
        exif: EXIF data without orientation, thumbnail and sizes; empty if there are none.

    Example:
        >>> import numpy as np
        >>> samples = Samples(np.zeros((2, 3, 4), np.uint8))
        >>> samples.bits, samples.top, samples.has_alpha
        (8, 255, True)
    """

    values: npt.NDArray[Any]
    profile: bytes | None = field(default=None, repr=False)
    exif: bytes = field(default=b"", repr=False)

    @property
    def bits(self) -> int:
        """Bits per sample: 8 or 16."""
        return 8 * self.values.itemsize

    @property
    def top(self) -> int:
        """The largest value a sample can have."""
        return 2**self.bits - 1

    @property
    def has_alpha(self) -> bool:
        """True if the last channel is transparency."""
        return self.values.shape[2] in (2, 4)

    @property
    def colors(self) -> int:
        """Number of colour channels: 1 or 3."""
        return self.values.shape[2] - self.has_alpha

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.values.shape[0] * self.values.shape[1]

    @property
    def fitting_profile(self) -> bytes | None:
        """The profile if it is for this number of colour channels: a grey profile does not fit a colour image."""
        return self.profile if self.profile and self.profile[_SPACE] == _SPACES[self.colors] else None
