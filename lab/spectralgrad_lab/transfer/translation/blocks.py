"""The convolutions of the translation network: mirrored borders, an optional normalization and activation."""

from __future__ import annotations

import math

from torch import Tensor, nn

NORMS = ("none", "instance", "group", "layer")
GROUPS = 8


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, *, norm: str = "none", activation: nn.Module | None = None
) -> nn.Sequential:
    """A convolution with mirrored borders, then normalization, then activation.

    With stride 1 and an odd kernel the size is preserved; with stride 2 and a kernel of 4 it is halved.

    Args:
        inputs: channels.
        outputs: channels.
        kernel: side of the kernel.
        stride: of the convolution.
        norm: ``"none"``, ``"instance"``, ``"group"`` (8 groups, or fewer if they do not divide the channels) or
            ``"layer"``; all have a scale and a shift per channel, and none keeps running statistics.
        activation: default: none.

    Example:
        >>> convolution(3, 8, 4, 2, norm="instance", activation=nn.ReLU(inplace=True))(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 8, 4, 4])
    """
    bias = norm != "instance"  # which would subtract it again
    layer = nn.Conv2d(inputs, outputs, kernel, stride, bias=bias)
    parts: list[nn.Module] = [nn.ReflectionPad2d((kernel - 1) // 2), layer]
    if norm != "none":
        parts.append(normalization(norm, outputs))
    return nn.Sequential(*parts, *([] if activation is None else [activation]))


def normalization(norm: str, channels: int) -> nn.Module:
    """The layer for a name in ``NORMS`` other than ``"none"``."""
    if norm == "instance":
        return nn.InstanceNorm2d(channels, affine=True)
    return nn.GroupNorm(1 if norm == "layer" else math.gcd(GROUPS, channels), channels)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, without an activation after the sum.

    Example:
        >>> ResidualBlock(8, norm="instance")(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(self, channels: int, *, norm: str = "none") -> None:
        super().__init__()
        first = convolution(channels, channels, 3, norm=norm, activation=nn.ReLU(inplace=True))
        self.body = nn.Sequential(first, convolution(channels, channels, 3, norm=norm))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]
