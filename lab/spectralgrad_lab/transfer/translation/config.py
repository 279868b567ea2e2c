"""The configuration of a translation run: each field is a flag of ``spectralgrad transfer train``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spectralgrad.errors import MethodError
from spectralgrad.rules import resolve

from ...networks import FORMS
from ...training.config.settings import ConfigError, setting
from ...training.config.step_settings import RUNNING, TRAINING, StepSettings
from .discriminator import SMALLEST_SIDE as SMALLEST_PATCH
from .encoders import SMALLEST_SIDE
from .generator import GROUP_SIZE, group_count
from .losses import GD_WEIGHTS, LOSS_NAMES
from .whitening import GD

IMAGES, NETWORK, LOSSES = "images", "network", "weights of the losses"
TITLES = {name: name for name in (IMAGES, NETWORK, LOSSES, TRAINING, RUNNING)}


@dataclass(frozen=True)
class TranslationConfig(StepSettings):
    """Everything that a translation run depends on.

    The defaults of network and training come from the GD-WCT code for the Artworks dataset, except for the size of the
    images, 216 there. The whitening has ε = 0.01, and ``svd-taylor`` degree 9, as in TPAMI 2021.

    Raises:
        ConfigError: a value is out of range, has the wrong type, or contradicts another value.

    Example:
        >>> config = TranslationConfig(a="photos", b="paintings", width=16)
        >>> config.groups, config.first_side
        (2, 72)
        >>> TranslationConfig(size=48)
        Traceback (most recent call last):
        ...
        spectralgrad_lab.training.config.settings.ConfigError: size: expected a multiple of 4, at least 64 for 3 scales, got 48
    """  # noqa: E501

    changeable: ClassVar[frozenset[str]] = StepSettings.changeable | {"sample_every"}

    a: str | None = setting(None, IMAGES, "folder with images of the first domain", metavar="DIR")
    b: str | None = setting(None, IMAGES, "folder with images of the second domain", metavar="DIR")
    size: int = setting(64, IMAGES, "side of the square crops, a multiple of 4", minimum=SMALLEST_SIDE)
    resize: int | None = setting(None, IMAGES, "shorter side of an image before cropping (default: 9/8 of size)",
                                 minimum=SMALLEST_SIDE)  # fmt: skip
    method: str = setting("exact", NETWORK, "whitening: exact, svd-taylor, svd-clip, svd-pi or another method that "
                          "`spectralgrad info` lists, or gd for GD-WCT's learned whitening")  # fmt: skip
    form: str = setting(
        "sound", NETWORK, "form of the method: the library's own (sound), or the paper's (published)", *FORMS
    )
    eps: float = setting(1e-2, NETWORK, "ε, added to the covariance before whitening", minimum=0)
    statistics: str = setting("sample", NETWORK, "whiten the features of each image separately (sample), or of all "
                              "images that a process has in a batch together (batch)", "sample", "batch")  # fmt: skip
    width: int = setting(64, NETWORK, "channels of the first convolutions; features have four times as many", minimum=1)
    group_size: int = setting(GROUP_SIZE, NETWORK, "largest number of channels whitened together", minimum=1)
    scales: int = setting(3, NETWORK, "scales at which the discriminators look at an image", minimum=1)

    adversarial_weight: float = setting(1.0, LOSSES, "translated images should pass for real ones", minimum=0)
    reconstruction_weight: float = setting(10.0, LOSSES, "an image decoded from its own codes is itself", minimum=0)
    cycle_weight: float = setting(10.0, LOSSES, "an image translated there and back is itself", minimum=0)
    content_weight: float = setting(1.0, LOSSES, "a translated image keeps the content features", minimum=0)
    style_weight: float = setting(1.0, LOSSES, "a translated image has the style code it was made of", minimum=0)

    steps: int = setting(200_000, TRAINING, "training steps", minimum=1)
    batch_size: int = setting(4, TRAINING, "images of each domain per step, over all processes together", minimum=1)
    weight_decay: float = setting(1e-4, TRAINING, "weight decay", minimum=0)
    hold: int = setting(100_000, TRAINING, "steps before the learning rate is first halved", minimum=0)
    halve_every: int = setting(10_000, TRAINING, "steps between halvings of the learning rate after that", minimum=1)
    sample_every: int = setting(500, RUNNING, "draw a sheet of samples every N steps; 0: only at the end", minimum=0)

    def _check_together(self) -> None:
        super()._check_together()
        if self.method != GD:
            try:
                resolve(self.method, "sqrt")
            except MethodError as problem:
                raise ConfigError(f"method: expected gd, or one of the library's: {problem}") from None
        least = SMALLEST_PATCH * 2 ** (self.scales - 1)
        if self.size % 4 or self.size < least:
            raise ConfigError(
                f"size: expected a multiple of 4, at least {least} for {self.scales} scales, got {self.size}"
            )
        if self.first_side < self.size:
            raise ConfigError(f"resize: expected at least size, {self.size}, got {self.resize}")
        if 4 * self.width % self.groups:
            raise ConfigError(
                f"group_size: expected groups of equal size in {4 * self.width} channels, got {self.group_size}"
            )

    @property
    def loss_weights(self) -> dict[str, float]:
        """The losses of the generators and their weights; for ``gd`` with GD-WCT's regularizers."""
        own = {name: getattr(self, f"{name}_weight") for name in LOSS_NAMES}
        return own | GD_WEIGHTS if self.method == GD else own

    @property
    def groups(self) -> int:
        """Number of groups of channels that are whitened separately."""
        return group_count(self.width, self.group_size)

    @property
    def first_side(self) -> int:
        """The shorter side of an image before cropping."""
        return self.resize or self.size * 9 // 8

    def rate(self, step: int) -> float:
        """The learning rate of a step: constant for ``hold`` steps, then halved every ``halve_every`` steps.

        Example:
            >>> config = TranslationConfig(lr=1.0, hold=10, halve_every=5)
            >>> [config.rate(step) for step in (0, 9, 10, 14, 15, 20)]
            [1.0, 1.0, 1.0, 1.0, 0.5, 0.25]
        """
        return self.lr * 0.5 ** max(0, (step - self.hold) // self.halve_every)
