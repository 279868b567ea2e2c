r"""Adaptive channel dropout before covariance pooling (DropCov): the rate follows from the features themselves.

With the importance y of the channels (a softmax over channels, positive) and the row sums :math:`\pi=C\mathbf 1` of the
covariance, which say how correlated a channel is with all others, the rate for a batch is

.. math:: \rho=\operatorname{clamp}\Bigl(1-\frac{10}{\log_2 d}\operatorname{mean}_n\cos(y_n,\pi_n),\,0,\,1\Bigr).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...dispatch.arguments import checked
from ...errors import ShapeError, check_features
from ...linalg.covariances import covariance
from ...precision import quotient

__all__ = ["dropcov_rate"]

_STRENGTH = 10.0


@checked
def dropcov_rate(X: Tensor, importance: Tensor) -> Tensor:
    r"""The dropout rate ρ of DropCov, without gradient.

    Args:
        X: features (N, C, *), with C ≥ 2.
        importance: of the channels (N, C).

    Returns:
        a scalar from 0 to 1; samples whose covariance or importance is zero count as cosine 0.

    Raises:
        ShapeError: ``X`` is not (N, C, *) with C ≥ 2 and a position, or ``importance`` is not (N, C).

    Example:
        >>> X = torch.tensor([[[1.0, -1.0], [1.0, -1.0]]])          # two channels, equal: C is a matrix of ones
        >>> dropcov_rate(X, torch.tensor([[0.5, 0.5]]))             # the cosine is 1, and 1 − 10/log2(2) is below 0
        tensor(0.)
        >>> dropcov_rate(X, torch.tensor([[0.5, -0.5]]))
        tensor(1.)

    Reference: Wang et al., DropCov: A simple yet effective method for improving deep architectures, NeurIPS 2022, as in
    the released code for convolutional networks.
    """
    _check(X, importance)
    with torch.no_grad():
        correlation = covariance(X.flatten(2)).sum(-1)
        cosine = (_unit(importance) * _unit(correlation)).sum(-1)
        return (1 - _STRENGTH / math.log2(X.shape[1]) * cosine.mean()).clamp(0, 1)


def drop_channels(X: Tensor, rate: Tensor) -> Tensor:
    """Set random channels of features (N, C, *) to zero with the probability ``rate``, and divide the others by 1 − ρ.

    It is ``torch.nn.functional.dropout2d`` for features of any dimension, with a rate that is a tensor. All channels
    are zero for rate 1.
    """
    rate = rate.to(X.dtype)
    kept = torch.rand(X.shape[:2], dtype=X.dtype, device=X.device) >= rate
    factor = quotient(kept.to(X.dtype), 1 - rate, rate < 1)
    return X * factor.view(*factor.shape, *[1] * (X.dim() - 2))


def _unit(x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return quotient(x, norm, norm > 0)


def _check(X: Tensor, importance: Tensor) -> None:
    check_features(X, "dropcov_rate, X")
    check_features(importance, "dropcov_rate, importance")
    if X.dim() < 3 or X.shape[1] < 2 or X.flatten(2).shape[-1] == 0 or importance.shape != X.shape[:2]:
        raise ShapeError(
            "dropcov_rate: expected features (N, C, *) with C ≥ 2 and importance (N, C), "
            f"got {tuple(X.shape)} and {tuple(importance.shape)}"
        )
