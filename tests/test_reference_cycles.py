"""No derivative keeps tensors alive, in reference cycles or in graphs, and reverse mode leaves no cycles at all.

torch.func makes a class for every call of an autograd function, and classes are reference cycles: some 60 small objects
per call and level of differentiation, whoever wrote the function, until the garbage collector runs.
"""

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp

from spectralgrad.diagnostics.every_function import CALLS, loss, matrix

DIRECTION = matrix(seed=3)


def _value(f, A):
    f(A)


def _gradient(f, A):
    torch.autograd.grad(f(A.requires_grad_()), A)


def _second_derivative(f, A):
    (g,) = torch.autograd.grad(f(A.requires_grad_()), A, create_graph=True)
    if g.requires_grad:  # not for linear functions
        torch.autograd.grad((g * DIRECTION).sum(), A)


def _forward_mode(f, A):
    with forward_ad.dual_level():
        forward_ad.unpack_dual(f(forward_ad.make_dual(A, DIRECTION)))


def _forward_over_reverse(f, A):
    with forward_ad.dual_level():
        x = forward_ad.make_dual(A.requires_grad_(), DIRECTION)
        forward_ad.unpack_dual(torch.autograd.grad(f(x), x, create_graph=True)[0])


PLAIN = (_value, _gradient, _second_derivative, _forward_mode, _forward_over_reverse)
TRANSFORMS = {
    "grad of grad": lambda f, A: grad(lambda A: (grad(f)(A) * DIRECTION).sum())(A),
    "jvp of grad": lambda f, A: jvp(grad(f), (A,), (DIRECTION,)),
    "hessian": lambda f, A: hessian(f)(A),
}
SLOW = ("hessian",)  # for a few functions only


@pytest.fixture(scope="module", autouse=True)
def _few_objects():
    """Hide everything that exists from the garbage collector, which is then a thousand times faster."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def _garbage():
    """Collect in a list what only the garbage collector can free."""
    found = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _runs(way, name):
    """Run a derivative twice, the first time for what torch and the library keep for later; return what is left."""
    f = loss(CALLS[name])
    way(f, matrix())
    with _garbage() as found:
        A = matrix()
        alive = weakref.ref(A)
        way(f, A)
        del A
        assert alive() is None  # a graph that refers to itself would keep its input
    return found


@pytest.mark.parametrize("name", CALLS)
def test_derivatives_leave_no_cycles(name):
    for way in PLAIN:
        assert not _runs(way, name), way.__name__


@pytest.mark.parametrize("name", CALLS)
def test_transforms_leave_no_cycle_of_ours_and_no_tensor(name):
    for what, way in TRANSFORMS.items():
        if what in SLOW and name not in ("matrix_log", "matrix_function", "eigh", "svdvals"):
            continue
        found = _runs(way, name)
        assert not [x for x in found if isinstance(x, torch.Tensor)], what
        ours = [x for x in found if getattr(x, "__module__", "").startswith("spectralgrad")]
        assert not [x for x in ours if not _made_by_torch(x)], what


def _made_by_torch(x):
    return isinstance(x, type) and ("Generated" in x.__name__ or x.__name__.startswith("Vmapped"))
