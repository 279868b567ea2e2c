r"""Decorrelated batch normalisation: layers that whiten a batch instead of standardising each channel."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ..dispatch.arguments import checked
from ..errors import MethodError
from ..linalg.covariances import shifted
from ..rules import Method
from .base import Watch
from .functional.whitening_matrices import DEFAULT, OPERATION, Whitening, whitening_matrix
from .running_norm import RunningNorm, Statistics

__all__ = ["DecorrelatedBatchNorm1d", "DecorrelatedBatchNorm2d", "DecorrelatedBatchNorm3d"]


class _DecorrelatedBatchNorm(RunningNorm):
    @checked
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-2,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        groups: int = 1,
        method: str | Method | None = None,
        statistics: Statistics = "covariance",
        whitening: Whitening = "zca",
        init: Literal["ones", "uniform"] = "ones",
        compute_dtype: torch.dtype | None = None,
        sync: bool = False,
        process_group: Any = None,
    ) -> None:
        self.operation: str = OPERATION[whitening]
        self.whitening = whitening
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
            method=DEFAULT[whitening] if method is None else method,
            statistics=statistics,
            init=init,
            compute_dtype=compute_dtype,
            sync=sync,
            process_group=process_group,
        )

    def _resolved(self, method: str | Method) -> Method:
        rule = super()._resolved(method)
        if self.whitening == "cholesky" and not rule.exact:
            raise MethodError(
                f"{self.where}: whitening='cholesky' has no eigenvectors, so its only method is 'exact', "
                f"got {rule.name!r}"
            )
        return rule

    def matrix(self, C: Tensor, watch: Watch | None = None, eps: float | Tensor | None = None) -> Tensor:
        """W with W (C + εI) Wᵀ = I."""
        M = shifted(C, self.eps if eps is None else eps)
        return whitening_matrix(M if watch is None else watch(M), self.whitening, self.method, self.where)

    def extra_repr(self) -> str:
        """The settings, beginning with the settings of torch's BatchNorm."""
        return f"{super().extra_repr()}, groups={self.groups}, whitening={self.whitening!r}"


class DecorrelatedBatchNorm1d(_DecorrelatedBatchNorm):
    """:class:`DecorrelatedBatchNorm2d` for features (N, C) or (N, C, L).

    Example:
        >>> layer = DecorrelatedBatchNorm1d(3, eps=0.0, affine=False)
        >>> Y = layer(torch.randn(100, 3, dtype=torch.float64))
        >>> torch.allclose(Y.T @ Y / 100, torch.eye(3, dtype=torch.float64))
        True

    Reference: as in :class:`DecorrelatedBatchNorm2d`.
    """

    _dims = (2, 3)


class DecorrelatedBatchNorm2d(_DecorrelatedBatchNorm):
    r"""Batch normalisation that whitens the channels.

    .. math:: y=\gamma\circ M^{-1/2}(x-\mu)+\beta,\qquad M=\tfrac1n\sum(x-\mu)(x-\mu)^\top+\epsilon I .

    The sum runs over the n positions of all samples. Before γ and β are applied the output has covariance
    :math:`I-\epsilon M^{-1}`. The layer is a drop-in replacement for :class:`torch.nn.BatchNorm2d`, and equal to it for
    ``groups=num_features``. The gradient is exact for any rank of M and at repeated eigenvalues, so a batch with fewer
    samples than channels works, and so does a convolution with fewer inputs than outputs.

    Running statistics are ``running_mean`` (C,) and ``running_cov`` (G, d, d), without ε and unbiased (n − 1) like
    torch's ``running_var``. The papers average the biased covariance with ε included; with n in the thousands the
    difference is negligible. Features of any size are whitened, also where their squares overflow; a running covariance
    that overflows is infinite, and evaluation raises an error that says so.

    Args:
        num_features: C.
        eps: ε; the papers' 1e-2.
        momentum: weight of the current batch in the running statistics; None for a cumulative average.
        affine: whether to learn γ and β.
        track_running_stats: whether to keep running statistics and evaluate with them; if False, evaluation uses the
            statistics of each batch.
        device: device of parameters and buffers.
        dtype: type of parameters and buffers.
        bias: whether to learn β; ignored without ``affine``.
        groups: number of groups G; each group of d = C/G channels is whitened separately.
        method: how the gradient is computed: one of ``methods("inv_sqrt")`` for ``"zca"`` (default ``"exact"``), one of
            ``methods("eigh")`` for ``"pca"`` (default ``"svd-pade"``); ``"cholesky"`` only takes ``"exact"``.
            The ε at which ``"svd-pi"`` and ``"pi"`` stop is the layer's, unless the name sets another.
        statistics: what is averaged for evaluation: the ``"covariance"`` (TPAMI Algorithm 2) or the ``"whitening"``
            matrix, in ``running_whitening`` (NeurIPS Algorithm 1, and the released code of both papers). Averaging
            ``"pca"`` matrices is rarely meaningful, since eigenvectors change order and sign between batches.
        whitening: ``"zca"``, ``"pca"`` or ``"cholesky"``, see :func:`spectralgrad.nn.functional.whitening_matrix`.
        init: initial γ: ``"ones"`` as in torch, or ``"uniform"`` in [0, 1] as in the papers' code.
        compute_dtype: the type in which statistics and output are computed; by default the input's type, or float32
            for float16 and bfloat16. The output has the type of the input.
        sync: compute the statistics over all processes, like :class:`torch.nn.SyncBatchNorm`.
        process_group: the processes to synchronise; all of them by default.

    Shape:
        Input and output: (N, C, H, W).

    Raises:
        ArgumentError: ``groups`` does not divide the number of channels, or ε is negative.
        ShapeError: the input has the wrong dimension or number of channels, or a single value per channel in training.
        NonFiniteError: the batch contains NaN or infinity.
        SpectralError: the running covariance overflowed.

    Example:
        >>> layer = DecorrelatedBatchNorm2d(4, affine=False)
        >>> X = torch.randn(2, 4, 5, 5) * torch.tensor([1.0, 2.0, 3.0, 0.0]).view(4, 1, 1)   # a constant channel
        >>> Y = layer(X).transpose(0, 1).flatten(1)
        >>> [round(variance, 2) for variance in (Y @ Y.T / 50).diagonal().tolist()]
        [0.99, 1.0, 1.0, 0.0]

    Reference: Huang et al., Decorrelated Batch Normalization, CVPR 2018; Wang et al., TPAMI 2021, Algorithm 2 (which
    prints M without 1/n) and NeurIPS 2019, Algorithm 1.
    """

    _dims = (4,)


class DecorrelatedBatchNorm3d(_DecorrelatedBatchNorm):
    """:class:`DecorrelatedBatchNorm2d` for features (N, C, D, H, W).

    Example:
        >>> DecorrelatedBatchNorm3d(8, groups=2)(torch.randn(2, 8, 3, 3, 3)).shape
        torch.Size([2, 8, 3, 3, 3])

    Reference: as in :class:`DecorrelatedBatchNorm2d`.
    """

    _dims = (5,)
