"""A trained translation network, applied to images."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from spectralgrad.errors import ShapeError, check_choice

from ...training.storage.checkpoints import CheckpointError, load_weights
from ...training.storage.run_files import CONFIG
from .config import TranslationConfig
from .encoders import SMALLEST_SIDE
from .networks import Generators

_STRIDE = 4  # of the content encoder
_PREFIX = "generators."


class Translator:
    """Gives an image of one domain the style of an image of the other.

    Args:
        generators: of both domains.

    Example:
        >>> translator = Translator(Generators(TranslationConfig(width=2)))
        >>> photo, painting = torch.rand(3, 17, 30), torch.rand(3, 20, 20)
        >>> translator(photo, painting).shape
        torch.Size([3, 17, 30])
    """

    def __init__(self, generators: Generators) -> None:
        self.generators = generators.eval()

    @classmethod
    def load(cls, run: str | Path) -> Translator:
        """Load the networks of a run of ``spectralgrad transfer train``.

        Args:
            run: folder of the run.

        Raises:
            CheckpointError: the folder has no checkpoint of such a run.
        """
        folder = Path(run)
        if not (folder / CONFIG).is_file():
            raise CheckpointError(f"{folder}: expected the folder of a run of spectralgrad transfer train")
        try:
            generators = Generators(TranslationConfig.from_toml(folder / CONFIG))
        except ValueError as problem:
            raise CheckpointError(f"{problem}; expected a run of spectralgrad transfer train") from None
        weights = load_weights(folder)
        try:
            generators.load_state_dict(
                {name.removeprefix(_PREFIX): w for name, w in weights.items() if name.startswith(_PREFIX)}
            )
        except RuntimeError:
            raise CheckpointError(f"{folder}: the checkpoint belongs to another network than {CONFIG}") from None
        return cls(generators)

    @torch.no_grad()
    def __call__(self, content: Tensor, style: Tensor, to: Literal["a", "b"] = "b") -> Tensor:
        """Translate an image.

        Images are padded to a multiple of 4 pixels, and to at least 32, by repeating their borders.

        Args:
            content: (3, H, W), RGB from 0 to 1, of the other domain than ``to``.
            style: (3, H', W'), of the domain ``to``.
            to: the domain of the result.

        Returns:
            (3, H, W), from 0 to 1.

        Raises:
            ShapeError: an image has the wrong shape.
            ArgumentError: ``to`` is unknown.
        """
        check_choice(to, ("a", "b"), "to", "Translator")
        for name, image in (("content", content), ("style", style)):
            if image.dim() != 3 or image.shape[0] != 3 or not image.numel():
                raise ShapeError(f"Translator: expected {name} (3, H, W), got {tuple(image.shape)}")
        source, target = self.generators.both if to == "b" else self.generators.both[::-1]
        code = target.style(_prepared(style))
        images = target.decode(source.content(_prepared(content)), code).images
        return images[0, :, : content.shape[1], : content.shape[2]].add(1).div(2)


def _prepared(image: Tensor) -> Tensor:
    """(3, H, W) from 0 to 1 → (1, 3, H', W') from −1 to 1, padded at the right and at the bottom."""
    wanted = [max(SMALLEST_SIDE, -(-length // _STRIDE) * _STRIDE) for length in image.shape[1:]]
    bottom, right = (after - before for after, before in zip(wanted, image.shape[1:], strict=True))
    return pad(image[None] * 2 - 1, (0, right, 0, bottom), mode="replicate")
