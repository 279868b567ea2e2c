"""A classifier that tells domains apart: does a translated picture pass for one of its domain (TPAMI 2021, Table 8)?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from spectralgrad.errors import ArgumentError, ShapeError, SpectralError

from .. import networks
from ..data import as_dataset
from ..training.config.run_config import Config
from ..training.loop.run import train
from ..training.storage.checkpoints import load_weights
from .pictures.random_crops import ALL, RandomCrops

_BATCH = 64


class StyleClassifier:
    """A small residual network, trained to tell from which folder a crop comes.

    Args:
        net: maps normalized images (N, 3, H, W) to scores (N, domains).
        domains: their names.
        mean: of each channel, subtracted from pixels between 0 and 1.
        std: of each channel, divided by.
        held_out: accuracy in per cent on crops that were not used for training.

    Example:
        >>> net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())           # the brightest channel
        >>> judge = StyleClassifier(net, ("red", "green", "blue"), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        >>> green = torch.tensor([0.1, 0.9, 0.2]).view(1, 3, 1, 1).expand(4, 3, 8, 8)
        >>> judge.accuracy(green, "green"), judge.accuracy(green, "red")
        (100.0, 0.0)

    Reference: Wang et al., TPAMI 2021, section 5.3.3, where the network is Inception-v3.
    """

    def __init__(
        self,
        net: nn.Module,
        domains: Sequence[str],
        mean: Sequence[float],
        std: Sequence[float],
        held_out: float = float("nan"),
    ) -> None:
        self.net, self.domains, self.held_out = net.eval(), tuple(domains), held_out
        self._mean, self._std = (torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))

    @classmethod
    def trained_on(
        cls,
        folders: Mapping[str, str | Path],
        *,
        size: int = 64,
        resize: int | None = None,
        crops: int = 1000,
        tested: int = 200,
        epochs: int = 6,
        width: int = 16,
        seed: int = 0,
        images: slice = ALL,
        test_images: slice | None = None,
    ) -> StyleClassifier:
        """Train a classifier on random crops.

        Args:
            folders: domain → folder with pictures.
            size: side of the crops.
            resize: shorter side of a picture before cropping (default: 9/8 of ``size``).
            crops: of each domain for training.
            tested: of each domain for the test.
            epochs: passes over the crops; the learning rate falls after two thirds of them.
            width: of the network, a residual network with eight layers.
            seed: of crops and weights.
            images: which pictures of each folder to learn from, in the order of their names.
            test_images: which pictures the crops that test it come from (default: the same pictures).

        Raises:
            DataError, PictureError: as in :class:`~spectralgrad_lab.transfer.pictures.random_crops.RandomCrops`.
            SpectralError: the training failed.
        """

        def drawn(part: slice, step: int, count: int) -> tuple[Tensor, Tensor]:
            side = resize or size * 9 // 8
            seeds = range(len(folders) * seed, len(folders) * (seed + 1))
            pairs = zip(folders.values(), seeds, strict=True)
            return _labelled(
                [RandomCrops(f, size=size, resize=side, seed=s, images=part) for f, s in pairs], step, count
            )

        data = as_dataset((drawn(images, 0, crops), drawn(images if test_images is None else test_images, 1, tested)))
        config = Config(network="resnet8", width=width, layer="batchnorm", batch_size=_BATCH, lr=0.05, seed=seed,
                        epochs=epochs, milestones=(max(1, 2 * epochs // 3),), tensorboard=False)  # fmt: skip
        with tempfile.TemporaryDirectory() as run:
            result = train(config, run, data=data)
            if result.failure is not None:
                raise SpectralError(f"the classifier of styles could not be trained: {result.failure}")
            weights = load_weights(run)
        net = networks.build(config, 3, size, len(folders))
        net.load_state_dict(weights)
        return cls(net, tuple(folders), data.mean, data.std, 100 - result.final_error)

    @torch.no_grad()
    def predicted(self, images: Tensor) -> Tensor:
        """The domain of each image, as an index into ``domains``.

        Args:
            images: (N, 3, H, W), from 0 to 1.

        Returns:
            int64 (N,).

        Raises:
            ShapeError: the shape is wrong.
        """
        if images.dim() != 4 or images.shape[1] != 3:
            raise ShapeError(f"StyleClassifier: expected images (N, 3, H, W), got {tuple(images.shape)}")
        parts = [self.net((part - self._mean) / self._std).argmax(1) for part in images.split(_BATCH)]
        return torch.cat(parts)

    def accuracy(self, images: Tensor, domain: str) -> float:
        """The share of images, in per cent, that are taken for images of a domain.

        Raises:
            ArgumentError: the domain is unknown.
        """
        if domain not in self.domains:
            raise ArgumentError(f"StyleClassifier: expected a domain of {', '.join(self.domains)}, got {domain!r}")
        return 100 * float((self.predicted(images) == self.domains.index(domain)).float().mean())


def _labelled(sources: Sequence[RandomCrops], step: int, count: int) -> tuple[Tensor, Tensor]:
    """Crops of all domains as uint8, and their labels."""
    images = [(source.batch(step, count) * 255).round().to(torch.uint8) for source in sources]
    return torch.cat(images), torch.arange(len(sources)).repeat_interleave(count)
