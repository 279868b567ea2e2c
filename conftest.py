"""The tiers of tests, and the names that examples in docstrings use: ``torch``, with a fixed random seed."""

import os

# Some virtual machines advertise Intel AMX but do not execute it: there a plain bfloat16 nn.Linear of torch dies of an
# illegal instruction. oneDNN reads this limit at its first use, and the processes that tests start inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import getpass
import tempfile
from importlib.util import find_spec

import pytest
import torch

# The cache of torch's compiler does not distinguish the instruction sets of ATEN_CPU_CAPABILITY: code that it generated
# for one gives wrong numbers with another. So each has a cache of its own.
_CACHE = f"torchinductor_{getpass.getuser()}_{torch.backends.cpu.get_cpu_capability()}"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), _CACHE))

# These modules cannot be imported without Triton, and have no examples.
_TRITON = ["spectralgrad/solvers/devices/kernels/*.py", "tests/triton_targets.py"]
collect_ignore_glob = [] if find_spec("triton") else _TRITON

# Each test belongs to the tier that it is marked with, otherwise to "fast", which runs by default: see CONTRIBUTING.md.
TIERS = {
    "fast": "what is in no other tier; the default",
    "full": "full products of parameters, of which the fast tier runs representatives",
    "native": "the kernel under sanitizers and in every instruction set",
    "compiler": "torch.compile with the inductor backend, and exported programs",
    "runs": "several processes, killed runs, Lightning, trainings and benchmarks that take seconds",
    "browser": "reports in a browser",
}


def pytest_configure(config):
    """Register the tiers. A test that is named by its place in a file, ``file.py::name``, runs whatever its tier."""
    for name, content in TIERS.items():
        config.addinivalue_line("markers", f"{name}: tier of tests: {content}")
    if config.option.markexpr == "fast" and any("::" in argument for argument in config.args):
        config.option.markexpr = ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark each test with its tier, which also becomes a property in the JUnit report.

    The longest tests, which are native, come first: two workers then run them side by side.
    """
    for item in items:
        tier = next((mark.name for mark in item.iter_markers() if mark.name in TIERS), "fast")
        item.add_marker(tier)
        item.user_properties.append(("tier", tier))
    items.sort(key=lambda item: item.get_closest_marker("native") is None)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    torch.manual_seed(0)
    doctest_namespace["torch"] = torch
