"""What the tests of the lab share: a network that is trained in milliseconds, and runs to compare."""

import os
import signal
import socket
import sys

import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.errors import SolverError
from spectralgrad_lab import Config
from spectralgrad_lab.training.loop.progress import Silent
from spectralgrad_lab.training.storage.checkpoints import POINTER
from spectralgrad_lab.training.storage.checksums import sealed

from ..forked import Forked

TIMES = ("seconds", "images_per_second", "step_ms")


def tiny(classes):
    """Everything a checkpoint has to remember: running statistics, random numbers, a spectral layer."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False),
        sg.nn.DecorrelatedBatchNorm2d(6),
        nn.ReLU(),
        nn.AvgPool2d(7),
        nn.BatchNorm2d(6),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(96, classes),
    )


def steady(classes):
    """The same without random numbers, for processes that are to agree."""
    net = tiny(classes)
    net[5] = nn.Identity()
    return net


class GivingUp(torch.autograd.Function):
    """A layer through which no gradient comes back."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise SolverError("eigh", (), torch.eye(3), ["torch"], None)


QUICK = Config(
    network="tests.lab.helpers:tiny",
    train_size=96,
    batch_size=32,
    epochs=2,
    lr=0.05,
    monitor_every=2,
    tensorboard=False,
)


def trusted(file):
    """The configuration in a file that the tests wrote themselves, so that its network may be imported."""
    read = Config.from_toml(file)
    return read.replaced(network=str(read.network))


def forge(folder, content):
    """Write a checkpoint.json with a valid checksum, as somebody could who wants it to be accepted."""
    (folder / POINTER).write_bytes(sealed({name: value for name, value in content.items() if name != "sha256"}))


def numbers(result):
    """The epochs of a result without what a clock says."""
    return [{k: v for k, v in vars(epoch).items() if k not in TIMES} for epoch in result.epochs]


class Interrupting(Silent):
    """Sends a signal to its own process after a number of steps."""

    def __init__(self, after, number=signal.SIGINT):
        self.left, self.number = after, number

    def step(self, step):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(self.number)


def environment(**others):
    """Environment variables with which another Python finds the packages that this one tests, not installed ones."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **others}


def pair(module, *arguments):
    """A module run in two processes that find each other as torchrun's do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), **meeting} for rank in range(2)]
    return [Forked("-m", module, *arguments, environment=rank) for rank in ranks]


def ended(processes, seconds=120):
    """Exit codes and what was said."""
    said = [process.communicate(timeout=seconds) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]
