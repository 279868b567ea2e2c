"""All networks of a translation run: a generator and a discriminator for each domain."""

from __future__ import annotations

from torch import nn

from spectralgrad.nn import spectral_layers

from .config import TranslationConfig
from .discriminator import Discriminator
from .generator import Generator
from .whitening import Whitening

DOMAINS = ("a", "b")


class Generators(nn.Module):
    """The generators of both domains.

    Example:
        >>> nets = Generators(TranslationConfig(width=2))
        >>> nets.both == (nets.a, nets.b)
        True
    """

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        whitening = Whitening(config.method, config.form, config.eps, config.statistics == "sample")
        self.a, self.b = (Generator(config.width, whitening, group_size=config.group_size) for _ in DOMAINS)
        for name, layer in spectral_layers(self).items():
            layer.name = name

    @property
    def both(self) -> tuple[Generator, Generator]:
        """The two generators."""
        return self.a, self.b


class Discriminators(nn.Module):
    """The discriminators of both domains.

    Example:
        >>> len(Discriminators(TranslationConfig(width=2)).both)
        2
    """

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        self.a, self.b = (Discriminator(config.width, config.scales) for _ in DOMAINS)

    @property
    def both(self) -> tuple[Discriminator, Discriminator]:
        """The two discriminators."""
        return self.a, self.b
