"""Train a small net with whitening after its first convolution, then fold the layer into the convolution."""

import torch
from torch import nn

import spectralgrad as sg

torch.manual_seed(0)
angles = torch.arange(4).repeat(32)  # four kinds of stripes, in colours that are strongly correlated
row, column = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
direction = angles * torch.pi / 4
phase = direction.cos().view(-1, 1, 1) * row + direction.sin().view(-1, 1, 1) * column
stripes = torch.sin(1.5 * phase + 6.3 * torch.rand(128, 1, 1)) + 0.5 * torch.randn(128, 12, 12)
pictures = stripes.unsqueeze(1) + 0.1 * torch.randn(128, 3, 12, 12)

net = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(16, 4),
)  # fmt: skip
sg.nn.convert_decorrelated_batchnorm(net)  # rank 27 of 32 at most: plain autograd through eigh would give NaN
optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(41):
    loss = nn.functional.cross_entropy(net(pictures), angles)
    if step % 20 == 0:
        print(f"step {step:2d}   loss {loss.item():.4f}")
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

before = net.eval()(pictures)
sg.nn.fuse_whitening(net)
right = (net(pictures).argmax(1) == angles).double().mean()
print(f"after fusing: {type(net[1]).__name__}, largest change {(net(pictures) - before).abs().max().item():.1e}")
print(f"accuracy {right:.3f}")
