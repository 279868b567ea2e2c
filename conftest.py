"""Makes ``torch`` available to the examples in docstrings, with a fixed random seed."""

import os

# Some virtual machines advertise Intel AMX but do not execute it: there a plain bfloat16 nn.Linear of torch dies of an
# illegal instruction. oneDNN reads this limit at its first use, and the processes that tests start inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import getpass
import tempfile

import pytest
import torch

# The cache of torch's compiler does not distinguish the instruction sets of ATEN_CPU_CAPABILITY: code that it generated
# for one gives wrong numbers with another. So each has a cache of its own.
_CACHE = f"torchinductor_{getpass.getuser()}_{torch.backends.cpu.get_cpu_capability()}"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), _CACHE))


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    torch.manual_seed(0)
    doctest_namespace["torch"] = torch
