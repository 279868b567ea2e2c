"""Treatments of the layer before a spectral layer that act during training (ECCV 2022): OL, NOG and OLR."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spectralgrad.nn import orthogonality_loss
from spectralgrad.optim import NearestOrthogonalGradient, OptimalLearningRate

from ...networks import layers_before_spectral
from ..config.run_config import Config

Penalty = Callable[[], Tensor]


def orthogonality_penalty(net: nn.Module, config: Config, example: Tensor) -> Penalty | None:
    """The loss that pulls the weights before the spectral layers towards orthogonal ones (``weights="ol"``).

    The other choices of ``config.weights`` change the network itself: see
    :mod:`spectralgrad_lab.networks.weight_constraints`.

    Args:
        net: the network.
        config: of the run.
        example: a batch (B, C, H, W) to find the layers with.

    Returns:
        a function that returns the term to add to the loss, or None.
    """
    if config.weights != "ol":
        return None
    layers = list(layers_before_spectral(net, example).values())
    return lambda: config.ol_weight * distance_from_orthogonal(layers)


def distance_from_orthogonal(layers: Iterable[nn.Module]) -> Tensor:
    """Eq. 12 of the paper summed over the layers, the term of OL."""
    return torch.stack([orthogonality_loss(layer.weight, side="rows") for layer in layers]).sum()  # type: ignore[arg-type]


def treat_gradients(net: nn.Module, config: Config, example: Tensor, optimizer: Optimizer) -> None:
    """Attach NOG and OLR to the optimizer if the configuration asks for them."""
    if not config.nog and not config.olr:
        return
    layers = list(layers_before_spectral(net, example).values())
    if config.nog:
        NearestOrthogonalGradient(optimizer, layers)
    if config.olr:
        OptimalLearningRate(optimizer, layers)
