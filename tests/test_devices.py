"""Accelerators: :mod:`tests.on_a_device` and others in processes of their own, and operators for CUDA graphs."""

import pytest
import torch

import spectralgrad as sg
from spectralgrad.dispatch import status

from . import forked
from .helpers import NO_DEVICE

PARTS = {
    "functions": "test_function",
    "layers": "layer",
    "methods": "test_method",
    "errors": "test_unchecked",
    "rest": "not test_function and not layer and not test_method and not test_unchecked",
}
LONG = {"methods", "errors"}


def passes(file, *selected):
    done = forked.run("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{file}.py", *selected)
    assert done.returncode == 0, done.stdout[-4000:]


@NO_DEVICE
@pytest.mark.parametrize("part", [pytest.param(x, marks=pytest.mark.full) if x in LONG else x for x in PARTS])
def test_on_a_device(part):
    passes("on_a_device", "-k", PARTS[part])


@NO_DEVICE
def test_drivers():
    passes("drivers_on_a_device")


@NO_DEVICE
def test_on_a_device_without_double_precision():
    passes("in_single_precision")


OPERATIONS = {
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_log": sg.matrix_log,
    "newton-schulz": lambda A: sg.matrix_sqrt(A, method="newton-schulz"),
    "muon": lambda A: sg.polar(A, method="muon"),
    "affine_invariant": lambda A: sg.affine_invariant(A, 2 * A),
}


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="torch 2.6 has no such tag")
@pytest.mark.parametrize("name", OPERATIONS)
def test_operators_are_marked_unsafe_for_cuda_graphs_only_while_they_check(name):
    found = []

    def record(graph, inputs):
        found.extend(n.target for n in graph.graph.nodes if isinstance(n.target, torch._ops.OpOverload))
        return graph.forward

    A = torch.eye(3, dtype=torch.float64).expand(2, 3, 3) * 2
    call = torch.compile(OPERATIONS[name], backend=record, fullgraph=True)
    expected = OPERATIONS[name](A)
    torch.testing.assert_close(call(A), expected)
    checked, found = found, []
    with sg.solvers.unchecked():
        torch.testing.assert_close(call(A), expected)
    unchecked, found = found, []
    torch.testing.assert_close(call(A), expected)
    assert checked
    assert all(torch.Tag.cudagraph_unsafe in operator.tags for operator in checked)
    assert len(unchecked) == len(checked)
    assert not any(torch.Tag.cudagraph_unsafe in operator.tags for operator in unchecked)
    assert not found  # the first graph is used again


def test_on_a_cpu_calls_are_checked_in_any_case():
    with sg.solvers.unchecked(), pytest.raises(sg.NonFiniteError):
        sg.matrix_sqrt(torch.full((2, 2), torch.nan))
    sg.solvers.check()


def test_unchecked_is_a_context_and_a_decorator():
    assert status.checking()
    with sg.solvers.unchecked(), sg.solvers.unchecked():
        assert not status.checking()
    assert sg.solvers.unchecked()(status.checking)() is False
    assert status.checking()


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_environment_variable(value):
    code = "from spectralgrad.dispatch import status; print(status.checking())"
    done = forked.run("-c", code, environment={"SPECTRALGRAD_UNCHECKED": value}, check=True)
    assert done.stdout.strip() == str(value != "1")
