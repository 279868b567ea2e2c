"""The networks of Figures 6 and 7, read off those that the presets train."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from spectralgrad.nn import CovariancePooling, DecorrelatedBatchNorm2d

from ...networks.registry import build
from ...training.config.presets import preset
from ..registry import computes
from ..value_conditions import Value


def _network(name: str, size: int, classes: int) -> dict[str, nn.Module]:
    with torch.device("meta"):
        return dict(build(preset(name), 3, size, classes).named_modules())


@computes("eccv/O31")
def decorrelated() -> Mapping[str, Value]:
    """The first convolution of the ResNet for small images, and whether the layer after it is the one that whitens."""
    parts = _network("eccv-cifar10", 32, 10)
    first = parts["conv1"]
    assert isinstance(first, nn.Conv2d)
    whitening = [name for name, part in parts.items() if isinstance(part, DecorrelatedBatchNorm2d)]
    return {
        "kernel": first.kernel_size[0],
        "stride": first.stride[0],
        "whitening_follows": whitening == ["bn1"] and isinstance(parts["maxpool"], nn.Identity),
    }


@computes("eccv/O32")
def pooled() -> Mapping[str, Value]:
    """What covariance pooling passes to the classifier of the ResNet for large images."""
    parts = _network("eccv-resnet18", 224, 1000)
    pooling, classifier = parts["head.pooling"], parts["fc"]
    assert isinstance(classifier, nn.Linear)
    channels = pooling.in_channels if isinstance(pooling, CovariancePooling) else 0
    return {
        "pooling_is_last": channels > 0 and not any(isinstance(p, nn.AdaptiveAvgPool2d) for p in parts.values()),
        "channels": channels,
        "features": classifier.in_features,
        "triangle": classifier.in_features / max(1, channels * (channels + 1) / 2),
    }
