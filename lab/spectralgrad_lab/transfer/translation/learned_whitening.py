r"""GD-WCT's transform: no decomposition, but two regularizers that push features and matrices to where one would be.

The whitening of a hop only subtracts the mean; a regularizer pushes the covariance :math:`\Sigma` of the features to
the identity. The colouring matrix is :math:`S_c=UDU^\top`, where D holds the norms of the columns of the network's
matrix and U the normalized columns; a second regularizer pushes :math:`U^\top U` to the identity, because then these
are eigenvalues and eigenvectors:

.. math:: R_w=\mathrm{mean}\,|\Sigma-I|,\qquad R_c=\mathrm{mean}\,|U^\top U-I| .

Reference: Cho et al., Image-To-Image Translation via Group-Wise Deep Whitening-And-Coloring Transformation, CVPR 2019.
Their released code compares U itself with the identity in the second regularizer; here it is as in the paper.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import spectralgrad as sg
from spectralgrad.nn.functional import color

_EPS = 1e-5  # added to the diagonal of the covariance, as in GD-WCT's code


class LearnedWhiteningColoring2d(nn.Module):
    """Mean subtraction, then colouring with a matrix whose columns are taken for eigenvectors.

    Args:
        groups: number of groups G of d = C/G channels.
        per_sample: compute the statistics of each sample separately; otherwise over the whole batch.

    Shape:
        features (N, C, H, W), matrices (N, G, d, d), means (N, C) → features (N, C, H, W), and the two regularizers.

    Example:
        >>> layer = LearnedWhiteningColoring2d(groups=2)
        >>> y, penalties = layer(torch.randn(3, 8, 5, 5), torch.randn(3, 2, 4, 4), torch.zeros(3, 8))
        >>> y.shape, sorted(penalties)
        (torch.Size([3, 8, 5, 5]), ['coloring', 'whitening'])
    """

    def __init__(self, groups: int = 1, *, per_sample: bool = True) -> None:
        super().__init__()
        self.groups, self.per_sample = groups, per_sample

    def forward(self, x: Tensor, matrix: Tensor, mean: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        centered = x - x.mean((2, 3) if self.per_sample else (0, 2, 3), keepdim=True)
        vectors = normalize(matrix, dim=-2)
        colored = color(centered, matrix=matrix @ vectors.mT, mean=mean, groups=self.groups)
        penalties = {"whitening": _distance(self._covariance(x)), "coloring": _distance(vectors.mT @ vectors)}
        return colored, penalties

    def _covariance(self, x: Tensor) -> Tensor:
        """(N, G, d, d) per sample, or (G, d, d) over the batch."""
        grouped = x.reshape(len(x), self.groups, -1, x.shape[2] * x.shape[3])
        return sg.covariance(grouped if self.per_sample else grouped.permute(1, 2, 0, 3).flatten(2), eps=_EPS)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return f"groups={self.groups}, per_sample={self.per_sample}"


def _distance(matrices: Tensor) -> Tensor:
    """The mean absolute difference to the identity."""
    return (matrices - torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)).abs().mean()
