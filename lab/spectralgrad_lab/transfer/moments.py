"""Mean and covariance of colours: weighted, and merged from the tiles of an image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Total weight (*, 1), mean (*, 3) and covariance (*, 3, 3)."""

    total: Tensor
    mean: Tensor
    covariance: Tensor


def color_moments(colors: Tensor, weight: Tensor | None = None) -> Moments:
    """Compute the moments of colours, relative to the first colour, so that a single colour has exact moments.

    Args:
        colors: (*, 3, n).
        weight: (*, 1, n), not negative; None counts each colour once.

    Returns:
        the moments; mean and covariance are zero if the total weight is.

    Example:
        >>> black, white = torch.zeros(3), torch.ones(3)
        >>> color_moments(torch.stack([black, white], -1), torch.tensor([[3.0, 1.0]])).mean
        tensor([0.2500, 0.2500, 0.2500])
    """
    weight = torch.ones_like(colors[..., :1, :]) if weight is None else weight.to(colors.dtype)
    total = weight.sum(-1)
    share = (weight / torch.where(total > 0, total, 1).unsqueeze(-1)).mT  # (*, n, 1)
    origin = colors[..., :1].detach()
    distance = (colors - origin) @ share
    centered = colors - origin - distance
    mean = torch.where(total > 0, (origin + distance).squeeze(-1), 0)
    return Moments(total, mean, (centered * share.mT) @ centered.mT)


def merged(a: Moments, b: Moments) -> Moments:
    """Merge the moments of two sets of colours.

    Example:
        >>> x = torch.rand(3, 10, dtype=torch.float64)
        >>> parts = merged(color_moments(x[:, :3]), color_moments(x[:, 3:]))
        >>> torch.allclose(parts.covariance, color_moments(x).covariance)
        True

    Reference: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.
    """
    total = a.total + b.total
    share = b.total / torch.where(total > 0, total, 1)
    step = b.mean - a.mean
    between = share * (1 - share) * step
    s = share.unsqueeze(-1)
    covariance = (1 - s) * a.covariance + s * b.covariance + between.unsqueeze(-1) * step.unsqueeze(-2)
    return Moments(total, a.mean + share * step, covariance)
