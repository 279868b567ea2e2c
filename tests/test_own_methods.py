"""Methods from outside the package: one class each is enough, for a rule for the gaps and for anything else."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics import conformance
from spectralgrad.rules import METHODS

from .helpers import with_spectrum


@dataclass(frozen=True)
class Halved(sg.GapMethod):
    """A throw-away rule: half of the textbook gap."""

    name, summary, reference = "halved", "half of 1/(λi − λj), zero at ties", "this test"
    share: float = 0.5

    def gaps(self, w):
        gap = w.unsqueeze(-1) - w.unsqueeze(-2)
        return torch.where(gap == 0, 0, self.share / torch.where(gap == 0, 1, gap))


@dataclass(frozen=True)
class Babylonian(sg.Method):
    """A throw-away iteration for roots, differentiated step by step."""

    name, summary, reference = "babylonian", "Heron's iteration for roots", "this test"
    operations = frozenset({"sqrt", "inv_sqrt"})
    steps: int = 12

    def root(self, A, inverse, domain):
        M = domain.matrix(A)
        X = torch.eye(M.shape[-1], dtype=M.dtype).expand_as(M)
        for _ in range(self.steps):
            X = (X + torch.linalg.solve(X, M)) / 2
        return torch.linalg.inv(X) if inverse else X


@pytest.fixture
def registered():
    for kind in (Halved, Babylonian):
        sg.register_method(kind)
    yield
    for kind in (Halved, Babylonian):
        del METHODS[kind.name]


def gradient(call, A):
    A = A.clone().requires_grad_()
    G = torch.randn(A.shape, generator=torch.Generator().manual_seed(0), dtype=A.dtype)
    (call(A) * (G + G.mT)).sum().backward()
    return A.grad


@pytest.fixture
def A():
    return with_spectrum([0.5, 1.0, 2.0, 3.0], seed=1)


def test_a_rule_for_the_gaps_serves_eigenvectors(A, registered):
    exact, halved = (gradient(lambda A, m=m: sg.eigh(A, method=m).eigenvectors, A) for m in ("svd", "halved"))
    assert_close(halved, exact / 2)


def test_a_rule_for_the_gaps_serves_singular_vectors(A, registered):
    """Half of the rotation does not see the gap: it stays when the rule's share shrinks."""
    words = ("svd", "halved", "halved:share=0.25")
    exact, halved, quarter = (gradient(lambda A, m=m: sg.svd(A, method=m).U, A) for m in words)
    assert_close(halved - quarter, (exact - halved) / 2)


def test_a_rule_for_the_gaps_serves_functions(A, registered):
    V = sg.eigh(A).eigenvectors
    exact, halved = (V.mT @ gradient(lambda A, m=m: sg.matrix_log(A, method=m), A) @ V for m in ("exact", "halved"))
    assert_close(halved, exact / 2 + torch.diag(exact.diagonal()) / 2)  # the gaps stand off the diagonal


def test_an_iteration_serves_roots(A, registered):
    for function in (sg.matrix_sqrt, sg.matrix_inv_sqrt):
        assert_close(function(A, method="babylonian"), function(A))
        assert_close(gradient(lambda A, f=function: f(A, method=Babylonian()), A), gradient(function, A))
    with pytest.raises(sg.MethodError, match="babylonian"):
        sg.eigh(A, method="babylonian")
    with pytest.raises(sg.IndefiniteError, match="matrix_sqrt"):
        sg.matrix_sqrt(-A, method="babylonian")


def test_layers_take_them(registered):
    X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = sg.nn.DecorrelatedBatchNorm1d(4, dtype=torch.float64)(X)
    for method in ("halved", "babylonian", Babylonian(steps=20)):
        layer = sg.nn.DecorrelatedBatchNorm1d(4, method=method, dtype=torch.float64)
        assert_close(layer(X), expected)
    layer.method = "halved"
    assert layer.method == Halved()
    pooled = sg.nn.CovariancePooling(4, method="babylonian", dtype=torch.float64)
    assert pooled(X.reshape(4, 16, 4).mT).isfinite().all()


def test_diagnostics_take_them(A, registered):
    assert_close(Halved().bias(torch.tensor([1.0, 2.0])), torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
    assert sg.diagnostics.inspect(A, method="babylonian").bias.isnan().all()
    assert sg.diagnostics.inspect(A, method="halved").bias == pytest.approx(0.5)
    assert {"halved", "babylonian"} <= set(sg.methods("sqrt"))
    assert {"halved", "babylonian"} <= set(conformance.contestants("sqrt"))


def test_what_lacks_a_method_for_its_operations_is_not_registered():
    @dataclass(frozen=True)
    class Hollow(sg.Method):
        name, summary, reference = "hollow", "nothing", "this test"
        operations = frozenset({"sqrt", "eigh"})

    with pytest.raises(sg.MethodError, match="expected Hollow to implement decompose and root"):
        sg.register_method(Hollow)
