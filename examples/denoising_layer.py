"""Few and very noisy training images: PCA denoising before a network, compared with batch normalisation."""

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.data import load

fashion = load("fashion", train_size=500)


def noisy(split):
    """Images of 14×14 with noise as strong as the signal, as rows of 196 numbers."""
    small = nn.functional.avg_pool2d(split.images / 255, 2).flatten(1)
    return small + 0.3 * torch.randn(small.shape, generator=torch.Generator().manual_seed(0)), split.labels


def accuracy(norm):
    """Test accuracy after training."""
    torch.manual_seed(1)
    net = nn.Sequential(norm, nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    X, y = noisy(fashion.train)
    for _ in range(80):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        optimizer.step()
    X, y = noisy(fashion.test)
    return (net.eval()(X).argmax(1) == y).double().mean().item()


print(f"BatchNorm1d               accuracy {accuracy(nn.BatchNorm1d(196)):.3f}")
print(f"PCADenoising1d, all       accuracy {accuracy(sg.nn.PCADenoising1d(196, keep=1.0)):.3f}")
print(f"PCADenoising1d, 20 of 196 accuracy {accuracy(sg.nn.PCADenoising1d(196, keep=20)):.3f}")
