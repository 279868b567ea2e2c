"""The time that NOG, OLR and the monitor add to a training step of a CIFAR ResNet-18."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.diagnostics import Monitor
from spectralgrad.diagnostics.table import render
from spectralgrad.io.files import path_argument, require_writable, write_json
from spectralgrad.optim import NearestOrthogonalGradient, OptimalLearningRate

from ...networks import pre_spectral
from ..timing import race
from .networks import resnet18

GOALS = {"NOG": 0.02, "OLR": 0.01, "OLR exact": 0.01, "Monitor": 0.01}


class Training:
    """A network, a batch and an optimizer, with the parts of a training step to time."""

    def __init__(self, batch: int) -> None:
        torch.manual_seed(0)
        self.net = resnet18("whitening")
        self.before = pre_spectral(self.net)
        self.whitening = cast(sg.nn.DecorrelatedBatchNorm2d, self.net.bn1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        self.images, self.labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def step(self) -> None:
        """One whole training step."""
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.net(self.images), self.labels).backward()
        self.optimizer.step()

    def update(self) -> None:
        """Only the optimizer step, with the current gradients."""
        self.optimizer.step()

    def watch(self) -> None:
        """Only the hooks of the spectral layer, with a covariance of the actual size."""
        C = self._covariance.detach().requires_grad_()
        self.whitening.watched(C).backward(self._covariance)

    def prepare(self) -> None:
        """Compute the gradients and the covariance that the parts need."""
        self.step()
        features = self.before(self.images).detach().transpose(0, 1).flatten(1)
        self._covariance = sg.covariance(features.double(), eps=self.whitening.eps)


def attach(kind: str, training: Training) -> Callable[[], None]:
    """Attach one of the tools; returns the function that removes it."""
    if kind == "NOG":
        return NearestOrthogonalGradient(training.optimizer, training.before).remove
    if kind.startswith("OLR"):
        objective: Literal["paper", "exact"] = "exact" if kind.endswith("exact") else "paper"
        return OptimalLearningRate(training.optimizer, training.before, objective=objective).remove
    return Monitor(training.net, every=1).close


def whole_steps(training: Training, rounds: int) -> dict[str, list[float]]:
    """Seconds of whole steps, alternating between plain steps and each of the tools."""
    seconds: dict[str, list[float]] = {kind: [] for kind in ("plain", *GOALS)}
    for _ in range(rounds):
        for kind, taken in seconds.items():
            remove = attach(kind, training) if kind != "plain" else lambda: None
            start = time.perf_counter()
            training.step()
            taken.append(time.perf_counter() - start)
            remove()
    return seconds


def parts(training: Training, seconds: float) -> dict[str, float]:
    """Seconds that each tool adds to its part of the step; the monitor at its default interval."""
    threads = (torch.get_num_threads(),)

    def with_tool(kind: str, job: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            remove = attach(kind, training)
            job()
            remove()

        return run

    def attached_only(kind: str) -> Callable[[], None]:
        return lambda: attach(kind, training)()

    added = {}
    for kind in GOALS:
        job = training.watch if kind == "Monitor" else training.update
        jobs = {
            "plain": (job, threads),
            "with": (with_tool(kind, job), threads),
            "attach": (attached_only(kind), threads),
        }
        times = race(jobs, seconds)
        extra = times["with"].seconds - times["attach"].seconds - times["plain"].seconds
        added[kind] = extra / 100 if kind == "Monitor" else extra
    return added


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument("--batch", type=int, default=128, help="images per step (default: 128)")
    parser.add_argument("--rounds", type=int, default=7, help="whole steps of each kind (default: 7)")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each part (default: 4)")
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="also write the figures as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure parts and whole steps, and print what each tool adds."""
    require_writable(options.json)
    training = Training(options.batch)
    training.prepare()
    added = parts(training, options.seconds)
    whole = whole_steps(training, options.rounds)
    step = statistics.median(whole["plain"])
    rows = []
    for kind, goal in GOALS.items():
        ratio = statistics.median(a / b for a, b in zip(whole[kind], whole["plain"], strict=True))
        share = added[kind] / step
        verdict = "reached" if share <= goal else "missed"
        note = " (at every step)" if kind == "Monitor" else ""
        rows.append(
            [kind, f"{1e3 * added[kind]:.2f} ms", f"{share:.2%}", f"{goal:.0%}", verdict, f"{ratio - 1:+.1%}{note}"]
        )
    print(f"ResNet-18, 32×32, batch {options.batch}, {torch.get_num_threads()} threads: {step:.2f} s per step\n")
    print(render(["", "added", "of a step", "goal", "", "whole steps, alternating"], rows))
    if options.json:
        write_json(options.json, {"step": step, "added": added, "whole": whole, "batch": options.batch})
