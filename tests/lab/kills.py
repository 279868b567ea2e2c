"""Kill processes at moments that chance chooses, and read what they leave; a program of its own, since it forks."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from spectralgrad_lab import train
from spectralgrad_lab.training.loop.progress import Silent
from spectralgrad_lab.training.storage.checkpoints import load, save

from .helpers import trusted


class Told(Silent):
    """Writes a byte to a pipe at every step."""

    def __init__(self, pipe):
        self.pipe = pipe

    def step(self, step):
        os.write(self.pipe, b".")


def write(folder, pipe):
    """Checkpoints, one after another."""
    step = (load(folder) or {"step": 0})["step"]
    while True:
        step += 1
        save(folder, {"step": step, "model": {str(i): torch.full((1000,), step) for i in range(20)}})
        os.write(pipe, b".")


def work(folder, pipe):
    """The run that the folder's configuration describes."""
    train(trusted(folder / "run.toml"), folder, resume=True, progress=Told(pipe))


def killed(what, folder, seconds):
    """The checkpoint that a process leaves that is killed so long after its first sign of life."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            what(folder, writer)
        finally:
            os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return load(folder)


def main(folder):
    chance = random.Random(0)
    for _ in range(8):
        state = killed(write, folder / "writes", chance.uniform(0, 0.02))
        assert all(bool((value == state["step"]).all()) for value in state["model"].values())
        print("write", state["step"])
    for _ in range(5):
        state = killed(work, folder / "run", chance.uniform(0, 0.1))
        print("run", -1 if state is None else state["tally"]["step"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
