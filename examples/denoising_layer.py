"""Regression on sixteen noisy channels that carry two signals: PCA denoising against batch normalisation."""

import torch
from torch import nn

import spectralgrad as sg

torch.manual_seed(0)
mix = torch.randn(2, 16)


def data(count):
    """The signals drown in noise that is the same size in every channel."""
    signal = torch.randn(count, 2)
    return signal @ mix + 1.5 * torch.randn(count, 16), signal.prod(1, keepdim=True)


def error(norm):
    """The test error of a net with this layer in front, trained on few samples."""
    torch.manual_seed(1)
    net = nn.Sequential(norm, nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    X, y = data(256)
    for _ in range(200):
        optimiser.zero_grad()
        (net(X) - y).square().mean().backward()
        optimiser.step()
    X, y = data(4096)
    return (net.eval()(X) - y).square().mean().item()


print(f"BatchNorm1d           {error(nn.BatchNorm1d(16)):.3f}")
print(f"PCADenoising1d, all   {error(sg.nn.PCADenoising1d(16, keep=1.0)):.3f}")
print(f"PCADenoising1d, two   {error(sg.nn.PCADenoising1d(16, keep=2)):.3f}")
