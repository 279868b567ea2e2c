"""N9: public functions compile together in one graph with ``dynamic=True``, and equal eager mode.

Dynamo keeps a symbolic float in the graph that used it first. A function fails in company if it leaves one behind in
the graph of its derivative, and then it fails with itself as well. So the suite compiles each function twice in one
graph. Every pair also meets: in graphs of two thirds of them, and in the other order in one graph of all. Dynamo
traces the derivatives in all of them. These graphs are in the tier "compiler"; the fast one compiles methods and layers
twice.

To compile each pair by itself, with its derivative, takes about half an hour, the third of 40 parts a minute::

    SPECTRALGRAD_PAIRS=all python -m pytest -q -m '' tests/test_compiled_pairs.py
    SPECTRALGRAD_PAIRS=3/40 python -m pytest -q -m '' tests/test_compiled_pairs.py
"""

import itertools
import os
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import CALLS, METHODS, loss, matrix, public_functions
from spectralgrad.diagnostics.every_layer import layer_and_input

NAMES = sorted(CALLS)
REPORTED = [
    ("eigh", "eigh"),
    ("svd", "svd"),
    ("eigvalsh", "eigvalsh"),
    ("procrustes", "svdvals"),
]
GROUPS = [NAMES[i::3] for i in range(3)]  # two of them are one graph
PART, OF = (int(x) for x in os.environ.get("SPECTRALGRAD_PAIRS", "0/1").replace("all", "1/1").split("/"))
PAIRS = list(itertools.combinations(NAMES, 2))[PART - 1 :: OF] if PART else REPORTED
# The methods that have a float among their parameters, once for each derivative that reads it.
WITH_FLOATS = ["eigh svd-clip", "svd lorentzian", "matrix_sqrt svd-trunc", "matrix_power svd-pi"]


@dataclass(frozen=True)
class Halved(sg.GapMethod):
    """A rule by a user."""

    name, summary, reference = "halved", "half the textbook gradient", "this test"
    share: float = 0.5

    def gaps(self, w):
        gap = w.unsqueeze(-1) - w.unsqueeze(-2)
        return torch.where(gap == 0, 0, self.share / gap)


def test_every_public_function_is_tried():
    assert {name.split()[0] for name in CALLS} == set(public_functions())


def _sum(names):
    """A loss in which functions follow each other, each with its own argument and weight."""
    losses = [loss(CALLS[name]) for name in names]
    return lambda A: sum((k + 1) * f(A + 0.1 * k) for k, f in enumerate(losses))


def _compiled_equals_eager(f, x, backend="eager"):
    torch._dynamo.reset()
    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend=backend)
    x = x.clone().requires_grad_()
    value, expected = compiled(x), f(x)
    assert_close(value, expected)
    assert_close(*(torch.autograd.grad(y, x)[0] for y in (value, expected)))


@pytest.mark.compiler
@pytest.mark.parametrize("name", NAMES)
def test_a_function_twice(name):
    _compiled_equals_eager(_sum([name, name]), matrix())


@pytest.mark.compiler
@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_every_pair_in_a_graph_of_two_groups(first, second):
    _compiled_equals_eager(_sum(GROUPS[first] + GROUPS[second]), matrix())


@pytest.mark.compiler
def test_every_pair_in_the_other_order():
    _compiled_equals_eager(_sum(name for group in GROUPS[::-1] for name in group[::-1]), matrix())


@pytest.mark.compiler
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda name: name.replace(" ", "_"))
def test_two_functions_with_a_compiled_derivative(first, second):
    _compiled_equals_eager(_sum([first, second]), matrix(), "aot_eager")


@pytest.mark.parametrize("name", WITH_FLOATS)
def test_a_method_with_parameters_twice(name):
    f = loss(METHODS[name])
    _compiled_equals_eager(lambda A: f(A) + 2 * f(A + 1), matrix())


def test_a_method_of_the_user_twice():
    rule = Halved(0.3)
    f = loss(lambda A: sg.eigh(A, method=rule).eigenvectors.square() + sg.eigh(A, method=Halved()).eigenvectors)
    _compiled_equals_eager(lambda A: f(A) + 2 * f(A + 1), matrix())


def test_two_layers():
    (first, X), (second, _) = (layer_and_input("DecorrelatedBatchNorm2d-pca", seed=seed) for seed in (0, 1))
    _compiled_equals_eager(lambda X: loss(second)(first(X).sin() + X), X)
