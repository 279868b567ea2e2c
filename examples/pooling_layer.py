"""The features of a convolution pooled to their mean, or to the square root of their covariance."""

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.data import load

fashion = load("fashion", train_size=2000)


def train(pool, features):
    """Test accuracy; covariance pooling changes its method during training."""
    torch.manual_seed(0)
    convolutions = nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()
    net = nn.Sequential(*convolutions, pool, nn.Flatten(), nn.Linear(features, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(120):
        if step == 80 and isinstance(pool, sg.nn.CovariancePooling):
            pool.method = "exact"  # hybrid training: Newton–Schulz first, the true root for the last stage
        batch = torch.randint(2000, (100,))
        images, classes = fashion.train.images[batch] / 255, fashion.train.labels[batch]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), classes).backward()
        optimizer.step()
    return (net.eval()(fashion.test.images / 255).argmax(1) == fashion.test.labels).double().mean().item()


pool = sg.nn.CovariancePooling(16, method="newton-schulz")
print(f"mean pooling        accuracy {train(nn.AdaptiveAvgPool2d(1), 16):.3f}")
print(f"covariance pooling  accuracy {train(pool, pool.out_features):.3f}   method at the end: {pool.method.name}")
