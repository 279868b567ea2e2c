"""Shampoo with all its inverse fourth roots in one call, against SGD and Adam on the embedded Fashion-MNIST images.

Shampoo multiplies the gradient G of a weight matrix by L^(-1/4) from the left and by R^(-1/4) from the right, where L
and R are running means of GGᵀ and GᵀG. The length of a step is that of Adam (grafting). Each optimiser runs with
several learning rates; the best is printed. The images come with the lab: ``pip install -e . -e ./lab``.
"""

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.data import load


class Shampoo(torch.optim.Optimizer):
    """Shampoo for weights and biases, with preconditioners recomputed every few steps."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.99), eps=1e-4, every=5):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "every": every})

    @torch.no_grad()
    def step(self):
        """One step; all parameters must have a gradient."""
        for group in self.param_groups:
            states = [self.observed(p, group["betas"][1]) for p in group["params"]]
            if states[0]["steps"] % group["every"] == 1:
                means = [mean for state in states for mean in state["means"]]  # of mixed sizes
                roots = iter(sg.optim.inverse_roots(means, 4, eps=group["eps"], relative=True))
                for state in states:
                    state["left"], state["right"] = next(roots), next(roots)
            for p, state in zip(group["params"], states, strict=True):
                step = (state["left"] @ p.grad.view(len(p), -1) @ state["right"]).view_as(p)
                adam = p.grad / (state["squares"] / (1 - group["betas"][1] ** state["steps"])).sqrt().add(1e-8)
                step *= adam.norm() / step.norm().clamp_min(1e-30)
                p.sub_(state["momentum"].lerp_(step, 1 - group["betas"][0]), alpha=group["lr"])

    def observed(self, p, beta):
        """The state of a parameter after its gradient has been added to the running means."""
        state, G = self.state[p], p.grad.view(len(p), -1)
        if not state:
            state.update(steps=0, momentum=torch.zeros_like(p), squares=torch.zeros_like(p))
            state["means"] = [torch.zeros(n, n) for n in G.shape]
        state["steps"] += 1
        for mean, new in ((state["squares"], p.grad.square()), *zip(state["means"], (G @ G.mT, G.mT @ G), strict=True)):
            mean.lerp_(new, 1 - beta)
        return state


def trained(make):
    """The mean loss of the last 50 of 300 steps, and the accuracy on the test images."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer, losses = make(net.parameters()), []
    for _ in range(300):
        batch = torch.randint(len(fashion.train.images), (100,))
        loss = nn.functional.cross_entropy(net(fashion.train.images[batch] / 255), fashion.train.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    right = (net(fashion.test.images / 255).argmax(1) == fashion.test.labels).double().mean()
    return sum(losses[-50:]) / 50, right.item()


fashion = load("fashion")
for name, make, rates in (
    ("SGD", lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9), (0.03, 0.1, 0.3)),
    ("Adam", lambda p, lr: torch.optim.Adam(p, lr=lr), (0.01, 0.03, 0.1)),
    ("Shampoo", lambda p, lr: Shampoo(p, lr=lr), (0.01, 0.03, 0.1)),
):
    loss, accuracy, lr = min((*trained(lambda p, lr=lr, make=make: make(p, lr)), lr) for lr in rates)
    print(f"{name:8} learning rate {lr:<6} training loss {loss:.3f}   test accuracy {accuracy:.3f}")
