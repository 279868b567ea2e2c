"""The Triton kernels compile for processors that are not here, and keep their matrices in registers."""

import json
import os
import subprocess
import sys

import pytest

from spectralgrad.solvers import devices

from . import forked

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")


@pytest.mark.native
@pytest.mark.skipif(bool(devices.missing()), reason=devices.missing())
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_without_spills(target, tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.triton_targets", target]
    done = subprocess.run(command, cwd=forked.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 23
    assert {case: spilled for case, (_, spilled, _) in rows.items() if spilled} == {}
