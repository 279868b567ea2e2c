"""References for layers that share no code with them. The layers are in spectralgrad/diagnostics/every_layer.py."""

from __future__ import annotations

import torch
from torch import nn


def conv1(seed: int = 0, samples: int = 8, size: int = 12) -> torch.Tensor:
    """Features of a 3×3 convolution of pictures into 64 channels: rank 27, and ties in float32."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.rand(samples, 3, size, size, generator=generator)
    weight = torch.randn(64, 3, 3, 3, generator=generator) / 27**0.5
    return nn.functional.conv2d(pictures, weight)


def inverse_root(M: torch.Tensor) -> torch.Tensor:
    """M^(-1/2) by the iteration of Denman and Beavers, which autograd differentiates; no eigenvectors anywhere."""
    Y, Z = M, torch.eye(M.shape[-1], dtype=M.dtype).expand(M.shape)
    for _ in range(40):
        Y, Z = (Y + torch.linalg.inv(Z)) / 2, (Z + torch.linalg.inv(Y)) / 2
    return Z


def whitened(X: torch.Tensor, eps: float = 1e-2, groups: int = 1) -> torch.Tensor:
    """ZCA whitening of (N, C, *) by the textbook."""
    rows = X.transpose(0, 1).flatten(1)
    parts = []
    for part in rows.chunk(groups):
        centred = part - part.mean(1, keepdim=True)
        M = centred @ centred.T / part.shape[1] + eps * torch.eye(len(part), dtype=X.dtype)
        parts.append(inverse_root(M) @ centred)
    return torch.cat(parts).view(X.shape[1], X.shape[0], *X.shape[2:]).transpose(0, 1)


def channel_covariance(Y: torch.Tensor) -> torch.Tensor:
    """The biased covariance (C, C) of features (N, C, *), in float64."""
    return torch.cov(Y.detach().double().transpose(0, 1).flatten(1), correction=0)
