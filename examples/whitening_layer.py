"""Train a small network with whitening after its first convolution, then fold the layer into the convolution."""

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.data import load

torch.manual_seed(0)
fashion = load("fashion", train_size=2000)
images, classes = fashion.train.images / 255, fashion.train.labels

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 36, 10),
)  # fmt: skip
sg.nn.convert_decorrelated_batchnorm(net)  # rank 9 of 16: plain autograd through eigh would give NaN
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(121):
    batch = torch.randint(len(images), (100,))
    loss = nn.functional.cross_entropy(net(images[batch]), classes[batch])
    if step % 40 == 0:
        print(f"step {step:3d}   loss {loss.item():.4f}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

test = fashion.test.images / 255
before = net.eval()(test)
sg.nn.fuse_whitening(net)
right = (net(test).argmax(1) == fashion.test.labels).double().mean()
print(f"after fusing: {type(net[1]).__name__}, largest change {(net(test) - before).abs().max().item():.1e}")
print(f"test accuracy {right:.3f}")
