"""ZCA whitening of a batch with fewer samples than channels: the covariance is always singular."""

import torch

import spectralgrad as sg

torch.manual_seed(0)
X, D, T = torch.randn(3, 16, 10, dtype=torch.float64)  # 16 channels, 10 samples: the covariance has rank 9


def by_torch(C):
    """Plain autograd."""
    w, V = torch.linalg.eigh(C)
    return (V * w.rsqrt()) @ V.T


def loss(X, inverse_root=sg.matrix_inv_sqrt, eps=0.0):
    """A loss of the whitened batch."""
    white = inverse_root(sg.covariance(X, eps=eps)) @ (X - X.mean(1, keepdim=True))
    return (white * T).sum()


def slope(*options):
    """The derivative of the loss in the direction D, by its gradient."""
    Y = X.clone().requires_grad_()
    return (torch.autograd.grad(loss(Y, *options), Y)[0] * D).sum()


C = sg.covariance(X)
white = sg.matrix_inv_sqrt(C) @ C @ sg.matrix_inv_sqrt(C)
print(
    f"whitened covariance: rank {torch.linalg.matrix_rank(white)}, a projector to {(white @ white - white).norm():.0e}"
)
print(f"finite difference            {(loss(X + 1e-5 * D) - loss(X - 1e-5 * D)) / 2e-5:+.8f}")
print(f"spectralgrad                 {slope():+.8f}")
print(f"torch.linalg.eigh, ε = 0     {slope(by_torch):+.8f}")
print(f"torch.linalg.eigh, ε = 1e-5  {slope(by_torch, 1e-5):+.8f}")
