"""The spectral layer of a trained network, and what it meets when training goes on."""

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
from spectralgrad.nn import CovariancePooling, SpectralModule
from spectralgrad.nn.functional import covariance_pooling

from ..data import load_for
from ..import_by_name import imported
from ..training.checkpoints import load_weights
from ..training.components import build
from ..training.config import Config
from ..training.process_group import Group
from ..training.steps import batches

_BATCHES = 16
_SAMPLES = 64  # of a pooling layer, which has a matrix a sample


@dataclass(frozen=True)
class TrainedLayer:
    """What a layer decomposes in its next training steps.

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
        """The layer that pools these features."""
        return cls(covariance(features, eps=eps), features, eps)

    @property
    def pooled(self) -> bool:
        return self.features is not None

    def gradient(self, method: str, G: Tensor) -> Tensor:
        """Of ⟨G, √C⟩ in the features, in the type of ``G``; NaN where the method gives up."""
        assert self.features is not None
        X = self.features.to(G.dtype).requires_grad_()
        try:
            root = covariance_pooling(X, eps=self.eps, method=method, output="full")
            return torch.autograd.grad((root * G).sum(), X)[0]
        except SpectralError:
            return torch.full_like(X, math.nan)


def trained_layer(folder: Path, config: Config) -> TrainedLayer | None:
    """The first spectral layer of a trained network, with what it meets in its next training steps.

    Args:
        folder: of the run.
        config: of the run.

    Returns:
        None if the folder has no checkpoint, the pictures are away, the network has no such layer, what the layer meets
        is not finite, or the network or the pictures come from a module that has not been imported.

    Example:
        >>> trained_layer(Path("nowhere"), Config()) is None
        True
    """
    if not imported(config.network) or not imported(config.dataset):
        return None  # results name modules; to import them is for the user to say
    try:
        weights, data = load_weights(folder), load_for(config)
        train, _ = batches(config, data, Group())
        net = build(config, train.shape, len(data.classes), Group()).net.train()
        net.load_state_dict(weights)
    except (SpectralError, OSError, RuntimeError):  # of another version of the network, or without its pictures
        return None
    layer = next((module for module in net.modules() if isinstance(module, SpectralModule)), None)
    if layer is None:
        return None
    pictures = [images for images, _ in islice(train.epoch(config.epochs), _BATCHES)]
    if isinstance(layer, CovariancePooling):
        features = torch.cat(_seen_inputs(net, layer, pictures))[:_SAMPLES]
        found = TrainedLayer.pooling(features.flatten(2), layer.eps)
    else:
        found = TrainedLayer(torch.cat(_seen_matrices(net, layer, pictures)).float())
    return found if bool(torch.isfinite(found.matrices).all()) else None


class _SeenError(Exception):
    """The layer has shown what it has; the rest of the network need not be run."""


def _seen_matrices(net: nn.Module, layer: SpectralModule, pictures: list[Tensor]) -> list[Tensor]:
    seen: list[Tensor] = []
    layer.register_spectral_hook(lambda _, matrices: _keep(seen, matrices.flatten(0, -3)))
    _run(net, pictures)
    return seen


def _seen_inputs(net: nn.Module, layer: nn.Module, pictures: list[Tensor]) -> list[Tensor]:
    seen: list[Tensor] = []
    layer.register_forward_pre_hook(lambda _, inputs: _keep(seen, inputs[0].detach()))
    _run(net, pictures)
    return seen


def _keep(seen: list[Tensor], value: Tensor) -> None:
    seen.append(value)
    raise _SeenError


def _run(net: nn.Module, pictures: list[Tensor]) -> None:
    for images in pictures:
        with torch.no_grad(), suppress(_SeenError):
            net(images)
