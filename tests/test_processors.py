"""N18: the runs that compute like other processors meet every pair of settings, and the last bits really change."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.documents import ROOT
from tests.last_bits import moved
from tools.processors import EXAMPLES, FEW, NUMERICS, SETTINGS, covering


def test_each_pair_of_values_occurs_in_a_run():
    met = {pair for run in covering(SETTINGS) for pair in itertools.combinations(run.items(), 2)}
    for (one, values), (other, others) in itertools.combinations(SETTINGS.items(), 2):
        assert {((one, v), (other, w)) for v in values for w in others} <= met


def test_the_files_of_the_runs_exist():
    assert [name for name in (*EXAMPLES, *NUMERICS) if not (ROOT / name).exists()] == []


def test_the_few_runs_differ_in_every_setting():
    first, second = FEW
    assert all(first[name] != second[name] and {first[name], second[name]} <= {*SETTINGS[name]} for name in SETTINGS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_move_by_one_unit_and_agreed_ones_stay(dtype):
    x = np.array([0.0, 1.0, -1.0, np.inf, 2.0, 0.1, -7.3], dtype)
    y = moved(x)
    assert (y[:4] == x[:4]).all()
    assert (np.abs(y[4:] - x[4:]) <= np.spacing(np.abs(x[4:]))).all()
    assert (y[4:] != x[4:]).all()


def test_an_example_that_depends_on_the_last_bit_fails(tmp_path):
    example = tmp_path / "test_example.py"
    example.write_text("import torch\n\ndef test_it():\n    assert float(torch.tensor(2.0).log().exp()) == 2.0\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.last_bits", str(example)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "LAST_BITS": "up"}, capture_output=True, text=True)
    assert "1 failed" in done.stdout, done.stdout + done.stderr
