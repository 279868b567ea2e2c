"""The doctor and gauge_warnings name every derivative that does not exist, by one judgement, and no other."""

import contextlib
import threading
import warnings

import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics import GaugeWarning, doctor, gauge_warnings
from spectralgrad.diagnostics.table import number
from spectralgrad.diagnostics.tie_warnings import KINDS
from spectralgrad.testing import random_orthogonal, relative_error, with_spectrum

from .helpers import symmetric_noise

SIDE = random_orthogonal(4, seed=5)
KRONECKER = torch.kron(torch.eye(2), torch.tensor([[2.0, 1.0], [1.0, 2.0]])).double()  # 1, 1, 3, 3
TIED = {"kronecker": KRONECKER, "rotated": with_spectrum([1.0, 1.0, 3.0, 3.0], seed=7)}
SQUARE = with_spectrum([1.0, 2.0, 2.0, 3.0], seed=8) @ SIDE  # σ = 3, 2, 2, 1
TALL = torch.cat([SQUARE, SQUARE], -2)
SINGULAR = with_spectrum([0.0, 2.0, 3.0, 3.0], seed=9) @ SIDE
G = symmetric_noise(4, seed=1) + torch.arange(16.0).double().sin().reshape(4, 4)
B = with_spectrum([1.0, 1.0, 1.0, 1.0])


def projector(V):
    return (V @ V.mT * G).sum()


HERMITIAN = {
    "one eigenvalue": ("values", lambda A: sg.eigvalsh(A)[0]),
    "two of four": ("values", lambda A: sg.eigvalsh(A)[1:3].sum()),
    "distinguished by weights": ("values", lambda A: sg.eigvalsh(A) @ G[0]),
    "one of eigh": ("values", lambda A: sg.eigh(A).eigenvalues[3]),
    "one beside vectors": ("values", lambda A: (r := sg.eigh(A)).eigenvalues[0] + projector(r.eigenvectors[:, 2:])),
    "one of a pencil": ("values", lambda A: sg.eigvalsh(A, B)[0]),
    "one of a pencil with vectors": ("values", lambda A: sg.eigh(A, B).eigenvalues[0]),
    "the largest": ("values", lambda A: sg.eigh(A, k=1).eigenvalues.sum()),
    "the largest by eigsh": ("values", lambda A: sg.eigsh(A, 1).eigenvalues.sum()),
    "the smallest by eigsh": ("values", lambda A: sg.eigsh(A - 5 * B, 1, largest=False).eigenvalues.sum()),
    "the largest of a callable": ("values", lambda A: sg.eigsh(A.matmul, 1, size=4, dtype=A.dtype).eigenvalues.sum()),
    "one vector": ("gauge", lambda A: sg.eigh(A).eigenvectors[:, 0] @ G[0]),
    "one vector of a pencil": ("gauge", lambda A: sg.eigh(A, B).eigenvectors[:, 0] @ G[0]),
    "the leading vector": ("gauge", lambda A: sg.eigh(A, k=1).eigenvectors[:, 0] @ G[0]),
    "projector of one": ("gauge", lambda A: projector(sg.eigh(A, k=1).eigenvectors)),
    "spectral projector": ("cut", lambda A: (sg.spectral_projector(A, 1) * G).sum()),
    "sum": ("", lambda A: sg.eigvalsh(A).sum()),
    "function": ("", lambda A: sg.eigvalsh(A).log().sum()),
    "product": ("", lambda A: sg.eigvalsh(A).prod()),
    "variance": ("", lambda A: sg.eigvalsh(A).var()),
    "sum of a pair": ("", lambda A: sg.eigvalsh(A)[2:].sum()),
    "sum of the largest": ("", lambda A: sg.eigh(A, k=2).eigenvalues.square().sum()),
    "sum by eigsh": ("", lambda A: sg.eigsh(A, 2).eigenvalues.sum()),
    "projector of a pair": ("", lambda A: projector(sg.eigh(A, k=2).eigenvectors)),
    "projector of a pair by eigsh": ("", lambda A: projector(sg.eigsh(A, 2).eigenvectors)),
    "whole projector": ("", lambda A: (sg.spectral_projector(A, 2) * G).sum()),
    "root": ("", lambda A: (sg.matrix_sqrt(A) * G).sum()),
    "any function": ("", lambda A: (sg.matrix_function(A, torch.tanh) * G).sum()),
}
ANY = {
    "one singular value": ("values", SQUARE, lambda M: sg.svdvals(M)[1]),
    "one of a tall matrix": ("values", TALL, lambda M: sg.svdvals(M)[1]),
    "one of svd": ("values", SQUARE, lambda M: sg.svd(M).S[2]),
    "two largest": ("values", SQUARE, lambda M: sg.svd(M, k=2).S.sum()),
    "one vector": ("gauge", SQUARE, lambda M: sg.svd(M).U[0, 1]),
    "truncated": ("gauge", SQUARE, lambda M: ((r := sg.svd(M, k=2)).U * r.S @ r.Vh * G).sum()),
    "low rank": ("cut", SQUARE, lambda M: (sg.low_rank(M, 2) * G).sum()),
    "low rank of a tall matrix": ("cut", TALL, lambda M: (sg.low_rank(M, 2)[:4] * G).sum()),
    "zero singular value": ("kink", SINGULAR, lambda M: sg.svdvals(M).sum()),
    "zero of svd": ("kink", SINGULAR, lambda M: sg.svd(M).S.sum()),
    "nuclear norm": ("kink", SINGULAR, sg.nuclear_norm),
    "spectral norm": ("kink", SINGULAR, sg.spectral_norm),
    "Schatten 1": ("kink", SINGULAR, lambda M: sg.schatten_norm(M, 1)),
    "norm of zero": ("kink", 0 * SQUARE, sg.spectral_norm),
    "threshold": ("kink", SQUARE, lambda M: (sg.singular_value_threshold(M, 2.0) * G).sum()),
    "sum": ("", SQUARE, lambda M: sg.svdvals(M).sum()),
    "even": ("", SINGULAR, lambda M: sg.svdvals(M).square().log1p().sum()),
    "largest": ("", SQUARE, lambda M: sg.svdvals(M)[0]),
    "nuclear norm at a tie": ("", SQUARE, sg.nuclear_norm),
    "largest norm": ("", SQUARE, sg.spectral_norm),
    "Schatten 3": ("", SINGULAR, lambda M: sg.schatten_norm(M, 3)),
    "cut at a gap": ("", SQUARE, lambda M: (sg.low_rank(M, 3) * G).sum()),
    "threshold between": ("", SQUARE, lambda M: (sg.singular_value_threshold(M, 1.5) * G).sum()),
    "function at zero": ("", SINGULAR, lambda M: (sg.singular_value_function(M, torch.tanh) * G).sum()),
}
CASES = {
    **{f"{name}, {where}": (kind, A, f) for name, (kind, f) in HERMITIAN.items() for where, A in TIED.items()},
    **{f"{name} (SVD)": case for name, case in ANY.items()},
}


def warned(loss, A, only_backward=False):
    """The kinds that gauge_warnings reports."""
    A = A.clone().requires_grad_()
    value = loss(A) if only_backward else None
    with warnings.catch_warnings(record=True) as caught, gauge_warnings():
        warnings.simplefilter("always")
        (loss(A) if value is None else value).backward()
    return [kind for x in caught for kind, text in KINDS.items() if str(x.message).startswith(text)]


@pytest.mark.parametrize("name", CASES)
def test_both_diagnostics_name_what_does_not_exist(name):
    kind, A, loss = CASES[name]
    assert warned(loss, A) == [kind] * bool(kind)
    assert warned(loss, A, only_backward=True) == [kind] * bool(kind)
    with doctor() as report:
        loss(A.clone().requires_grad_()).backward()
    (finding,) = report.findings
    assert finding.verdict == (kind or "fine")
    assert finding.gradients == ("callable" not in name)


def test_torch_functions_are_judged_in_the_same_way():
    for kind, A, loss in (
        ("values", KRONECKER, lambda A: torch.linalg.eigvalsh(A)[0]),
        ("values", KRONECKER, lambda A: torch.linalg.eigh(A).eigenvalues[0]),
        ("values", SQUARE, lambda M: torch.linalg.svdvals(M)[1]),
        ("kink", SINGULAR, lambda M: torch.linalg.svdvals(M).sum()),
        ("fine", KRONECKER, lambda A: torch.linalg.eigvalsh(A).log().sum()),
        ("fine", SINGULAR, lambda M: torch.linalg.svdvals(M).square().sum()),
    ):
        with doctor() as report:
            loss(A.clone().requires_grad_()).backward()
        assert report.findings[0].verdict == kind


def test_a_vector_of_eigsh_at_a_tie_is_named_before_the_error():
    with pytest.raises(sg.ConvergenceError), doctor() as report:
        (sg.eigsh(KRONECKER.clone().requires_grad_(), 1).eigenvectors[:, 0] @ G[0]).backward()
    assert report.findings[0].verdict == "gauge"


@pytest.mark.parametrize("scale", [2.0**-500, 2.0**500])
def test_the_judgement_does_not_depend_on_the_scale(scale):
    A = TIED["rotated"] * scale
    assert warned(lambda A: sg.eigvalsh(A)[0] / scale, A) == ["values"]
    assert warned(lambda A: (sg.eigvalsh(A) / scale).log().sum(), A) == []


@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
def test_a_kink_is_as_wide_as_rounding(scale):
    """64 ε of the norm, from both sides."""
    for distance, kinds in ((16, ["kink"]), (128, [])):
        level = scale * (2 + 3 * distance * torch.finfo(SQUARE.dtype).eps)
        assert warned(lambda M, t=level: (sg.singular_value_threshold(M, t) * G).sum() / scale, SQUARE * scale) == kinds


def test_slopes_that_are_rounding_errors_are_not_compared():
    """At the minimum of a symmetric loss; a weight on one eigenvalue is far above that."""
    identity = with_spectrum([1.0] * 6, seed=3)
    assert warned(lambda A: (sg.eigvalsh(A) - 1).square().sum(), identity) == []
    assert warned(lambda A: 1e-9 * sg.eigvalsh(A)[0], identity) == ["values"]


def test_a_group_of_a_batch_is_enough():
    batch = torch.stack([with_spectrum([1.0, 2.0, 3.0, 4.0]), KRONECKER])
    assert warned(lambda A: sg.eigvalsh(A)[1, 0], batch) == ["values"]
    assert warned(lambda A: sg.eigvalsh(A)[0, 0], batch) == []


def test_second_derivatives_of_symmetric_losses_are_passed_over():
    """In the second pass the eigenvalues receive only a part of the cotangent, which tells them apart."""
    hessian = torch.autograd.functional.hessian
    with gauge_warnings():  # warnings are errors
        hessian(lambda A: sg.eigvalsh(A).log().sum(), TIED["rotated"])
        hessian(lambda M: sg.svdvals(M).square().sum(), SQUARE)
    A = KRONECKER.clone().requires_grad_()
    with pytest.warns(GaugeWarning), gauge_warnings():
        torch.autograd.grad(sg.eigvalsh(A)[0], A, create_graph=True)


def test_diagnostics_do_not_change_a_gradient():
    for _, A, loss in CASES.values():
        plain, watched = A.clone().requires_grad_(), A.clone().requires_grad_()
        loss(plain).backward()
        with warnings.catch_warnings(), gauge_warnings():
            warnings.simplefilter("ignore")
            loss(watched).backward()
        assert torch.equal(plain.grad, watched.grad)


@contextlib.contextmanager
def recorded():
    """The warnings inside gauge_warnings."""
    with warnings.catch_warnings(record=True) as caught, gauge_warnings():
        warnings.simplefilter("always")
        yield caught


class TestWhereAWarningPoints:
    def test_to_the_call_that_is_differentiated(self):
        A = KRONECKER.clone().requires_grad_()
        with recorded() as caught:
            value = sg.eigvalsh(A)[0]  # the call
            value.backward()
        assert_line(caught, "# the call")

    def test_to_the_call_even_if_the_backward_pass_runs_in_another_thread(self):
        A = KRONECKER.clone().requires_grad_()
        with recorded() as caught:
            value = (sg.low_rank(A, 1) * G).sum()  # in this thread
            thread = threading.Thread(target=value.backward)
            thread.start()
            thread.join()
        assert_line(caught, "# in this thread")

    def test_through_a_layer_to_the_line_that_calls_it(self):
        layer = torch.nn.Sequential(sg.nn.PCADenoising1d(2, keep=1, affine=False)).double()
        x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).double().requires_grad_()
        with recorded() as caught:
            y = layer(x)  # the layer
            (y * torch.arange(8.0).reshape(4, 2)).sin().sum().backward()
        assert_line(caught, "# the layer")

    def test_to_the_backward_pass_if_the_call_was_made_before(self):
        value = sg.eigh(KRONECKER.clone().requires_grad_()).eigenvalues[0]
        with recorded() as caught:
            value.backward()  # the pass
        assert_line(caught, "# the pass")

    def test_and_none_comes_after_the_context(self):
        with gauge_warnings():
            value = sg.eigvalsh(KRONECKER.clone().requires_grad_())[0]
        value.backward()  # warnings are errors here

    def test_and_one_is_enough_for_two_contexts(self):
        with recorded() as caught, gauge_warnings():
            sg.eigvalsh(KRONECKER.clone().requires_grad_())[0].backward()
        assert len(caught) == 1


def assert_line(caught, comment):
    with open(__file__, encoding="utf-8") as source:
        line = next(n for n, text in enumerate(source, 1) if text.rstrip().endswith(comment))
    assert [(x.category, x.filename, x.lineno) for x in caught] == [(GaugeWarning, __file__, line)]


COMPOSED = {
    "columns": lambda w, V, f: (V * f(w)) @ V.mT,
    "diagonal": lambda w, V, f: V @ torch.diag(f(w)) @ V.mT,
    "rows": lambda w, V, f: V @ (f(w)[:, None] * V.mT),
    "data": lambda w, V, f: ((G.to(V.dtype) @ V) * f(w)) @ V.mT,
    "einsum": lambda w, V, f: torch.einsum("ij,j,kj->ik", V, f(w), V),
}
ERRORS = [(name, f) for name in COMPOSED for f in (torch.sqrt, torch.log) if (name, f) != ("einsum", torch.log)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "f"), ERRORS, ids=lambda x: getattr(x, "__name__", x))
def test_the_doctor_reports_the_error_that_the_user_gets(name, f, dtype):
    """Also for log λ at 1, where the cotangent of the vectors vanishes (an einsum shows nothing else)."""
    A = with_spectrum([1.0, 1.0, 2.0, 4.0], seed=3).to(dtype)
    X, exact = A.clone().requires_grad_(), A.double().clone().requires_grad_()
    with doctor() as report:
        (COMPOSED[name](*sg.eigh(X), f) * G.to(dtype)).sum().backward()
    S = sg.matrix_function(exact, f)
    ((G @ S if name == "data" else S) * G).sum().backward()
    finding = report.findings[0]
    assert finding.verdict == "lost"
    assert finding.error == pytest.approx(relative_error(X.grad.double(), exact.grad), rel=0.05)
    assert f"estimated relative error of the gradient {number(finding.error)}" in str(report)


def test_the_doctor_reports_the_largest_error_of_a_batch():
    batch = torch.stack([with_spectrum([1.0, 1.0, 2.0, 4.0], seed=seed) * 2.0**seed for seed in range(3)])
    X, exact = batch.clone().requires_grad_(), batch.clone().requires_grad_()
    with doctor() as report:
        w, V = sg.eigh(X)
        ((V * w.sqrt().unsqueeze(-2)) @ V.mT * G).sum().backward()
    (sg.matrix_sqrt(exact) * G).sum().backward()
    errors = [relative_error(got, expected) for got, expected in zip(X.grad, exact.grad, strict=True)]
    assert report.findings[0].error == pytest.approx(max(errors), rel=0.05)
