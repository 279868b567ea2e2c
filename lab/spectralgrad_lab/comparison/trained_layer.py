"""The spectral layer of a trained network, with the matrices of its next training steps."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from spectralgrad import covariance
from spectralgrad.errors import SpectralError
from spectralgrad.nn import CovariancePooling, SpectralModule, spectral_layers
from spectralgrad.nn.functional import covariance_pooling

from ..data import load_for
from ..training.config.run_config import Config
from ..training.loop.components import build
from ..training.loop.steps import batches
from ..training.processes.process_group import Group
from ..training.storage.checkpoints import load_weights

_BATCHES = 16
_SAMPLES = 64  # for covariance pooling, which has one matrix per sample


@dataclass(frozen=True)
class TrainedLayer:
    """The matrices that a layer decomposes in its next training steps.

    Attributes:
        matrices: (n, d, d) in float32, ε included.
        features: (n, d, positions) of covariance pooling; None for other layers.
        eps: ε of covariance pooling.

    Example:
        >>> layer = TrainedLayer.pooling(torch.randn(3, 4, 9))
        >>> layer.pooled, layer.matrices.shape, layer.gradient("exact", torch.ones(3, 4, 4)).shape
        (True, torch.Size([3, 4, 4]), torch.Size([3, 4, 9]))
    """

    matrices: Tensor
    features: Tensor | None = None
    eps: float = 0.0

    @classmethod
    def pooling(cls, features: Tensor, eps: float = 0.0) -> TrainedLayer:
        """A covariance pooling layer with these features."""
        return cls(covariance(features, eps=eps), features, eps)

    @property
    def pooled(self) -> bool:
        return self.features is not None

    def gradient(self, method: str, G: Tensor) -> Tensor:
        """The gradient of ⟨G, √C⟩ with respect to the features, in the dtype of ``G``; NaN if the method fails."""
        assert self.features is not None
        X = self.features.to(G.dtype).requires_grad_()
        try:
            root = covariance_pooling(X, eps=self.eps, method=method, output="full")
            return torch.autograd.grad((root * G).sum(), X)[0]
        except SpectralError:
            return torch.full_like(X, math.nan)


def trained_layer(folder: Path, config: Config) -> TrainedLayer | None:
    """Load the first spectral layer of a trained network and run its next training steps up to that layer.

    Args:
        folder: of the run.
        config: of the run.

    Returns:
        None if the folder has no checkpoint, the images are missing, the network has no spectral layer, the layer pools
        with a function other than the square root of the covariance, a matrix is not finite, or the network or the
        dataset is a ``module:callable`` that only the results file names.

    Example:
        >>> trained_layer(Path("nowhere"), Config()) is None
        True
    """
    config = config.replaced(init=None)  # the weights are replaced anyway; the results may name any file there
    try:
        weights, data = load_weights(folder), load_for(config)
        train, _ = batches(config, data, Group())
        net = build(config, train.shape, len(data.classes), Group()).net.train()
        net.load_state_dict(weights)
    except (SpectralError, OSError, RuntimeError):  # missing images, another network, or a name that only a file gives
        return None
    layer = next(iter(spectral_layers(net).values()), None)
    if layer is None:
        return None
    image_batches = [images for images, _ in islice(train.epoch(config.epochs), _BATCHES)]
    if isinstance(layer, CovariancePooling):
        if layer.operation != "sqrt" or not layer.center:
            return None
        features = torch.cat(_seen_inputs(net, layer, image_batches))[:_SAMPLES]
        found = TrainedLayer.pooling(features.flatten(2), layer.eps)
    else:
        found = TrainedLayer(torch.cat(_seen_matrices(net, layer, image_batches)).float())
    return found if bool(torch.isfinite(found.matrices).all()) else None


class _SeenError(Exception):
    """Raised to skip the rest of the network once the layer's input is known."""


def _seen_matrices(net: nn.Module, layer: SpectralModule, image_batches: list[Tensor]) -> list[Tensor]:
    seen: list[Tensor] = []
    layer.register_spectral_hook(lambda _, matrices: _keep(seen, matrices.flatten(0, -3)))
    _run(net, image_batches)
    return seen


def _seen_inputs(net: nn.Module, layer: nn.Module, image_batches: list[Tensor]) -> list[Tensor]:
    seen: list[Tensor] = []
    layer.register_forward_pre_hook(lambda _, inputs: _keep(seen, inputs[0].detach()))
    _run(net, image_batches)
    return seen


def _keep(seen: list[Tensor], value: Tensor) -> None:
    seen.append(value)
    raise _SeenError


def _run(net: nn.Module, image_batches: list[Tensor]) -> None:
    for images in image_batches:
        with torch.no_grad(), suppress(_SeenError):
            net(images)
