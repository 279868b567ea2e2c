"""Covariance pooling with adaptive channel dropout as a layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..dispatch.arguments import check_count, checked
from ..dispatch.finite import check_finite
from ..errors import ArgumentError, ShapeError, check_features
from ..linalg.covariances import covariance
from .functional.dropcov import drop_channels, dropcov_rate
from .functional.pooling import upper_triangle

__all__ = ["DropCov"]


class DropCov(nn.Module):
    r"""Covariance pooling without a matrix function: channels are dropped before it, at a rate that adapts.

    In training the features are weighted, :math:`x\leftarrow x+y\circ x`, by the importance y of the channels (a
    convolution over the channel means, then a softmax), channels are dropped at the rate of
    :func:`spectralgrad.nn.functional.dropcov_rate`, and the covariance is pooled. In evaluation the covariance of the
    features themselves is pooled, as in the released code: neither weights nor dropout. The covariance is linear in the
    outer products, so nothing is decomposed, and there is no ``method``.

    Args:
        in_channels: number of channels C ≥ 2.
        kernel_size: size of the convolution over channels, odd.
        output: ``"triangle"`` for the entries on and above the diagonal, or ``"full"`` for the matrix.
        device: device of the convolution.
        dtype: type of the convolution.

    Shape:
        (N, C, *) → (N, C(C+1)/2) or (N, C, C).

    Raises:
        ArgumentError: a setting is out of range.
        ShapeError: the input is not (N, C, *) with at least one position.
        NonFiniteError: the input contains NaN or infinity.

    Example:
        >>> pool = DropCov(16)
        >>> pool(torch.randn(4, 16, 7, 7)).shape, pool.out_features
        (torch.Size([4, 136]), 136)
        >>> x = torch.tensor([[[1.0, -1.0], [2.0, -2.0]]])
        >>> DropCov(2).eval()(x).round(decimals=4)
        tensor([[1., 2., 4.]])

    Reference: Wang et al., DropCov: A simple yet effective method for improving deep architectures, NeurIPS 2022, and
    its released code for convolutional networks.
    """

    in_channels: int
    attention: nn.Conv1d

    @checked
    def __init__(
        self,
        in_channels: int,
        *,
        kernel_size: int = 3,
        output: Literal["triangle", "full"] = "triangle",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        where = type(self).__name__
        check_count(in_channels, "in_channels", where, 2)
        check_count(kernel_size, "kernel_size", where)
        if kernel_size % 2 == 0:
            raise ArgumentError(f"{where}: expected an odd kernel_size, got {kernel_size}")
        self.in_channels, self.output = in_channels, output
        self.attention = nn.Conv1d(1, 1, kernel_size, padding=kernel_size // 2, bias=False, device=device, dtype=dtype)

    @property
    def out_features(self) -> int:
        """Number of values in the output for each sample."""
        d = self.in_channels
        return d * d if self.output == "full" else d * (d + 1) // 2

    def forward(self, X: Tensor) -> Tensor:
        where = type(self).__name__
        check_features(X, where)
        if X.dim() < 3 or X.shape[1] != self.in_channels or X.flatten(2).shape[-1] == 0:
            raise ShapeError(
                f"{where}: expected features (N, {self.in_channels}, *) with at least one position, "
                f"got shape {tuple(X.shape)}"
            )
        X = X.flatten(2)
        if self.training:
            y = self.attention(X.mean(-1).unsqueeze(1)).squeeze(1).softmax(-1)  # (N, C)
            X = X + X * y.unsqueeze(-1)
            X = drop_channels(X, dropcov_rate(X, y))
        C = covariance(X).to(X.dtype)
        check_finite(C, where)  # nothing is decomposed
        return C if self.output == "full" else upper_triangle(C)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return f"{self.in_channels}, output={self.output!r}"
