"""The generator of a domain: two encoders, and a decoder that whitens and colours the content five times."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .blocks import ResidualBlock, convolution
from .coloring_hop import Hop
from .encoders import StyleEncoder, content_encoder
from .whitening import EXACT, Whitening

HOPS = 5
GROUP_SIZE = 32


class Decoded(NamedTuple):
    """The output of a decoder.

    Attributes:
        images: (N, 3, H, W), from −1 to 1.
        penalties: means of GD-WCT's regularizers over the hops; empty for other methods.
    """

    images: Tensor
    penalties: dict[str, Tensor]


class Decoder(nn.Module):
    """Five hops with residual blocks between them, then two enlargements and a 7×7 convolution to RGB.

    The residual blocks have no normalization. Every enlargement (nearest neighbor) is followed by a 5×5 convolution
    with layer normalization that halves the channels.

    Args:
        width: a quarter of the channels of the features.
        groups: number of groups of channels in a hop.
        whitening: how the hops whiten.

    Shape:
        content features (N, 4·width, H/4, W/4), style codes (N, 4·width) → :class:`Decoded`.

    Reference: Cho et al., GD-WCT, CVPR 2019; Wang et al., TPAMI 2021, Fig. 8.
    """

    def __init__(self, width: int, groups: int, whitening: Whitening = EXACT) -> None:
        super().__init__()
        channels = 4 * width
        self.hops = nn.ModuleList(Hop(channels, groups, whitening) for _ in range(HOPS))
        self.blocks = nn.ModuleList([nn.Identity(), *(ResidualBlock(channels) for _ in range(HOPS - 1))])
        layers: list[nn.Module] = []
        for inputs in (channels, channels // 2):
            layers.append(nn.Upsample(scale_factor=2))
            layers.append(convolution(inputs, inputs // 2, 5, norm="layer", activation=nn.ReLU(inplace=True)))
        self.to_rgb = nn.Sequential(*layers, convolution(width, 3, 7, activation=nn.Tanh()))

    def forward(self, content: Tensor, style: Tensor) -> Decoded:
        x, found = content, []
        for block, hop in zip(self.blocks, self.hops, strict=True):
            x, penalties = hop(block(x), style)
            found.append(penalties)
        means = {name: torch.stack([penalties[name] for penalties in found]).mean() for name in found[0]}
        return Decoded(self.to_rgb(x), means)


class Generator(nn.Module):
    """The generator of a domain: content encoder, style encoder, decoder.

    To translate an image, the content encoder of its own domain is followed by the decoder of the other one.

    Args:
        width: channels of the first convolutions; features have 4·width channels (the paper: 64, so 256).
        whitening: how the hops whiten.
        group_size: largest number of channels that are whitened together (the paper: 32).

    Example:
        >>> a, b = Generator(2), Generator(2, Whitening("gd"))
        >>> photo, painting = torch.rand(2, 1, 3, 32, 32)
        >>> a.decode(b.content(painting), a.style(photo)).images.shape
        torch.Size([1, 3, 32, 32])

    Reference: as in :class:`Decoder`.
    """

    def __init__(self, width: int = 64, whitening: Whitening = EXACT, *, group_size: int = GROUP_SIZE) -> None:
        super().__init__()
        groups = group_count(width, group_size)
        self.content = content_encoder(width)
        self.style = StyleEncoder(width)
        self.decode = Decoder(width, groups, whitening)
        self.apply(_initialize)

    def project(self) -> None:
        """Keep the blend of every hop in [0, 1]."""
        for hop in self.decode.hops:
            hop.project()  # type: ignore[operator]

    @property
    def blends(self) -> list[float]:
        """The α of every hop."""
        return [float(hop.blend.detach()) for hop in self.decode.hops]  # type: ignore[union-attr, operator]


def group_count(width: int, group_size: int) -> int:
    """The number of groups of at most ``group_size`` of the 4·width channels.

    Example:
        >>> group_count(64, 32), group_count(4, 32)
        (8, 1)
    """
    return -(-4 * width // group_size)


def _initialize(module: nn.Module) -> None:
    """He initialization, biases zero, as in GD-WCT."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
