"""The Triton kernels in Triton's interpreter, which runs them in numpy and needs no GPU.

Triton reads TRITON_INTERPRET when it is imported, and its kernels cannot be compiled afterwards, which torch.compile
does where there is a GPU. So the tests of triton_interpreted.py and triton_on_a_device.py have processes of
their own.
"""

import os
import subprocess
import sys

import pytest

from spectralgrad.solvers import devices

from . import forked
from .helpers import NO_DEVICE


@pytest.mark.full
@pytest.mark.skipif(bool(devices.missing()), reason=devices.missing())
@pytest.mark.parametrize("file", ["interpreted", pytest.param("on_a_device", marks=NO_DEVICE)])
def test_in_the_interpreter(file):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/triton_{file}.py"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=forked.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_library_does_not_import_triton():
    code = "import sys, torch; old = {*sys.modules}; import spectralgrad.solvers.devices; print({*sys.modules} - old)"
    assert "'triton" not in forked.run("-c", code, check=True).stdout
