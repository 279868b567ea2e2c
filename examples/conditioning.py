"""Treat the layer before a whitening layer in three lines, and record the condition number of its covariance."""

import torch
from torch import nn

import spectralgrad as sg


def run(treatments):
    """Train on a task whose inputs are badly scaled; return the condition number every 50 steps."""
    torch.manual_seed(0)
    inputs = torch.randn(512, 16) * torch.logspace(0, -2, 16)
    labels = (inputs[:, :4].sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(16, 16), sg.nn.DecorrelatedBatchNorm1d(16, eps=1e-6), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    layers = sg.optim.pre_spectral_layers(model, inputs)
    for treatment in treatments:
        treatment(optimizer, layers)
    with sg.diagnostics.Monitor(model, every=50) as monitor:
        for _ in range(151):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return [f"{r.condition:.1e}" for r in monitor.records]


print("plain", *run([]))
print("NOG  ", *run([sg.optim.NearestOrthogonalGradient]))
print("OLR  ", *run([sg.optim.OptimalLearningRate]))
