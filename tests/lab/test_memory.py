"""The commands keep the memory of large tensors, which on glibc saves most of a training step's page faults."""

import resource
import subprocess
import sys

import pytest

from spectralgrad_lab.training.processes.memory import keep_memory

FAULTS = """
import resource, sys, torch
from spectralgrad_lab.training.processes.memory import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
a = torch.zeros(12_000_000)  # larger than the 32 MiB that glibc comes to keep by itself
for _ in range(5):  # at first the pages are new in any case
    b = a + a
    del b
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    b = a + a
    del b
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode):
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_memory_is_not_cleared_again():
    if not keep_memory():
        pytest.skip("not glibc")
    pages = 48_000_000 // resource.getpagesize()
    assert faults("kept") < pages / 10
