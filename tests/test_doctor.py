"""The doctor names the call that spoils a gradient, says what to write instead, and changes nothing."""

import gc
import json
import sysconfig
import threading
import weakref
from pathlib import Path

import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics import doctor
from spectralgrad.diagnostics._doctor.data_flow import _ALIVE, Lineage, Trace
from spectralgrad.diagnostics._doctor.findings import VERDICTS
from spectralgrad.diagnostics._doctor.places import _SKIPPED, calling_place
from spectralgrad.testing import with_spectrum

linalg = torch.linalg
TIED = with_spectrum([1.0, 1.0, 3.0, 4.0], seed=1)
APART = with_spectrum([1.0, 2.0, 3.0, 4.0], seed=1)
SINGULAR = with_spectrum([0.0, 0.0, 3.0, 4.0], seed=1)
X = torch.arange(8, dtype=torch.float64).reshape(2, 4).cos()  # data to whiten


def examined(loss, A):
    """The report of one step, and its gradient."""
    A = A.clone().requires_grad_()
    with doctor() as report:
        value = loss(A)
        value.backward()
    return report, A.grad


# Matrix functions in the ways in which people write them, and what the doctor should say.
BY_HAND = {
    "sqrt": (lambda w, V: (V * w.sqrt()) @ V.mT, "sg.matrix_sqrt(A)"),
    "sqrt of diag": (lambda w, V: V @ torch.diag(torch.sqrt(w)) @ V.T, "sg.matrix_sqrt(A)"),
    "pow": (lambda w, V: V @ torch.diag_embed(w**0.5) @ V.mH, "sg.matrix_sqrt(A)"),
    "clamped": (lambda w, V: V * w.clamp(min=0).sqrt()[..., None, :] @ V.mT, "sg.matrix_sqrt(A, clamp=True)"),
    "relu": (lambda w, V: (V * torch.relu(w).sqrt().unsqueeze(-2)) @ V.adjoint(), "sg.matrix_sqrt(A, clamp=True)"),
    "rsqrt": (lambda w, V: (V * w.rsqrt()) @ V.mT, "sg.matrix_inv_sqrt(A)"),
    "divided": (lambda w, V: (V / w.sqrt()) @ V.mT, "sg.matrix_inv_sqrt(A)"),
    "1/sqrt": (lambda w, V: V @ torch.diag(1 / w.sqrt()) @ V.mT, "sg.matrix_inv_sqrt(A)"),
    "pow -0.5": (lambda w, V: V @ torch.diag(w.pow(-0.5)) @ V.mT, "sg.matrix_inv_sqrt(A)"),
    "log": (lambda w, V: V @ (torch.log(w)[:, None] * V.mT), "sg.matrix_log(A)"),
    "exp": (lambda w, V: torch.einsum("ij,j,kj->ik", V, w.exp(), V), "sg.matrix_exp(A)"),
    "einsum of rows": (lambda w, V: torch.einsum("ij,j,jk->ik", V, w.log(), V.mT), "sg.matrix_log(A)"),
    "einsum of scaled": (lambda w, V: torch.einsum("ij,kj", V * w.sqrt(), V), "sg.matrix_sqrt(A)"),
    "einsum of diag": (
        lambda w, V: torch.einsum("ij, jl, kl -> ik", V, torch.diag(w.rsqrt()), V),
        "sg.matrix_inv_sqrt(A)",
    ),
    "einsum with data": (lambda w, V: torch.einsum("bi,ij,j,kj->bk", X, V, w.rsqrt(), V), "sg.matrix_inv_sqrt(A)"),
    "einsum of columns": (lambda w, V: torch.einsum("ij,j,kj,bk->ib", V, w.log(), V, X), "sg.matrix_log(A)"),
    "einsum of a form": (lambda w, V: torch.einsum("bi,ij,j,kj,bk->b", X, V, w.exp(), V, X)[None], "sg.matrix_exp(A)"),
    "einsum in steps": (
        lambda w, V: torch.einsum("bj,j,kj->bk", torch.einsum("bi,ij->bj", X, V), w.sqrt(), V),
        "sg.matrix_sqrt(A)",
    ),
    "einsum, then a product": (lambda w, V: torch.einsum("bi,ij,j->bj", X, V, w.log()) @ V.mT, "sg.matrix_log(A)"),
    "einsum of one vector": (lambda w, V: (V @ (w.log() * torch.einsum("ij,i->j", V, X[0])))[None], "sg.matrix_log(A)"),
    "einsum of D Vᵀ": (lambda w, V: V @ torch.einsum("jk,lk->jl", torch.diag(w.sqrt()), V), "sg.matrix_sqrt(A)"),
    "inverse": (lambda w, V: linalg.multi_dot([V, torch.diag(w.reciprocal()), V.T]), "sg.matrix_power(A, -1)"),
    "power": (lambda w, V: (V * w.pow(0.25)) @ V.transpose(-1, -2), "sg.matrix_power(A, 0.25)"),
    "twice": (lambda w, V: (X := V * w.sqrt()) @ X.mT, "sg.matrix_function(A, lambda w: w.sqrt().square())"),
    "floor": (lambda w, V: (V * w.clamp(min=1e-3).log()) @ V.mT, "sg.matrix_log(A)"),
    "floor of rsqrt": (lambda w, V: (V * w.clamp(min=1e-5).rsqrt()) @ V.mT, "sg.matrix_inv_sqrt(A)"),
    "floor of exp": (
        lambda w, V: (V * w.clamp(min=1e-3).exp()) @ V.mT,
        "sg.matrix_function(A, lambda w: w.clamp(min=0.001).exp())",
    ),
    "ceiling": (
        lambda w, V: (V * w.clamp(max=9).sqrt()) @ V.mT,
        "sg.matrix_function(A, lambda w: w.clamp(max=9).sqrt())",
    ),
    "late bound": (
        lambda w, V: (V * w.log().clamp(min=0)) @ V.mT,
        "sg.matrix_function(A, lambda w: w.log().clamp(min=0))",
    ),
    "rows": (lambda w, V: X @ V @ torch.diag(w.rsqrt()) @ V.T, "sg.matrix_inv_sqrt(A)"),
    "scaled rows": (lambda w, V: (X @ V) * w.rsqrt() @ V.T, "sg.matrix_inv_sqrt(A)"),
    "columns": (lambda w, V: V @ (torch.diag(w.rsqrt()) @ (V.T @ X.T)), "sg.matrix_inv_sqrt(A)"),
    "one vector": (lambda w, V: (V @ (w.log() * (V.mT @ X[0])))[None], "sg.matrix_log(A)"),
    "in place": (lambda w, V: (V * w.clone().clamp_(min=0).sqrt_()) @ V.mT, "sg.matrix_sqrt(A, clamp=True)"),
    "shifted": (lambda w, V: (V * (w + 0.5).sqrt()) @ V.mT, "sg.matrix_function(A, lambda w: (w + 0.5).sqrt())"),
    "sum": (lambda w, V: (V * (w + 0.5)) @ V.mT, "sg.matrix_function(A, lambda w: w + 0.5)"),
    "identity": (lambda w, V: (V * w) @ V.mT, "A itself"),
    "inverted vectors": (lambda w, V: V @ torch.diag(w.log()) @ linalg.inv(V), "sg.matrix_log(A)"),
}


@pytest.mark.parametrize("decompose", [linalg.eigh, sg.eigh], ids=["torch", "sg"])
@pytest.mark.parametrize("name", BY_HAND)
def test_a_function_composed_by_hand_is_recognised(name, decompose):
    compose, instead = BY_HAND[name]
    report, _ = examined(lambda A: compose(*decompose(A))[0].sum(), TIED)
    finding = report.findings[0]
    assert [x.instead(is_svd=False) for x in finding.composed] == [instead]
    assert finding.verdict in ("lost", "non-finite")
    assert instead in str(report)
    assert "compose(*decompose(A))" in finding.place.code


@pytest.mark.parametrize(
    "name", ["sqrt", "rsqrt", "log", "exp", "power", "clamped", "floor", "ceiling", "shifted", "twice"]
)
def test_the_advice_computes_the_same_and_differentiates_it_correctly(name):
    compose, instead = BY_HAND[name]
    A = APART.clone().requires_grad_()
    expected, got = compose(*linalg.eigh(A)), eval(instead, {"sg": sg, "A": A})
    assert torch.allclose(got, expected, atol=1e-13)
    gradients = [torch.autograd.grad(x[0].sum(), A)[0] for x in (expected, got)]
    assert torch.allclose(*[g + g.mT for g in gradients], atol=1e-12)


@pytest.mark.parametrize("equation", ["bij,bj,bkj->bik", "...ij,...j,...kj->...ik", "bni,bij,bj,bkj->bnk"])
def test_an_einsum_of_a_batch_is_recognised(equation):
    def loss(A):
        w, V = linalg.eigh(A)
        return torch.einsum(equation, *[X.expand(4, 2, 4)] * ("n" in equation), V, w.sqrt(), V)[:, 0].sum()

    report, _ = examined(loss, TIED.expand(4, 4, 4))
    assert [x.instead(is_svd=False) for x in report.findings[0].composed] == ["sg.matrix_sqrt(A)"]


SINGULAR_VALUES = {
    "einsum": (
        lambda U, S, Vh: torch.einsum("ij,j,jk->ik", U, S.log(), Vh),
        "singular_value_function(M, lambda s: s.log())",
    ),
    "polar": (lambda U, S, Vh: U @ Vh, "sg.polar(M)"),
    "function": (lambda U, S, Vh: (U * S.sqrt()) @ Vh, "sg.singular_value_function(M, lambda s: s.sqrt())"),
    "on the right": (lambda U, S, Vh: U @ (S.log()[:, None] * Vh), "sg.singular_value_function(M, lambda s: s.log())"),
    "low rank": (lambda U, S, Vh: (U[:, :2] * S[:2]) @ Vh[:2], "sg.low_rank(M, 2)"),
    "low rank by diag": (lambda U, S, Vh: U[..., :1] @ torch.diag(S[:1]) @ Vh[:1, :], "sg.low_rank(M, 1)"),
    "tail": (lambda U, S, Vh: (U[:, 1:] * S[1:]) @ Vh[1:], "f(s) = s, zero for the values left out"),
    "threshold": (lambda U, S, Vh: (U * (S - 0.5).clamp(min=0)) @ Vh, "sg.singular_value_threshold(M, 0.5)"),
    "relu": (lambda U, S, Vh: U @ torch.diag(torch.relu(S - 0.5)) @ Vh, "sg.singular_value_threshold(M, 0.5)"),
    "of a tensor": (lambda U, S, Vh: (U * (S - S.new_ones(1)).relu()) @ Vh, "sg.singular_value_threshold(M, tau)"),
    "nothing": (lambda U, S, Vh: (U * S) @ Vh, "M itself"),
    "left": (lambda U, S, Vh: (U * S.square()) @ U.mT, "sg.matrix_function(M @ M.mH, g)"),
    "right": (lambda U, S, Vh: Vh.mH @ torch.diag(S) @ Vh, "sg.matrix_function(M.mH @ M, g)"),
    "projector": (lambda U, S, Vh: U[:, :2] @ U[:, :2].mT, "sg.spectral_projector(M @ M.mH, 2)"),
}


@pytest.mark.parametrize("name", SINGULAR_VALUES)
def test_functions_of_singular_values_are_recognised(name):
    compose, instead = SINGULAR_VALUES[name]
    report, _ = examined(lambda M: compose(*linalg.svd(M, full_matrices=False))[0].sum(), torch.eye(4)[:, :3] * 2)
    (function,) = report.findings[0].composed
    assert instead in function.instead(is_svd=True)
    assert report.findings[0].verdict == "non-finite"
    assert "diag(w" not in str(report)


@pytest.mark.parametrize("name", ["polar", "low rank", "threshold"])
def test_products_of_both_sides_are_not_taken_for_functions_of_a_positive_matrix(name):
    """That the inputs were symmetric does not prove that all are."""
    compose, instead = SINGULAR_VALUES[name]
    report, _ = examined(lambda M: compose(*linalg.svd(M))[0].sum(), TIED)
    (function,) = report.findings[0].composed
    assert report.findings[0].instead(function) == instead


def signs_in_place(U, Vh):
    Vh = Vh.clone()
    Vh[..., -1, :] *= -1
    return U @ Vh


SIGNS = torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    "rotation",
    [
        lambda U, Vh: U @ torch.diag(SIGNS) @ Vh,
        lambda U, Vh: U @ (torch.diag(SIGNS) @ Vh),
        lambda U, Vh: (U * SIGNS) @ Vh,
        lambda U, Vh: (U * SIGNS.expand(*U.shape[:-2], 1, 4)) @ Vh,
        lambda U, Vh: U @ (SIGNS[:, None] * Vh),
        lambda U, Vh: torch.einsum("...ij,j,...jk->...ik", U, SIGNS, Vh),
        signs_in_place,
    ],
)
@pytest.mark.parametrize("batch", [(4, 4), (4, 4, 4)], ids=str)
def test_the_nearest_rotation_is_recognised(rotation, batch):
    M = TIED - 2 * torch.eye(4)
    report, _ = examined(lambda M: rotation(*linalg.svd(M)[::2])[..., 0, :].sum(), M.expand(batch))
    (function,) = report.findings[0].composed
    assert report.findings[0].instead(function) == "sg.polar(M, special=True)"


def test_the_factor_whose_determinant_decides_the_sign_is_not_listed():
    def kabsch(M):
        U, _, Vh = linalg.svd(M)
        D = torch.eye(4, dtype=M.dtype)
        D[-1, -1] = linalg.det(U @ Vh).detach()
        return (U @ D @ Vh)[0].sum()

    report, _ = examined(kabsch, TIED - 2 * torch.eye(4))
    finding = next(x for x in report.findings if x.operation.is_svd)
    assert [finding.instead(x) for x in finding.composed] == ["sg.polar(M, special=True)"]


def test_vectors_that_were_overwritten_are_not_followed():
    def overwritten(M):
        U, _, Vh = linalg.svd(M)
        Vh = Vh.clone()
        Vh[0] = 0.5
        return (U @ Vh).sum()

    assert examined(overwritten, APART)[0].findings[0].composed == []


def test_a_kink_is_mentioned():
    for bounded, said in (
        (lambda w: w.clamp(min=1e-5).rsqrt(), "Unlike clamp(min=1e-05), the function has no kink"),
        (lambda w: w.clamp(min=1e-3), "a value that lies on it has no derivative"),
        (lambda w: w.clamp(min=0).sqrt(), ""),
    ):
        report, _ = examined(lambda A, f=bounded: ((r := linalg.eigh(A))[1] * f(r[0]) @ r[1].mT)[0].sum(), TIED)
        assert said in str(report)
        assert ("kink" in str(report)) == bool(said)


@pytest.mark.parametrize(
    "use",
    [
        lambda w, V: V.mT @ V,
        lambda w, V: V @ V.mT,
        lambda w, V: V.mT @ torch.diag(w) @ V,
        lambda w, V: V @ torch.ones(4, 4, dtype=V.dtype) @ V.mT,
        lambda w, V: (V * linalg.eigh(APART).eigenvalues) @ V.mT,
        lambda w, V: w.sqrt().sum() * V,
        lambda w, V: torch.diag(V),
        lambda w, V: (V * torch.ones_like(w)) @ V.mT,
        lambda w, V: (V * (w > 2)) @ V.mT,
        lambda w, V: torch.einsum("ij,j,ik->jk", V, w, V),  # f Vᵀ V
        lambda w, V: torch.einsum("ji,j,jk->ik", V, w, V),  # Vᵀ f V
        lambda w, V: torch.einsum("ij,j,kj->ik", V, torch.arange(4.0, dtype=V.dtype), V),
        lambda w, V: torch.einsum("ij,j,kj->ijk", V, w, V),
        lambda w, V: torch.einsum("bi,ij,j->b", X, V, w),
        lambda w, V: torch.einsum(V, [0, 1], w, [1], X, [2, 0], [2, 1]),
    ],
)
def test_nothing_else_is_taken_for_a_matrix_function(use):
    A = APART.clone().requires_grad_()
    with doctor() as report:
        use(*linalg.eigh(A)).sum().backward()
    assert [x for finding in report.findings for x in finding.composed] == []


CASES = {
    "non-finite": (lambda A: linalg.eigh(A).eigenvectors[0, 0], torch.eye(3)),
    "arrived non-finite": (lambda A: (V := linalg.eigh(A))[1][0, 0] + V[0].sub(1).sqrt().sum(), torch.eye(3)),
    "gauge": (lambda A: sg.eigh(A).eigenvectors[1, 0], TIED),
    "lost": (lambda A: ((r := sg.eigh(A))[1] * r[0].log() @ r[1].mT)[0, 1], TIED),
    "noisy": (lambda A: linalg.eigh(A).eigenvectors[1, 0], with_spectrum([1.0, 1.0 + 2.6e-5, 3.0], seed=2).float()),
    "fine": (lambda A: linalg.eigh(A).eigenvectors[1, 0], APART),
    "fine at a tie": (lambda A: linalg.eigvalsh(A).square().sum(), TIED),
    "fine projector": (lambda A: sg.eigh(A).eigenvectors[:, :2].square()[0].sum(), TIED),
    "fine function": (lambda A: sg.matrix_sqrt(A)[0].sum(), SINGULAR),
    "fine polar": (lambda A: sg.polar(A)[0].sum(), TIED),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name):
    loss, A = CASES[name]
    report, _ = examined(loss, A)
    verdict = next(v for v in VERDICTS if name.startswith(v))
    assert report.findings[0].verdict == verdict
    assert report.healthy == (verdict == "fine")
    assert ("✓" if report.healthy else verdict) in str(report)


def test_the_estimate_of_the_error_is_of_the_right_size():
    """In float32, against float64 on the same matrix."""
    for gap in (1e-5, 1e-3):
        A = with_spectrum([1.0, 1.0 + gap, 3.0], seed=2)
        report, got = examined(CASES["noisy"][0], A.float())
        exact = torch.autograd.grad(CASES["noisy"][0](X := A.float().double().requires_grad_()), X)[0]
        true = min(float((s * got.double() - exact).norm() / exact.norm()) for s in (1, -1))  # the sign is arbitrary
        assert true / 100 < report.findings[0].error < 100 * true + 1e-6


def test_the_numbers_of_a_finding():
    report, gradient = examined(lambda A: sg.eigh(A).eigenvectors[1, 0], TIED)
    finding = report.findings[0]
    assert (finding.operation.name, finding.shape, finding.dtype) == ("sg.eigh", (4, 4), "float64")
    assert (finding.ties, finding.rank, finding.size, finding.calls, finding.gradients) == (1, 4, 4, 1, 1)
    assert finding.relative_gap < 1e-15
    assert finding.condition == pytest.approx(4)
    V = sg.eigh(TIED).eigenvectors
    assert finding.between_ties == pytest.approx(float(V[1, :2].abs()[1]), rel=1e-9)  # the cotangent is one unit vector
    assert gradient.isfinite().all()
    assert examined(lambda A: linalg.eigh(A).eigenvalues.sum(), SINGULAR)[0].findings[0].rank == 2


def step(dtype):
    """A training step with everything that the doctor watches; returns all numbers that it produces."""
    torch.manual_seed(0)
    X = torch.randn(3, 5, 4, dtype=dtype, requires_grad=True)
    C = X.mH @ X
    w, V = linalg.eigh(C)
    U, S, Vh = linalg.svd(X, full_matrices=False)
    W, T = sg.eigh(C.mH)
    total = (V * w.log().unsqueeze(-2)) @ V.mH + sg.matrix_sqrt(C) + (T * W.unsqueeze(-2)) @ T.mH + C
    loss = total.abs().sum() + (U @ Vh).abs().sum() + linalg.eigvalsh(C)[..., 0].sum() + linalg.pinv(X).abs().sum()
    loss.backward()
    return [loss.detach(), X.grad, w.detach(), V.detach(), S.detach()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128], ids=str)
def test_the_step_does_not_change_by_a_bit(dtype):
    expected = step(dtype)
    with doctor() as report:
        got = step(dtype)
    assert all(torch.equal(x, y) for x, y in zip(got, expected, strict=True))
    assert len(report.findings) == 6
    assert all(finding.gradients == 1 for finding in report.findings)


def test_calls_from_one_line_are_aggregated_and_places_are_limited():
    A = APART.clone().requires_grad_()
    with doctor(places=1) as report:
        for _ in range(3):
            linalg.eigh(A).eigenvalues.sum().backward()
        linalg.eigvalsh(A)
    assert [(x.calls, x.gradients) for x in report.findings] == [(3, 3)]
    assert report.omitted == 1
    assert "1 call at further places not recorded" in str(report)


def test_nothing_is_kept_alive():
    with doctor() as report:
        A = TIED.clone().requires_grad_()
        w, V = linalg.eigh(A)
        root = (V * w.sqrt()) @ V.mT
        root.sum().backward()
        alive = [weakref.ref(x) for x in (A, w, V, root)]
        del A, w, V, root
        gc.collect()
        assert [x() for x in alive] == [None] * 4
    assert report.findings[0].gradients == 1


def test_traces_are_bounded_and_end_with_their_tensors():
    lineage = Lineage()
    trace = Trace("source", "values", "w", 2)
    kept = [torch.zeros(()) for _ in range(_ALIVE + 1)]
    for x in kept:
        lineage.start(x, trace)
    assert lineage.of(kept[0]) is trace
    assert lineage.of(kept[-1]) is None
    kept.clear()
    assert lineage.of(torch.zeros(())) is None
    assert not lineage._traces


def test_a_backward_pass_after_the_context_counts():
    A = torch.eye(2, requires_grad=True)
    with doctor() as report:
        loss = linalg.eigh(A).eigenvectors[0, 0]
    assert report.healthy
    loss.backward()
    assert report.findings[0].verdict == "non-finite"


def test_a_call_that_fails_is_reported_and_the_error_passes():
    with pytest.raises(sg.NonFiniteError), doctor() as report:
        sg.eigh(torch.full((2, 2), torch.nan))
    assert report.findings[0].verdict == "error"
    assert "NonFiniteError" in str(report)
    assert "input contains NaN or Inf" in str(report)
    assert not report.healthy


def test_the_cause_comes_before_what_it_caused():
    A = torch.eye(3, requires_grad=True)
    with doctor() as report:
        gradient = torch.autograd.grad(linalg.eigh(A).eigenvectors[0, 0], A)[0]  # the cause
        with pytest.raises(linalg.LinAlgError):
            linalg.eigh(A + gradient)
    cause, failed = report.findings
    assert (cause.verdict, failed.verdict) == ("non-finite", "error")
    text = str(report)
    assert text.index("# the cause") < text.index("error: the call failed")
    assert failed.advice == [f"Its input contains NaN or Inf, probably from the gradient of {cause.place}."]


def test_a_loop_that_fails_after_a_bad_gradient_names_the_gradient():
    def train(A):
        for _ in range(2):
            A = A + torch.autograd.grad(linalg.eigh(A).eigenvectors[0, 0], A)[0]

    with doctor() as report, pytest.raises(linalg.LinAlgError):
        train(torch.eye(3, requires_grad=True))
    (finding,) = report.findings
    assert finding.verdict == "non-finite"
    assert dict(finding.verdicts) == {"non-finite": 1, "error": 1}
    assert finding.failure in str(report)


def test_a_gradient_that_arrives_non_finite_is_blamed_on_its_cause():
    A = torch.eye(3, requires_grad=True)
    with doctor() as report:
        B = sg.matrix_sqrt(A + torch.diag(torch.arange(3.0)))
        linalg.eigh(B * 0 + A).eigenvectors[0, 0].backward()
    arrived, cause = report.findings
    assert (arrived.verdict, cause.verdict) == ("arrived non-finite", "non-finite")
    assert arrived.advice == [f"NaN or Inf probably comes from the gradient of {cause.place}; see there."]


NORMS = {
    "torch.linalg.matrix_norm": lambda M: linalg.matrix_norm(M, "nuc"),
    "torch.linalg.norm": lambda M: linalg.norm(M, "nuc"),
    "torch.norm": lambda M: torch.norm(M, "nuc"),
    "Tensor.norm": lambda M: M.norm("nuc"),
    "torch.linalg.cond": lambda M: linalg.cond(M),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_decomposition_inside_a_function_of_torch_has_its_line(name):
    report, _ = examined(lambda M: NORMS[name](M), APART)
    (finding,) = report.findings
    assert (finding.operation.name, finding.calls, finding.gradients) == (name, 1, 1)
    assert (finding.shape, finding.dtype) == ((4, 4), "float64")
    assert finding.place.file == __file__
    report, _ = examined(lambda M: M.norm() + linalg.matrix_norm(M), APART)
    assert report.findings == []


def test_without_spectral_calls_and_without_gradients():
    with doctor() as report:
        torch.ones(2, 2).sum()
    assert str(report) == "No spectral operation was called in this thread."
    assert report.healthy
    with doctor() as report:
        linalg.eigh(TIED)
    assert report.findings[0].gradients == 0
    assert report.healthy


def test_calls_in_another_thread_are_not_recorded():
    with doctor() as report:
        thread = threading.Thread(target=linalg.eigh, args=(TIED,))
        thread.start()
        thread.join()
    assert str(report) == "No spectral operation was called in this thread."


def test_transforms_compiled_functions_and_threads_still_work():
    with doctor() as report:
        batched = torch.vmap(torch.func.grad(lambda A: linalg.eigh(A).eigenvalues.sum()))(TIED.expand(2, 4, 4))
        compiled = torch.compile(lambda A: linalg.eigh(A).eigenvalues.sum(), fullgraph=True, backend="aot_eager")(TIED)
        thread = threading.Thread(target=lambda: linalg.eigvalsh(TIED))
        thread.start()
        thread.join()
        A = APART.clone().requires_grad_()
        rows = torch.autograd.grad(linalg.eigvalsh(A), A, torch.eye(4, dtype=A.dtype), is_grads_batched=True)[0]
    assert torch.allclose(rows.sum(0), torch.eye(4, dtype=A.dtype), atol=1e-14)
    assert torch.allclose(batched, torch.eye(4, dtype=torch.float64).expand(2, 4, 4), atol=1e-14)
    assert float(compiled) == pytest.approx(9)
    assert report.unseen == 1
    assert [(x.operation.name, x.gradients) for x in report.findings] == [
        ("torch.linalg.eigh", 0),
        ("torch.linalg.eigvalsh", 1),
    ]
    assert "1 call inside torch.func transforms" in str(report)


def test_a_scripted_function_is_found_in_the_graph():
    scripted = torch.jit.script(scripted_vectors)
    A = torch.eye(3, requires_grad=True)
    with doctor() as report:
        loss = scripted(A)[0, 0] + linalg.eigh(APART.clone().requires_grad_()).eigenvalues.sum()
        loss.backward(retain_graph=True)
        loss.backward()
    unknown, known = sorted(report.findings, key=lambda finding: finding.place.line)
    assert (unknown.verdict, unknown.operation.name, unknown.gradients) == ("non-finite", "torch.linalg.eigh", 2)
    assert (known.verdict, known.gradients) == ("fine", 2)
    assert "TorchScript or another thread" in str(report)
    assert "PYTORCH_JIT=0" in str(report)
    assert json.loads(report.as_json())["findings"][1]["rank"] is None


def scripted_vectors(A: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigh(A)[1]


def test_an_svd_of_a_positive_matrix_is_taken_for_its_eigendecomposition():
    for M, instead in ((TIED, "sg.matrix_inv_sqrt(A)"), (-TIED, "sg.matrix_function(M @ M.mH")):
        report, _ = examined(lambda M: ((r := linalg.svd(M))[0] * r[1].rsqrt() @ r[0].mT)[0].sum(), M)
        assert report.findings[0].instead(report.findings[0].composed[0]).startswith(instead)


def test_inside_a_rescue_the_callers_line_is_named():
    A = torch.eye(3, requires_grad=True)
    with doctor() as report, sg.override_linalg():
        linalg.eigh(A).eigenvectors[0, 1].backward()  # the place
    finding = report.findings[0]
    assert finding.place.code.endswith("# the place")
    assert (finding.operation.name, finding.verdict) == ("sg.eigh", "gauge")


def test_json(tmp_path):
    report, _ = examined(lambda A: ((r := linalg.eigh(A))[1] * r[0].sqrt() @ r[1].mT).sum(), TIED)
    report.save(tmp_path / "report.json")
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert content == json.loads(report.as_json())
    (row,) = content["findings"]
    assert row["file"] == __file__
    assert row["instead"] == ["sg.matrix_sqrt(A)"]
    assert row["verdict"] == report.findings[0].verdict
    assert row["advice"] == report.findings[0].advice != []
    assert content["healthy"] is False


def test_bad_arguments():
    for name in ("sample", "places"):
        with pytest.raises(sg.ArgumentError, match=f"doctor: expected {name} to be an integer ≥ 1, got 0"):
            doctor(**{name: 0})


def test_a_batch_is_sampled_but_checked_for_nan_as_a_whole():
    A = APART.repeat(100, 1, 1)
    A[37] = torch.eye(4)
    A.requires_grad_()
    with doctor(sample=3) as report:
        linalg.eigh(A).eigenvectors[:, 0, 0].sum().backward()
    assert report.findings[0].verdict == "non-finite"
    assert report.findings[0].ties == 6


def test_by_default_64_matrices_of_a_batch_are_examined():
    """Evenly spaced: of 65 every second one, of 64 all."""
    for count, verdict in ((64, "values"), (65, "fine")):
        A = APART.repeat(count, 1, 1)
        A[1] = TIED
        report, _ = examined(lambda A: linalg.eigvalsh(A)[:, 0].sum(), A)
        assert report.findings[0].verdict == verdict


def test_by_default_200_places_are_recorded():
    lines = compile("\n" + "f(A)\n" * 203, "many_places.py", "exec")
    with doctor() as report:
        exec(lines, {"f": linalg.eigvalsh, "A": APART})
    assert (len(report.findings), report.omitted) == (200, 3)


def test_packages_whose_names_begin_like_ours_or_torchs_are_places():
    for package in (torch, sg):
        folder = Path(package.__file__).parent
        assert str(folder / "nn" / "module.py").startswith(_SKIPPED)
        assert not str(folder.with_name(f"{folder.name}vision") / "ops.py").startswith(_SKIPPED)


def test_further_arguments_reach_the_function():
    """Positional and by name; the lower triangle of this matrix is wrong."""
    A = APART.triu() - torch.ones(4, 4, dtype=torch.float64).tril(-1)
    with doctor():
        for w in (linalg.eigh(A, "U").eigenvalues, linalg.eigvalsh(A, UPLO="U")):
            torch.testing.assert_close(w, linalg.eigvalsh(APART))
        assert linalg.svd(A[:3], False).Vh.shape == (3, 4)


@pytest.mark.parametrize("f", [sg.matrix_sqrt, sg.eigh, sg.svd, sg.eigvalsh, sg.nuclear_norm], ids=lambda f: f.__name__)
def test_errors_of_this_library_speak_for_themselves(f):
    with doctor() as report, pytest.raises(sg.SpectralError):
        f(torch.ones(3))
    assert "The message says what was expected." in str(report)


def test_a_call_in_an_installed_package_names_the_caller_outside():
    file, names = Path(sysconfig.get_paths()["purelib"]) / "other" / "layer.py", {}
    exec(compile("def call(f):\n    return (lambda: f())()\n", file, "exec"), names)
    place = names["call"](calling_place)  # the caller
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# the caller"))
    assert (place.file, place.line) == (str(file), 2)
    assert place.called_from.endswith(f"test_doctor.py:{line}")
    assert calling_place().called_from == ""
