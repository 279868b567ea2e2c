"""The networks by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from spectralgrad.nn import spectral_layers

from .alexnet import AlexNet
from .blocks import BasicBlock, Bottleneck
from .config import CONSTRAINED_WEIGHTS, LAYERS, WEIGHTS, NetworkConfig
from .errors import NetworkError, check_choice
from .layer_search import Network
from .published_form import FORMS, in_form
from .resnet import ResNet
from .second_order import POOLINGS
from .small import SmallNet
from .user_network import accepts, own_network
from .weight_constraints import constrain_weights

_WIDTHS = (64, 128, 256, 512)
_WIDTH = 16  # of the small networks

NETWORKS: dict[str, str] = {
    "small": "three convolutions, for a CPU; width 16",
    "resnet8": "three residual blocks, for a CPU; width 16, twice and four times that",
    "resnet18-cifar": "ResNet-18 for 32 × 32: 3 × 3 first convolution, no max-pooling (TPAMI, NeurIPS)",
    "resnet50-cifar": "ResNet-50 for 32 × 32 (TPAMI, ECCV)",
    "alexnet": "AlexNet with batch normalisation, for 224 × 224 (TPAMI, ICCV)",
    "resnet18": "ResNet-18 for 224 × 224 (ECCV)",
    "resnet50": "ResNet-50 for 224 × 224 (ICCV)",
    "resnet101": "ResNet-101 for 224 × 224 (ICCV)",
}


def _resnet8(config: NetworkConfig, channels: int, _: int, classes: int) -> ResNet:
    """The first convolution has 64 filters as in the papers, so all group sizes fit; the first stage has stride 2."""
    width = _width(config)
    widths = (width, 2 * width, 4 * width)
    return ResNet(config, channels, classes, BasicBlock, (1, 1, 1), widths, large=False, first_stride=2)


def _resnet(
    block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, ...], large: bool
) -> Callable[[NetworkConfig, int, int, int], ResNet]:
    def make(config: NetworkConfig, channels: int, _: int, classes: int) -> ResNet:
        return ResNet(config, channels, classes, block, depths, _WIDTHS, large=large)

    return make


def _small(config: NetworkConfig, channels: int, _: int, classes: int) -> SmallNet:
    return SmallNet(config, channels, classes, _width(config))


def _width(config: NetworkConfig) -> int:
    width = _WIDTH if config.width is None else config.width
    if width < 1:
        raise NetworkError(f"expected a width of at least 1, got {width}")
    return width


_MAKERS: dict[str, Callable[[NetworkConfig, int, int, int], Network]] = {
    "small": _small,
    "resnet8": _resnet8,
    "resnet18-cifar": _resnet(BasicBlock, (2, 2, 2, 2), large=False),
    "resnet50-cifar": _resnet(Bottleneck, (3, 4, 6, 3), large=False),
    "alexnet": AlexNet,
    "resnet18": _resnet(BasicBlock, (2, 2, 2, 2), large=True),
    "resnet50": _resnet(Bottleneck, (3, 4, 6, 3), large=True),
    "resnet101": _resnet(Bottleneck, (3, 4, 23, 3), large=True),
}


def build(config: NetworkConfig, channels: int, image_size: int, classes: int) -> nn.Module:
    """Build a network; its initial weights come from torch's global generator.

    Args:
        config: see :class:`NetworkConfig`; any object with its attributes.
        channels: of the images.
        image_size: side length of the images.
        classes: number of classes.

    Returns:
        a module that maps images (B, channels, H, W) to logits (B, classes). Its spectral layers have names, which
        errors and monitors show.

    Raises:
        NetworkError: the name is unknown, or settings contradict each other.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(network="small", width=8, layer="whitening", group_size=16, method="svd-taylor",
        ...     eps=None, statistics="covariance", whitening="zca", scale_init="ones", spectral_precision="float32",
        ...     keep=0.99, pooling="average", power=0.5, normalize=False, reduce_to=256, weights="plain", form="sound")
        >>> net = build(config, channels=1, image_size=28, classes=10)
        >>> net(torch.randn(4, 1, 28, 28)).shape
        torch.Size([4, 10])
        >>> net.bn1.name, net.bn1.groups
        ('bn1', 4)
    """
    check_choice(config.layer, LAYERS, "layer")
    check_choice(config.pooling, POOLINGS, "pooling")
    check_choice(config.weights, WEIGHTS, "weights")
    name = config.network
    if ":" in name:
        net = own_network(name, classes, channels, image_size, config)
    elif name in _MAKERS:
        net = _MAKERS[name](config, channels, image_size, classes)
    else:
        raise NetworkError(f"expected a network of {', '.join(NETWORKS)}, or 'module:callable', got {name!r}")
    check_choice(config.form, FORMS, "form")
    own_methods = config.method is None or (":" in name and not accepts(name, "method"))
    for path, layer in spectral_layers(net).items():
        layer.name = path
        if config.form == "published" and not own_methods:
            layer.method = in_form(config.form, config.method, layer)  # type: ignore[arg-type,assignment]
    if ":" in name and config.weights in CONSTRAINED_WEIGHTS:  # the networks of this package have done it themselves
        constrain_weights(net, config.weights, torch.zeros(2, channels, image_size, image_size))
    return net
