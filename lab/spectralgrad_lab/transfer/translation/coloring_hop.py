"""One hop: whitening and colouring with a learned blend."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .coloring_networks import ColoringNetwork
from .learned_whitening import LearnedWhiteningColoring2d
from .whitening import EXACT, Whitening

BLEND = 0.6
"""The initial α of a hop."""


class Hop(nn.Module):
    r"""Whiten features, colour them with what a style code says, and blend the result with the features.

    .. math:: y=\alpha\,(S_cS_w(x-\mu)+\mu_c)+(1-\alpha)\,x,\qquad 0\le\alpha\le1 .

    α is a parameter that starts at 0.6. It is kept in [0, 1] by projection: :meth:`project` is called after every
    step of the optimizer. A matrix :math:`S_c` that a network makes need not be symmetric.

    Args:
        channels: of the features and the style code.
        groups: number of groups of channels.
        whitening: how the features are whitened.

    Shape:
        features (N, C, H, W), style codes (N, C) → features (N, C, H, W), and the regularizers (empty except for gd).

    Example:
        >>> hop = Hop(8, 2)
        >>> y, penalties = hop(torch.randn(3, 8, 5, 5), torch.randn(3, 8))
        >>> y.shape, penalties
        (torch.Size([3, 8, 5, 5]), {})

    Reference: Wang et al., TPAMI 2021, section 5.3; Cho et al., GD-WCT, CVPR 2019.
    """

    def __init__(self, channels: int, groups: int, whitening: Whitening = EXACT) -> None:
        super().__init__()
        self.network = ColoringNetwork(channels, groups)
        self.blend = nn.Parameter(torch.tensor(BLEND))
        self.transform = whitening.layer(groups)

    def forward(self, x: Tensor, style: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        matrix, mean = self.network(style)
        penalties: dict[str, Tensor] = {}
        if isinstance(self.transform, LearnedWhiteningColoring2d):
            y, penalties = self.transform(x, matrix, mean)
        else:
            y = self.transform(x, matrix=matrix, mean=mean)
        return torch.lerp(x, y, self.blend), penalties

    @torch.no_grad()
    def project(self) -> None:
        """Move α to the nearest number in [0, 1]."""
        self.blend.clamp_(0, 1)
