"""The discriminator of a domain: the same small network at several scales."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from .blocks import convolution

LAYERS = 4
SMALLEST_SIDE = 2**LAYERS
"""The shortest side of an image at the last scale."""
_SLOPE = 0.01
_STD = 0.02


class Discriminator(nn.Module):
    """Judges patches of an image at several scales.

    At each scale four 4×4 convolutions with stride 2 double the channels, and a 1×1 convolution gives one number per
    patch: 1 for a real image, 0 for a generated one (LSGAN). Before the next scale the image is halved.

    Args:
        width: channels of the first convolution.
        scales: number of scales; the smallest image must have at least 16 pixels.

    Shape:
        images (N, 3, H, W) → a list of (N, 1, H', W'), one per scale.

    Example:
        >>> [tuple(y.shape) for y in Discriminator(2)(torch.rand(1, 3, 64, 64))]
        [(1, 1, 4, 4), (1, 1, 2, 2), (1, 1, 1, 1)]

    Reference: Mao et al., Least Squares Generative Adversarial Networks, ICCV 2017; Wang et al., High-Resolution Image
    Synthesis with Conditional GANs, CVPR 2018 (scales); Cho et al., GD-WCT, CVPR 2019.
    """

    def __init__(self, width: int = 64, scales: int = 3) -> None:
        super().__init__()
        self.scales = nn.ModuleList(_patches(width) for _ in range(scales))
        self.halve = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.apply(_initialize)

    def forward(self, images: Tensor) -> list[Tensor]:
        found = []
        for i, network in enumerate(self.scales):
            images = self.halve(images) if i else images
            found.append(network(images))
        return found


def _patches(width: int) -> nn.Sequential:
    sizes = [3, *(width * 2**i for i in range(LAYERS))]
    layers = [convolution(a, b, 4, 2, activation=nn.LeakyReLU(_SLOPE, inplace=True)) for a, b in pairwise(sizes)]
    return nn.Sequential(*layers, nn.Conv2d(sizes[-1], 1, 1))


def _initialize(module: nn.Module) -> None:
    """Gaussian weights, biases zero, as in GD-WCT."""
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=_STD)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
