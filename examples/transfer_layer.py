"""Colour transfer, and a network that learns the colouring matrix of a style instead of computing it."""

import torch
from torch import nn

import spectralgrad as sg

torch.manual_seed(0)
content = torch.rand(1, 3, 24, 24)
warm = torch.tensor([[0.5, 0.2, 0.0], [0.1, 0.3, 0.1], [0.0, 0.0, 0.2]])
style = torch.einsum("ij,njhw->nihw", warm, torch.rand(1, 3, 24, 24)) + torch.tensor([0.4, 0.2, 0.1]).view(1, 3, 1, 1)


def gap(picture):
    """How far mean and covariance are from those of the style."""
    statistics = [(x.mean((2, 3)), torch.cov(x[0].flatten(1))) for x in (picture, style)]
    return sum((a - b).norm() for a, b in zip(*statistics, strict=True))


layer = sg.nn.WhiteningColoring2d()
print(f"content as it is      {gap(content):.5f}")
print(f"half strength         {gap(sg.nn.functional.wct(content, style, strength=0.5)):.5f}")
print(f"style's own matrix    {gap(layer(content, style)):.5f}")

encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 12))  # a style becomes a matrix and a mean
optimiser = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for _ in range(300):
    code = encoder(style)
    painted = layer(content, matrix=code[:, :9].view(1, 1, 3, 3), mean=code[:, 9:])
    optimiser.zero_grad()
    gap(painted).square().backward()
    optimiser.step()
print(f"learnt matrix         {gap(painted):.5f}")
