"""Kill processes that write checkpoints, and read what they leave; a program of its own, since it forks."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from spectralgrad.lab.checkpoints import load, save


def write_for_ever(folder, told):
    step = (load(folder) or {"step": 0})["step"]
    while True:
        step += 1
        save(folder, {"step": step, "model": {str(i): torch.full((1000,), step) for i in range(20)}})
        os.write(told, b".")


def kill_a_writer(folder, seconds):
    """After it has written once, and some time more; the step of the checkpoint it leaves."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        write_for_ever(folder, writer)
    os.read(reader, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    state = load(folder)
    assert all(bool((value == state["step"]).all()) for value in state["model"].values())
    return state["step"]


if __name__ == "__main__":
    chance = random.Random(0)
    for _ in range(8):
        print(kill_a_writer(Path(sys.argv[1]), chance.uniform(0, 0.02)))
