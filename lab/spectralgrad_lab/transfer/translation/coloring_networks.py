"""The networks that make the colouring matrices and the mean of a hop from a style code."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

_SLOPE = 0.01


def perceptron(inputs: int, hidden: int, outputs: int, hidden_layers: int) -> nn.Sequential:
    """Linear layers with leaky ReLU between them.

    Example:
        >>> len([layer for layer in perceptron(4, 8, 2, 3) if isinstance(layer, nn.Linear)])
        4
    """
    sizes = [inputs, *[hidden] * hidden_layers, outputs]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.LeakyReLU(_SLOPE, inplace=True)]
    return nn.Sequential(*layers[:-1])


class ColoringNetwork(nn.Module):
    """A pair of perceptrons: one makes the matrices of all groups, the other the mean.

    The part of the style code that belongs to a group becomes its matrix, by weights that all groups share: five
    linear layers with d²/4 hidden units, as in the configurations that the authors of GD-WCT give for 4, 8 and 16
    groups. The mean comes from the whole code, by three linear layers.

    Args:
        channels: of the features, C, and of the style code.
        groups: number of groups G; d = C/G.

    Shape:
        style codes (N, C) → matrices (N, G, d, d), means (N, C).

    Example:
        >>> matrix, mean = ColoringNetwork(8, 2)(torch.randn(3, 8))
        >>> matrix.shape, mean.shape
        (torch.Size([3, 2, 4, 4]), torch.Size([3, 8]))

    Reference: Cho et al., GD-WCT, CVPR 2019, Fig. 3; Wang et al., TPAMI 2021, Fig. 8.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.groups, self.size = groups, channels // groups
        self.matrix = perceptron(self.size, max(1, self.size**2 // 4), self.size**2, 4)
        self.mean = perceptron(channels, channels, channels, 2)

    def forward(self, style: Tensor) -> tuple[Tensor, Tensor]:
        parts = style.reshape(len(style), self.groups, self.size)
        matrix = self.matrix(parts).reshape(len(style), self.groups, self.size, self.size)
        return matrix, self.mean(style)
