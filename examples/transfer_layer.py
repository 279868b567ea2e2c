"""Transfer the texture of one image to another, and train a network to predict the colouring matrix of a style."""

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.data import load

torch.manual_seed(0)
fashion = load("fashion", train_size=1000).train


def patches(label):
    """Eight images of a class, the 3×3 neighbourhood of every pixel as nine channels."""
    images = fashion.images[fashion.labels == label][:8] / 255
    return nn.functional.unfold(images, 3, padding=1).unflatten(2, (28, 28))


content, style = patches(0), patches(8)  # shirts, and bags for their texture


def gap(maps):
    """How far the second moments of the neighbourhoods are from those of the style."""
    return torch.dist(*(x.flatten(2) @ x.flatten(2).mT / 784 for x in (maps, style)))


layer = sg.nn.WhiteningColoring2d()
print(f"content as it is      {gap(content):.5f}")
print(f"half strength         {gap(sg.nn.functional.wct(content, style, strength=0.5)):.5f}")
print(f"style's own matrix    {gap(layer(content, style)):.5f}")
encoder = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(9 * 49, 90))  # a style becomes a matrix and a mean
optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
for _ in range(300):
    code = encoder(style)
    painted = layer(content, matrix=code[:, :81].view(8, 1, 9, 9), mean=code[:, 81:])
    optimizer.zero_grad()
    gap(painted).square().backward()
    optimizer.step()
print(f"learnt matrix         {gap(painted):.5f}")
