"""Textures that differ in their correlations only: mean pooling sees nothing, covariance pooling all of it."""

import torch
from torch import nn

import spectralgrad as sg

torch.manual_seed(0)
classes = torch.arange(4).repeat(40)
mixes = torch.linalg.qr(torch.randn(4, 8, 8)).Q * torch.linspace(0.5, 1.5, 8) @ torch.linalg.qr(torch.randn(8, 8)).Q
textures = torch.einsum("nij,njhw->nihw", mixes[classes], torch.randn(160, 8, 5, 5))


def train(pool, features):
    """Accuracy on the second half after training on the first; covariance pooling changes its method on the way."""
    torch.manual_seed(1)
    net = nn.Sequential(pool, nn.Flatten(), nn.Linear(features, 4))
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-2)
    for step in range(120):
        if step == 80 and isinstance(pool, sg.nn.CovariancePooling):
            pool.method = "exact"  # hybrid training: Newton–Schulz first, the true root for the last stage
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(textures[:80]), classes[:80]).backward()
        optimiser.step()
    return (net(textures[80:]).argmax(1) == classes[80:]).double().mean().item()


pool = sg.nn.CovariancePooling(8, method="newton-schulz")
print(f"mean pooling        accuracy {train(nn.AdaptiveAvgPool2d(1), 8):.3f}")
print(f"covariance pooling  accuracy {train(pool, pool.out_features):.3f}   method at the end: {pool.method.name}")
