"""A small whitening layer and networks around it, for the tests of optimisers, training protocols and monitors."""

from __future__ import annotations

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.nn import SpectralModule


class Whitening(SpectralModule):
    """ZCA whitening over the batch (B, C, ...), with batch statistics always."""

    def __init__(self, method="exact", eps=1e-3):
        super().__init__(method)
        self.eps = eps

    def forward(self, x):
        features = x.transpose(0, 1).flatten(1)
        centred = features - features.mean(1, keepdim=True)
        C = self.watched(sg.covariance(features, eps=self.eps))
        white = sg.matrix_inv_sqrt(C, method=self.method) @ centred
        return white.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


class Projecting(SpectralModule):
    """A layer that Newton–Schulz does not serve."""

    operation = "eigh"

    def __init__(self):
        super().__init__("svd-pade")

    def forward(self, x):
        return x


def linear_net(seed=0, features=6, width=5, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(features, width, bias=False), Whitening(**options), nn.Tanh(), nn.Linear(width, 3))
    return net.to(dtype)


def conv_net(seed=0, dtype=torch.float32, channels=6):
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(2, channels, 3, bias=False),
        Whitening(),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * channels, 3),
    )
    return net.to(dtype)


def batch(seed=0, shape=(32, 6), dtype=torch.float64, classes=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(classes, (shape[0],), generator=generator)


def backward(net, seed=0, **options):
    x, y = batch(seed, **options)
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss.detach()
