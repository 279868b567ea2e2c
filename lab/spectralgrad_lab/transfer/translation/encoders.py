"""The two encoders of the translation network: where things are, and how they look."""

from __future__ import annotations

from torch import Tensor, nn

from .blocks import ResidualBlock, convolution

RESIDUAL_BLOCKS = 4
SMALLEST_SIDE = 32
"""The shortest side of an image: the style encoder halves it four times, and normalizes what is left."""


def content_encoder(width: int = 64) -> nn.Sequential:
    """The content encoder: a 7×7 convolution, two with stride 2, four residual blocks; instance normalization.

    Args:
        width: channels of the first convolution.

    Returns:
        a network from images (N, 3, H, W) to features (N, 4·width, H/4, W/4).

    Example:
        >>> content_encoder(2)(torch.randn(1, 3, 16, 24)).shape
        torch.Size([1, 8, 4, 6])

    Reference: Cho et al., GD-WCT, CVPR 2019; Wang et al., TPAMI 2021, Fig. 8.
    """
    layers = [convolution(3, width, 7, norm="instance", activation=nn.ReLU(inplace=True))]
    for channels in (width, 2 * width):
        layers.append(convolution(channels, 2 * channels, 4, 2, norm="instance", activation=nn.ReLU(inplace=True)))
    blocks = [ResidualBlock(4 * width, norm="instance") for _ in range(RESIDUAL_BLOCKS)]
    return nn.Sequential(*layers, *blocks)


class StyleEncoder(nn.Module):
    """The style encoder: a 7×7 convolution, four with stride 2 and group normalization, the mean over all positions.

    The first convolution has no normalization: it would remove the mean colours.

    Args:
        width: channels of the first convolution.

    Shape:
        images (N, 3, H, W) with sides of at least 32 → style codes (N, 4·width).

    Example:
        >>> StyleEncoder(2)(torch.randn(1, 3, 32, 32)).shape
        torch.Size([1, 8])

    Reference: as in :func:`content_encoder`.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers = [convolution(3, width, 7, activation=nn.ReLU(inplace=True))]
        for inputs, outputs in ((1, 2), (2, 4), (4, 4), (4, 4)):
            activation = nn.ReLU(inplace=True)
            layers.append(convolution(inputs * width, outputs * width, 4, 2, norm="group", activation=activation))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean((2, 3))  # type: ignore[no-any-return]
