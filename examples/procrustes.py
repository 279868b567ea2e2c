"""Align two point clouds, learning which points to trust: the gradient goes through the rotation."""

import torch

import spectralgrad as sg
from spectralgrad.testing import random_orthogonal

torch.manual_seed(0)
turn = random_orthogonal(3, seed=1)
P = torch.randn(60, 3, dtype=torch.float64)
Q = P @ turn.T + torch.tensor([1.0, 2.0, 3.0]) + 0.01 * torch.randn_like(P)
Q[:15] = 3 * torch.randn(15, 3, dtype=torch.float64)  # a quarter are false matches

logits = torch.zeros(60, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([logits], lr=0.3)


def angle(R):
    """Degrees between R and the true rotation."""
    return torch.rad2deg(2 * torch.asin(((R - turn).norm() / 8**0.5).clamp(max=1))).item()


for step in range(76):
    trust = torch.softmax(logits, 0)
    R, t, *_ = sg.procrustes(P, Q, trust)
    miss = (P @ R.T + t - Q).square().sum(1)
    if step % 25 == 0:
        print(f"step {step:3d}   off by {angle(R):6.3f}°   trust in false matches {trust[:15].sum().item():.3f}")
    optimizer.zero_grad()
    (miss / (miss + 0.1)).mean().backward()  # a robust loss
    optimizer.step()

M = turn.clone().requires_grad_()  # at a rotation all singular values are equal
U, _, Vh = torch.linalg.svd(M)
by_torch = torch.autograd.grad((U @ Vh)[0, 1], M)[0]
by_polar = torch.autograd.grad(sg.polar(M, special=True)[0, 1], M)[0]
print(f"gradient of one entry at a rotation: torch.linalg.svd {by_torch[0, 1]:.4f}, polar {by_polar[0, 1]:.4f}")
