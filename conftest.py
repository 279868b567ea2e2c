"""Makes ``torch`` available to the examples in docstrings, with a fixed random seed."""

import os

# Some virtual machines advertise Intel AMX but do not execute it: there a plain bfloat16 nn.Linear of torch dies of an
# illegal instruction. oneDNN reads this limit at its first use, and the processes that tests start inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    torch.manual_seed(0)
    doctest_namespace["torch"] = torch
