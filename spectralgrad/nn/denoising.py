"""PCA denoising layers: standardise the features and project them onto the leading principal components."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ..dispatch.arguments import checked
from ..rules import Method
from .base import Watch
from .functional.normalization import Normalized
from .functional.whitening_matrices import check_keep, standardized_projector
from .running_norm import RunningNorm

__all__ = ["PCADenoising1d", "PCADenoising2d"]


class _PCADenoising(RunningNorm):
    operation = "eigh"

    @checked
    def __init__(
        self,
        num_features: int,
        keep: int | float = 0.99,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        groups: int = 1,
        method: str | Method = "svd-pade",
        statistics: Literal["covariance", "projector"] = "covariance",
        init: Literal["ones", "uniform"] = "ones",
        compute_dtype: torch.dtype | None = None,
        sync: bool = False,
        process_group: Any = None,
    ) -> None:
        self.keep = keep
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            track_running_stats,
            device,
            dtype,
            bias=bias,
            groups=groups,
            method=method,
            statistics=statistics,
            init=init,
            compute_dtype=compute_dtype,
            sync=sync,
            process_group=process_group,
        )

    def _check_settings(self) -> None:
        super()._check_settings()
        check_keep(self.keep, self.num_features // self.groups, self.where)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        separate = {"running_var": (self.num_features,)} if self.statistics == "projector" else {}
        return {**super()._shapes(), **separate}

    def reset_running_stats(self) -> None:
        """Reset mean and batch counter to zero, variances to one, and the covariance or projector to the identity."""
        super().reset_running_stats()
        if self.running_var is not None:
            self.running_var.fill_(1)

    def _contribution(self, batch: Normalized, unbiased: Tensor) -> dict[str, Tensor]:
        if self.statistics == "covariance":
            return super()._contribution(batch, unbiased)
        variance = batch.covariance.diagonal(dim1=-2, dim2=-1)
        return {
            "running_mean": batch.mean,
            "running_var": (variance * unbiased).flatten(),
            "running_projector": batch.matrix * (variance + self.eps).sqrt().unsqueeze(-2),
        }

    def evaluation_matrix(self) -> Tensor:
        """The matrix W (G, d, d) that evaluation applies."""
        if self.running_projector is None or self.running_var is None:
            return super().evaluation_matrix()
        variance = self.running_var.view(self.groups, 1, -1) + self.eps
        return self.running_projector * torch.where(variance > 0, variance, torch.inf).rsqrt()

    def matrix(self, C: Tensor, watch: Watch | None = None, eps: float | Tensor | None = None) -> Tensor:
        """The projector onto the leading components of the standardised features, times the standardisation."""
        return standardized_projector(C, self.keep, self.eps if eps is None else eps, self.method, watch, self.where)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``: ``keep`` follows the number of channels."""
        count, rest = super().extra_repr().split(", ", 1)
        return f"{count}, keep={self.keep}, {rest}, groups={self.groups}"


class PCADenoising1d(_PCADenoising):
    """:class:`PCADenoising2d` for features (N, C) or (N, C, L).

    Example:
        >>> layer = PCADenoising1d(3, keep=1)
        >>> int(torch.linalg.matrix_rank(layer(torch.randn(20, 3))))
        1

    Reference: as in :class:`PCADenoising2d`.
    """

    _dims = (2, 3)


class PCADenoising2d(_PCADenoising):
    r"""Batch normalisation that also removes noise: standardise, then project onto the leading principal components.

    .. math:: y=\gamma\circ P\hat x+\beta,\qquad \hat x=(x-\mu)/\sqrt{\sigma^2+\epsilon} .

    P projects onto the leading eigenvectors of the covariance of :math:`\hat x`: onto ``keep`` of them, or onto the
    smallest number whose eigenvalues reach the share ``keep`` of the trace. If all are kept, P = I and the layer equals
    :class:`torch.nn.BatchNorm2d`.

    P is smooth as long as the smallest eigenvalue kept and the largest one dropped differ. Its gradient involves only
    pairs of a kept and a dropped eigenvector, so repeated eigenvalues on one side of the cut are harmless. If the two
    eigenvalues at the cut coincide, the gradient does not exist, and the bound of ``method`` applies.

    Args:
        num_features: number of channels C.
        keep: number of eigenvectors to keep if an ``int``, share of the variance to keep if a ``float``. ``1`` keeps
            one eigenvector, ``1.0`` keeps all.
        eps: ε, added to the variances as in :class:`torch.nn.BatchNorm2d`.
        momentum, affine, track_running_stats, device, dtype, bias, groups, init, compute_dtype, sync, process_group: as
            in :class:`DecorrelatedBatchNorm2d`.
        method: method for the gradient of the eigenvectors, one of ``methods("eigh")``. The paper uses ``"svd-pi"``.
        statistics: what is averaged for evaluation. With ``"covariance"``, in ``running_cov``, σ and P are computed
            from the average, so P is a projector. The released code averages the ``"projector"``, in
            ``running_projector``, and the variances, in ``running_var``; an average of projectors is not one.

    The variance of the batch is divided by n, as in :class:`torch.nn.BatchNorm2d`, and the running variance or
    covariance by n − 1. The released code divides both by n − 1.

    Shape:
        (N, C, H, W) → (N, C, H, W).

    Raises:
        ArgumentError: as in :class:`DecorrelatedBatchNorm2d`, or ``keep`` is out of range.
        NonFiniteError: the batch contains NaN or infinity.

    Example:
        >>> layer = PCADenoising2d(8, keep=0.9)
        >>> signal = torch.randn(16, 2, 6, 6).repeat_interleave(4, 1)          # two sources in eight channels
        >>> Y = layer(signal + 0.1 * torch.randn(16, 8, 6, 6))
        >>> int(torch.linalg.matrix_rank(Y.transpose(0, 1).flatten(1)))
        2

    Reference: Wang et al., Backpropagation-Friendly Eigendecomposition, NeurIPS 2019, section 3.2.
    """

    _dims = (4,)
