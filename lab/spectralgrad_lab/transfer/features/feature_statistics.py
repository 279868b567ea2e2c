"""Mean and covariance of features that arrive in pieces, and the affine map that gives one map the other's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spectralgrad import covariance_sqrt, matrix_inv_sqrt, matrix_sqrt
from spectralgrad.precision import rank_tolerance
from spectralgrad.rules import Method

from ..moments import Moments, merged

_CHUNK = 2**16  # positions that are converted to double precision at a time
_UNIT = torch.finfo(torch.float32).eps / 2  # the features are computed in single precision


class FeatureStatistics:
    """Mean and covariance of features that arrive in pieces, in double precision.

    As long as there are fewer positions than channels, the features themselves are kept: then the covariance is
    decomposed by its smaller side.

    Args:
        channels: of the features.

    Example:
        >>> X = torch.randn(4, 100)
        >>> found = FeatureStatistics(4).add(X[:, :30]).add(X[:, 30:])
        >>> found.count, torch.allclose(found.covariance, torch.cov(X.double(), correction=0))
        (100, True)
    """

    def __init__(self, channels: int) -> None:
        zero = torch.zeros(channels, channels + 2, dtype=torch.float64)
        self._moments = Moments(zero[0, :1], zero[:, 1], zero[:, 2:])
        self._pieces: list[Tensor] = []

    def add(self, features: Tensor) -> FeatureStatistics:
        """Add features (C, *) and return self."""
        for piece in features.detach().flatten(1).split(_CHUNK, 1):
            self._moments = merged(self._moments, _moments(piece.to("cpu", torch.float64, copy=True)))
            self._pieces = [*self._pieces, piece.to("cpu", copy=True)] if self.count < len(piece) else []
        return self

    @property
    def count(self) -> int:
        """The number of positions."""
        return int(self._moments.total)

    @property
    def mean(self) -> Tensor:
        """The mean (C,)."""
        return self._moments.mean

    @property
    def covariance(self) -> Tensor:
        """The covariance (C, C), divided by the number of positions."""
        return self._moments.covariance

    @property
    def features(self) -> Tensor | None:
        """The features (C, n) themselves if there are fewer positions than channels, otherwise None."""
        return torch.cat(self._pieces, 1) if self._pieces else None

    def root(self, method: str | Method = "exact") -> Tensor:
        """The square root of the covariance (C, C), by the smaller side."""
        features = self.features
        if features is not None:
            return covariance_sqrt(features.double(), method=method)
        return matrix_sqrt(self.covariance, method=method)

    def inverse_root(self, method: str | Method = "exact") -> Tensor:
        r"""The inverse square root of the covariance (C, C) on its range.

        Directions whose standard deviation is below the rounding error of the features, :math:`3u\sqrt{E\|x\|^2}`, have
        no variance.
        """
        C = self.covariance
        largest = float(torch.linalg.matrix_norm(C, 2))
        noise = (3 * _UNIT) ** 2 * float(C.trace() + self.mean.square().sum())
        share = noise / largest if largest > 0 else 0.0
        return matrix_inv_sqrt(C, method=method, rtol=min(1.0, max(share, rank_tolerance(len(C), C.dtype))))


@dataclass(frozen=True)
class AffineMap:
    r"""Features :math:`y=M(x-\mu)+m`; in double precision, because M may amplify directions of small variance.

    Args:
        matrix: M (C, C).
        center: μ (C,).
        mean: m (C,).
    """

    matrix: Tensor
    center: Tensor
    mean: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Apply the map to features (C, *), with their dtype and device."""
        Y = features.flatten(1).clone()
        for piece in Y.split(_CHUNK, 1):
            X = piece.to("cpu", torch.float64) - self.center.unsqueeze(1)
            piece.copy_(torch.addmm(self.mean.unsqueeze(1), self.matrix, X))
        return Y.view(features.shape)


def _moments(X: Tensor) -> Moments:
    """The moments of features (C, n), which are centred in place."""
    count, mean = torch.tensor([X.shape[1]], dtype=X.dtype), X.mean(1)
    X -= mean.unsqueeze(1)
    return Moments(count, mean, X @ X.mT / count)


def whitening_coloring(
    content: FeatureStatistics, style: FeatureStatistics, strength: float = 1.0, method: str | Method = "exact"
) -> AffineMap:
    r"""The map :math:`x\mapsto\alpha\bigl(S_cS_w(x-\mu)+\mu_c\bigr)+(1-\alpha)\,x`.

    Args:
        content: statistics of the features to be transformed, μ and :math:`S_w`.
        style: statistics of the style, μ_c and :math:`S_c`.
        strength: α.
        method: method of the roots, one of ``methods("sqrt")``.

    Example:
        >>> content, style = torch.randn(3, 50), 2 * torch.randn(3, 40) + 1
        >>> statistics = [FeatureStatistics(3).add(x) for x in (content, style)]
        >>> Y = whitening_coloring(*statistics)(content)
        >>> torch.allclose(torch.cov(Y, correction=0), torch.cov(style, correction=0), atol=1e-5)
        True

    Reference: Li et al., NeurIPS 2017, Eq. 2 to 4.
    """
    keep = (1 - strength) * torch.eye(len(content.mean), dtype=torch.float64)
    matrix = strength * style.root(method) @ content.inverse_root(method) + keep
    return AffineMap(matrix, content.mean, strength * style.mean + (1 - strength) * content.mean)
