r"""Train a decoder to invert the encoder, on random crops of any images.

.. math:: L=\frac{\|\hat x-x\|^2}{s_x}+\lambda\,\frac{\|\phi(\hat x)-\phi(x)\|^2}{s_\phi},
          \qquad\hat x=\mathrm{decoder}(\phi(x)) ,

with the variance :math:`s_x` of pixels and the mean square :math:`s_\phi` of features, measured before training. So
both losses are relative, and λ does not depend on the scale of the features :math:`\phi` of a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Adam

from ... import untrusted_json
from ...training.config.settings import ConfigError, setting
from ...training.config.step_settings import TRAINING, StepSettings
from ...training.loop.loss_step import Learner
from ...training.loop.step_loop import run_steps
from ...training.loop.step_progress import StepProgress
from ...training.processes.surroundings import Session
from ...training.storage.optimizer_state import ADAM_MOMENTS, optimizer_reader, restore_optimizer
from ...training.storage.saved_state import reader_like
from ...training.storage.step_records import StepResult
from ..pictures.random_crops import RandomCrops
from .decoder_files import decoder_file, save_decoder
from .feature_statistics import FeatureStatistics
from .mirror_decoder import Decoder
from .vgg_encoder import LEVELS, Encoder

DATA = "images"
_MEASURED = 16  # batches from which the decoder's constants are taken


@dataclass(frozen=True)
class DecoderSettings(StepSettings):
    """The configuration of :func:`train_decoder`.

    Example:
        >>> DecoderSettings(level=2).crop
        64
    """

    # The learning rate depends on the number of steps, so a longer run is another run.
    changeable: ClassVar[frozenset[str]] = StepSettings.changeable - {"steps"} | {"encoder", "any_encoder"}

    images: str | None = setting(None, DATA, "folder with images", metavar="DIR")
    crop: int = setting(64, DATA, "side of the square crops, a multiple of 16", minimum=32)
    resize: int = setting(384, DATA, "reduce the shorter side of larger images to this length", minimum=32)
    level: int = setting(3, TRAINING, "level of the features, 1 to 5", minimum=1)
    feature_weight: float = setting(1.0, TRAINING, "λ, weight of the feature loss", minimum=0)
    steps: int = setting(6000, TRAINING, "training steps", minimum=1)
    batch_size: int = setting(4, TRAINING, "crops per step, over all processes together", minimum=1)
    lr: float = setting(2e-3, TRAINING, "learning rate at the beginning; falls to zero as a cosine", minimum=0)
    encoder: str | None = setting(None, DATA, "safetensors file with the convolutions of VGG-16", metavar="FILE")
    any_encoder: bool = setting(False, DATA, "accept an encoder with other weights than those trained on ImageNet")
    encoder_sha256: str = setting("", "", "digest of the encoder's weights, recorded by the run")

    def _check_together(self) -> None:
        super()._check_together()
        if self.level not in LEVELS:
            raise ConfigError(f"level: expected 1 to 5, got {self.level}")
        if self.crop % 16:
            raise ConfigError(f"crop: expected a multiple of 16, got {self.crop}")


def train_decoder(
    config: DecoderSettings,
    encoder: Encoder,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: StepProgress | None = None,
) -> StepResult[DecoderSettings]:
    """Train the decoder of one level; the folder then contains ``decoder-LEVEL.safetensors``.

    Args:
        config: of the run.
        encoder: whose features are decoded.
        folder, resume, progress: as in :func:`~spectralgrad_lab.training.loop.step_loop.run_steps`.

    Returns:
        the result, with the mean losses since the last line of the log.

    Raises:
        DataError, PictureError: the folder of images is missing or empty, or an image cannot be used.
        ConfigError, RunExistsError, CheckpointError, OSError: as in ``run_steps``.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> config = DecoderSettings(images=str(art_path("cat").parent), level=1, steps=2, crop=32, resize=64)
        >>> train_decoder(config, Encoder((4, 4, 8, 8, 8))).step
        2

    Reference: Li et al., Universal Style Transfer via Feature Transforms, NeurIPS 2017, Eq. 1.
    """
    config = config.replaced(encoder_sha256=encoder.digest)
    return run_steps(config, lambda now: _DecoderTask(config, encoder, now), folder, resume=resume, progress=progress)


def reconstruction_errors(encoder: Encoder, decoder: Decoder, images: Tensor) -> dict[str, Tensor]:
    """The mean squared errors of pixels and of features for images (N, 3, H, W).

    Example:
        >>> errors = reconstruction_errors(Encoder((4, 4, 8, 8, 8)), Decoder(1, 4), torch.rand(2, 3, 32, 32))
        >>> sorted(errors)
        ['features', 'pixels']
    """
    with torch.no_grad():
        features = encoder(images, decoder.level)
    decoded = decoder(features)
    again = encoder(decoded, decoder.level)
    return {"pixels": (decoded - images).square().mean(), "features": (again - features).square().mean()}


class _DecoderTask:
    """A decoder in training."""

    def __init__(self, config: DecoderSettings, encoder: Encoder, now: Session) -> None:
        group = now.group
        if config.images is None:
            raise ConfigError("images: expected a folder with images, got none")
        if config.batch_size % group.world:
            raise ConfigError(
                f"batch_size: expected a multiple of the {group.world} processes, got {config.batch_size}"
            )
        self.config, self.group, self.written = config, group, now.written
        self.crops = RandomCrops(config.images, size=config.crop, resize=config.resize, seed=config.seed)
        self.encoder = encoder.to(group.device)
        self.decoder = Decoder(config.level, encoder.widths[config.level - 1]).to(group.device)
        self.norms = self._measured()
        self.optimizer = Adam(self.decoder.parameters(), config.lr)
        weights = {"pixels": 1.0, "features": config.feature_weight}
        self.learner = Learner(self.decoder, self.optimizer, weights, group)

    @torch.no_grad()
    def _measured(self) -> dict[str, float]:
        """Measure images and features, on crops of no step; sets the constants of the decoder.

        Returns:
            the variance of pixels and the mean square of features.
        """
        found, pixels = FeatureStatistics(self.decoder.inputs), FeatureStatistics(3)
        for i in range(_MEASURED):
            images = self.crops.batch(self.config.steps + i, self.config.batch_size).to(self.group.device)
            pixels.add(images.transpose(0, 1))
            found.add(self.encoder(images, self.config.level).transpose(0, 1))
        variance = float(found.covariance.diagonal().mean())
        self.decoder.center.copy_(found.mean.view(-1, 1, 1))
        self.decoder.scale.fill_(variance**0.5 or 1.0)
        square = variance + float(found.mean.square().mean())
        return {"pixels": float(pixels.covariance.diagonal().mean()) or 1.0, "features": square or 1.0}

    def _losses(self, images: Tensor) -> dict[str, Tensor]:
        errors = reconstruction_errors(self.encoder, self.decoder, images)
        return {name: error / self.norms[name] for name, error in errors.items()}

    def step(self, number: int) -> dict[str, float]:
        """Take a step."""
        batch = self.crops.batch(number, self.config.batch_size, rank=self.group.rank, world=self.group.world)
        images = batch.to(self.group.device)
        self.optimizer.param_groups[0]["lr"] = self.config.lr * (1 + math.cos(math.pi * number / self.config.steps)) / 2
        return self.learner(lambda: self._losses(images))

    def after(self, number: int) -> None:
        """Write the decoder after the last step: before the checkpoint, so that no finished run lacks it."""
        if self.written is not None and number + 1 == self.config.steps:
            save_decoder(decoder_file(self.written, self.config.level), self.decoder, self.encoder.digest)

    def state(self) -> dict[str, Any]:
        """Weights, moments, and what the losses are relative to."""
        return {"model": self.decoder.state_dict(), "optimizer": self.optimizer.state_dict(), "norms": self.norms}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state, checked against the state of this task."""
        read = {name: reader_like(value) for name, value in self.decoder.state_dict().items()}
        moments = optimizer_reader(self.optimizer, ADAM_MOMENTS)
        readers = {"model": untrusted_json.record(read), "optimizer": moments, "norms": reader_like(self.norms)}
        found = untrusted_json.record(readers)(state, "state")
        self.norms = found["norms"]
        self.decoder.load_state_dict(found["model"])
        restore_optimizer(self.optimizer, found["optimizer"])
