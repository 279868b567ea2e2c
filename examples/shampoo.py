"""Shampoo with all its inverse fourth roots in one call, against SGD and Adam on the embedded Fashion-MNIST images."""

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad_lab.data import load  # pip install -e . -e ./lab


class Shampoo(torch.optim.Optimizer):
    """Steps L^(-1/4) G R^(-1/4) with running means L of GGᵀ and R of GᵀG, as long as those of Adam (grafting)."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.99), eps=1e-4, every=5):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "every": every, "steps": 0})

    @torch.no_grad()
    def step(self):
        """One step; all parameters must have a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            rows = [(p, p.grad.view(len(p), -1), self.state[p]) for p in group["params"]]  # a bias is a column
            for _, G, state in rows:
                for name, new in {"squares": G.square(), "L": G @ G.mT, "R": G.mT @ G}.items():
                    state.setdefault(name, torch.zeros_like(new)).lerp_(new, 1 - beta2)
            if group["steps"] % group["every"] == 0:
                means = [state[side] for *_, state in rows for side in "LR"]  # matrices of mixed sizes
                roots = sg.optim.inverse_roots(means, 4, eps=group["eps"], relative=True)
                group["roots"] = list(zip(roots[::2], roots[1::2], strict=True))
            group["steps"] += 1
            for (p, G, state), (left, right) in zip(rows, group["roots"], strict=True):
                adam = G / (state["squares"] / (1 - beta2 ** group["steps"])).sqrt().add(1e-8)
                step = left @ G @ right
                step *= adam.norm() / step.norm().clamp_min(1e-30)
                momentum = state.setdefault("momentum", torch.zeros_like(G)).lerp_(step, 1 - beta1)
                p.sub_(momentum.view_as(p), alpha=group["lr"])


def trained(make, lr):
    """The mean loss of the last 50 of 300 steps, and the accuracy on the test images."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer, losses = make(net.parameters(), lr), []
    for _ in range(300):
        batch = torch.randint(len(fashion.train.images), (100,))
        losses.append(nn.functional.cross_entropy(net(fashion.train.images[batch] / 255), fashion.train.labels[batch]))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    right = net(fashion.test.images / 255).argmax(1) == fashion.test.labels
    return torch.stack(losses[-50:]).mean().item(), right.double().mean().item()


fashion = load("fashion")
for name, make, rates in (
    ("SGD", lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), (0.03, 0.1, 0.3)),
    ("Adam", torch.optim.Adam, (0.01, 0.03, 0.1)),
    ("Shampoo", Shampoo, (0.01, 0.03, 0.1)),
):
    loss, accuracy, lr = min((*trained(make, lr), lr) for lr in rates)
    print(f"{name:8} learning rate {lr:<6} training loss {loss:.3f}   test accuracy {accuracy:.3f}")
