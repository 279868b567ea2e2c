"""The settings of a network. Any object with these attributes can be used."""

from __future__ import annotations

from typing import Protocol

from spectralgrad.rules import Method

LAYERS = ("batchnorm", "whitening", "denoising")
WEIGHTS = ("plain", "sn", "ol", "ow")
CONSTRAINED_WEIGHTS = ("sn", "ow")  # these change the layer itself; "ol" only adds a term to the loss
SETTINGS = (
    "width", "layer", "group_size", "method", "eps", "statistics", "whitening", "scale_init", "spectral_precision",
    "keep", "pooling", "power", "normalize", "reduce_to", "weights", "form",
)  # fmt: skip


class NetworkConfig(Protocol):
    """The settings of a network.

    Attributes:
        network: a name in ``NETWORKS``, or ``"module:callable"``.
        width: channels of the first stage of ``small`` and ``resnet8``; None for 16. Other networks ignore it.
        layer: after the first convolution: ``"batchnorm"``, ``"whitening"`` or ``"denoising"``.
        group_size: channels whitened together; None for all.
        method: of the spectral layers; None for their default.
        eps: of the spectral layers; None for their default (whitening 1e-2, denoising 1e-5, pooling 0).
        statistics: the matrix that is averaged, ``"covariance"``, ``"whitening"`` (whitening only) or ``"projector"``
            (denoising only).
        whitening: ``"zca"``, ``"pca"`` or ``"cholesky"``.
        scale_init: initial γ of the spectral layer, ``"ones"`` or ``"uniform"``.
        spectral_precision: of the spectral layers, ``"float32"`` or ``"float64"``.
        keep: number of eigenvectors, or share of variance, that denoising keeps.
        pooling: before the classifier: ``"average"``, or a name of
            :func:`spectralgrad_lab.networks.second_order.second_order_pooling`.
        power: exponent of covariance pooling.
        normalize: whether covariance pooling divides by the Frobenius norm.
        reduce_to: largest number of channels for second-order pooling; more are reduced to it. None for no reduction.
        weights: of the layer before the spectral one: ``"plain"``, ``"sn"`` (spectral norm 1), ``"ol"`` (plain; the
            trainer adds a loss), ``"ow"`` (an orthogonal convolution).
        form: of the methods, ``"sound"`` or ``"published"``, see
            :func:`spectralgrad_lab.networks.published_form.in_form`.
    """

    @property
    def network(self) -> str: ...
    @property
    def width(self) -> int | None: ...
    @property
    def layer(self) -> str: ...
    @property
    def group_size(self) -> int | None: ...
    @property
    def method(self) -> str | Method | None: ...
    @property
    def eps(self) -> float | None: ...
    @property
    def statistics(self) -> str: ...
    @property
    def whitening(self) -> str: ...
    @property
    def scale_init(self) -> str: ...
    @property
    def spectral_precision(self) -> str: ...
    @property
    def keep(self) -> int | float: ...
    @property
    def pooling(self) -> str: ...
    @property
    def power(self) -> float: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def reduce_to(self) -> int | None: ...
    @property
    def weights(self) -> str: ...
    @property
    def form(self) -> str: ...
