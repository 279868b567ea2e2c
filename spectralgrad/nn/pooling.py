"""Covariance pooling as a layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..dispatch.arguments import check_count, check_range, checked
from ..errors import ShapeError, check_features
from ..rules import Defaults, Method
from .base import SpectralModule, Watch
from .functional.pooling import Side, covariance_pooling, operation_of
from .functional.pooling_heads import Head, check_head

__all__ = ["CovariancePooling"]


class CovariancePooling(SpectralModule):
    r"""Global covariance pooling: replaces each sample's features by a matrix function of their covariance.

    .. math:: S=f(C),\qquad C=\tfrac1n\sum_i(x_i-\mu)(x_i-\mu)^\top+\epsilon I,\qquad f(\lambda)=\lambda^{\alpha}
              \ \text{or}\ \ln\lambda .

    The default is MPN-COV with its exact gradient. ``method="newton-schulz"`` is iSQRT-COV, the other names of
    ``methods("sqrt")`` include the variants of ICCV 2021, and ``method="svd-taylor", eps=1e-2, normalize=True`` is
    TPAMI Algorithm 3 with Eq. 29. The attribute ``method`` can be changed at any time, as hybrid training does. With
    7×7 positions and 256 channels, ``"exact"`` decomposes 49×49 matrices.

    Args:
        in_channels: number of input channels C.
        reduce_to: number of channels after a learned 1×1 convolution; None for no convolution.
        power: α, or ``"log"`` for the matrix logarithm.
        center: subtract the mean over positions.
        eps: ε.
        normalize: divide the result by its Frobenius norm.
        head: ``"plain"`` for S; ``"scaled"`` for S/α and ``"tangent"`` for (S − I)/α, the heads of RiemGCP; ``"seb"``
            for the scaling eigen branch, :math:`(1+\lVert C^{1/2}e^{-C}\rVert_F)\,C^{1/2}`.
        output: ``"triangle"`` for the entries on and above the diagonal, or ``"full"`` for the matrix.
        side: which matrix to decompose, see :func:`spectralgrad.nn.functional.covariance_pooling`.
        method: method for the gradient, one of ``methods("sqrt")``, ``methods("inv_sqrt")``, ``methods("power")`` or
            ``methods("log")``, depending on ``power``. ``"svd-taylor"`` has degree 100 here, as in the ICCV paper.
        compute_dtype: torch.float32 or torch.float64, the type to compute in (default: the input's type, float32 for
            half types). The code of the ICCV paper uses float64.
        device: device of the convolution.
        dtype: type of the convolution.

    Shape:
        (N, C, *) → (N, d(d+1)/2) or (N, d, d), where d is ``reduce_to``, or C without a reduction.

    Raises:
        ArgumentError: a setting is out of range or unknown.
        MethodError: the method is unknown or does not support ``power``.
        ShapeError: the input is not (N, C, *) with at least one position.
        NonFiniteError: the input contains NaN or infinity.

    Example:
        >>> pool = CovariancePooling(16, reduce_to=4)
        >>> pool(torch.randn(2, 16, 7, 7)).shape
        torch.Size([2, 10])
        >>> pool.method = "newton-schulz"
        >>> pool
        CovariancePooling(
          16, 4, power=0.5, output='triangle', method='newton-schulz'
          (reduction): Conv1d(16, 4, kernel_size=(1,), stride=(1,), bias=False)
        )

    Reference: Li et al., MPN-COV, ICCV 2017, and iSQRT-COV, CVPR 2018; Song et al., ICCV 2021; Wang et al., TPAMI 2021,
    Algorithm 3 (which multiplies the features by S; the pooled matrix is S itself, as in the released code). For the
    heads see :func:`spectralgrad.nn.functional.covariance_pooling`.
    """

    in_channels: int
    reduce_to: int | None
    center: bool
    eps: float
    normalize: bool

    @checked
    def __init__(
        self,
        in_channels: int,
        reduce_to: int | None = None,
        *,
        power: float | Literal["log"] = 0.5,
        center: bool = True,
        eps: float = 0.0,
        normalize: bool = False,
        head: Head = "plain",
        output: Literal["triangle", "full"] = "triangle",
        side: Side = "auto",
        method: str | Method = "exact",
        compute_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if power != "log":
            check_range(power, "power", type(self).__name__)
        self.operation: str = operation_of(power)
        super().__init__(method)
        self.in_channels, self.reduce_to = in_channels, reduce_to
        self.power, self.center, self.eps = power, center, eps
        self.normalize, self.head, self.output, self.side = normalize, head, output, side
        self.compute_dtype = compute_dtype
        self._check_compute_dtype()
        check_head(head, power, normalize, self.where)
        check_range(eps, "eps", self.where, 0)
        check_count(in_channels, "in_channels", self.where)
        check_count(reduce_to, "reduce_to", self.where)
        self.reduction: nn.Conv1d | None = (
            None if reduce_to is None else nn.Conv1d(in_channels, reduce_to, 1, bias=False, device=device, dtype=dtype)
        )

    def method_defaults(self) -> Defaults:
        """The ICCV paper pools with a series of degree 100; 9 is the degree for whitening."""
        return {"svd-taylor": {"degree": 100}}

    @property
    def out_features(self) -> int:
        """Number of values in the output for each sample."""
        d = self.in_channels if self.reduce_to is None else self.reduce_to
        return d * d if self.output == "full" else d * (d + 1) // 2

    def forward(self, X: Tensor) -> Tensor:
        check_features(X, self.where)
        if X.dim() < 3 or X.shape[1] != self.in_channels:
            raise ShapeError(f"{self.where}: expected features (N, {self.in_channels}, *), got shape {tuple(X.shape)}")
        X = X.flatten(2)
        if self.reduction is not None:
            X = self.reduction(X)
        pooled = covariance_pooling(
            X.to(self.compute_dtype or X.dtype),
            power=self.power,
            center=self.center,
            eps=self.eps,
            normalize=self.normalize,
            head=self.head,
            output=self.output,
            side=self.side,
            method=self.method,
            watch=Watch(self),
            where=self.where,
        )
        return pooled.to(X.dtype)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return (
            f"{self.in_channels}, {self.reduce_to}, power={self.power}, "
            + (f"head={self.head!r}, " if self.head != "plain" else "")
            + f"output={self.output!r}, method={self._method_text()!r}"
        )
