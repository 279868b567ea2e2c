"""inspect, gauge warnings, the conformance table, the method list."""

import dataclasses
import json
import math
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics import GaugeWarning, conformance, gauge_warnings, inspect
from spectralgrad.precision import negative_tolerance
from spectralgrad.rules import METHODS
from spectralgrad.testing import PolarReference, random_orthogonal, with_spectrum

from .helpers import DTYPES, matrix, noise, symmetric_noise, unit

DOUBLE = torch.float64


def test_inspect_counts_ties_rank_gap_and_condition():
    batch = torch.stack([with_spectrum([1.0, 2, 4, 8]), with_spectrum([1.0, 1, 1, 8]), with_spectrum([0.0, 0, 4, 8])])
    report = inspect(batch)
    assert report.rank.tolist() == [4, 4, 2]
    assert report.ties.tolist() == [0, 3, 1]
    assert_close(report.relative_gap[0], torch.tensor(1 / 8, dtype=DOUBLE))
    assert_close(report.condition[0], torch.tensor(8.0, dtype=DOUBLE))
    assert report.condition[2] > 1e14
    assert inspect(torch.eye(3)).exact_ties == 2


def test_inspect_of_zero_matrices_has_no_relative_gap():
    assert inspect(torch.zeros(1, 1)).relative_gap == 0
    assert inspect(torch.ones(1, 1)).relative_gap == math.inf
    assert inspect(torch.zeros(3, 3)).relative_gap == 0


@pytest.mark.parametrize(("degree", "ratio"), [(9, 0.5), (9, 0.9), (100, 0.99)])
def test_inspect_reports_taylor_bias_as_the_power_of_the_ratio(degree, ratio):
    report = inspect(torch.diag(torch.tensor([ratio, 1.0], dtype=DOUBLE)), method=sg.Taylor(degree=degree))
    assert_close(report.bias, torch.tensor(ratio ** (degree + 1), dtype=DOUBLE))
    assert_close(report.bound, torch.tensor(degree + 1.0, dtype=DOUBLE))


def test_inspect_measures_the_error_of_iterations_too():
    A = with_spectrum([1e-4, 0.1, 0.5, 1.0])
    errors = [float(inspect(A, method=sg.NewtonSchulz(steps=n)).gradient_error) for n in (3, 10, 30)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-8
    assert inspect(A, method="exact").gradient_error == 0


def test_inspect_gauge_sensitivity_tells_vectors_from_eigenspaces():
    A, G = with_spectrum([1.0, 1, 2]), symmetric_noise(3)
    assert inspect(A, loss=lambda w, V: V[0, 0]).gauge_sensitivity > 1e-3
    assert inspect(A, loss=lambda w, V: (V[:, :2] @ V[:, :2].mT * G).sum()).gauge_sensitivity < 1e-14
    assert inspect(A, loss=lambda w, V: V[0, 2]).gauge_sensitivity < 1e-14
    V = sg.eigh(A).eigenvectors.detach().requires_grad_()
    (cotangent,) = torch.autograd.grad(V[0, 0], V)
    assert_close(
        inspect(A, cotangent=cotangent).gauge_sensitivity, inspect(A, loss=lambda w, V: V[0, 0]).gauge_sensitivity
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_inspect_gauge_sensitivity_is_relative_to_both_columns(dtype):
    A = with_spectrum([1.0, 1, 2], dtype=dtype)
    cotangent = noise(3, 3, dtype=dtype) * torch.tensor([1.0, 100, 10])
    C, sizes = sg.eigh(A).eigenvectors.mH @ cotangent, torch.linalg.vector_norm(cotangent, dim=0)
    expected = (C[0, 1] - C[1, 0].conj()).abs() / (sizes[0] + sizes[1])
    assert_close(inspect(A, cotangent=cotangent).gauge_sensitivity, expected)


def test_inspect_prints_a_table_with_a_verdict():
    text = repr(inspect(torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 2, 3]))]), method="svd-clip"))
    assert text.startswith("2 matrices 3×3, float32, method svd-clip\n")
    assert re.search(r"condition number +\S+ +3 +1\n", text)
    assert re.search(r"exact ties +\S+ +2 +0\n", text)
    assert "Unresolved pairs: up to 3" in text


def test_inspect_reports_asymmetry():
    A = torch.eye(2, dtype=DOUBLE)
    A[0, 1] = 1.0
    assert_close(inspect(A).asymmetry, torch.tensor(math.sqrt(2 / 3), dtype=DOUBLE))


@pytest.mark.parametrize("method", [m for m in METHODS if m in {*sg.methods("eigh"), *sg.methods("sqrt")}])
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 3, 3), (2, 0, 3, 3)], ids=str)
def test_inspect_takes_any_shape_and_method(method, shape):
    assert repr(inspect(torch.ones(shape), method=method))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16], ids=str)
def test_inspect_takes_any_type(dtype):
    assert inspect(matrix("spread", torch.float32).to(dtype)).rank == 6


def test_inspect_refuses_a_cotangent_of_the_wrong_shape():
    with pytest.raises(sg.ShapeError, match=r"expected a cotangent of shape \(2, 2\)"):
        inspect(torch.eye(2), cotangent=torch.ones(3, 3))


def test_gauge_warnings_warn_where_no_gradient_exists_and_only_there():
    A, G = with_spectrum([1.0, 1, 2]).requires_grad_(), symmetric_noise(3)
    with gauge_warnings():
        with pytest.warns(GaugeWarning, match="choice of vectors"):
            sg.eigh(A).eigenvectors[0, 0].backward()
        with pytest.warns(GaugeWarning, match="choice of vectors"):
            sg.svd(A).U[1, 2].backward()
        V = sg.eigh(A).eigenvectors
        (V[:, :2] @ V[:, :2].mT * G).sum().backward()  # warnings are errors here
        sg.matrix_sqrt(A).sum().backward()
        torch.func.vmap(torch.func.grad(lambda X: sg.eigh(X).eigenvectors[0, 0]))(A.detach()[None])
    sg.eigh(A).eigenvectors[0, 0].backward()


@pytest.fixture(scope="module")
def results():
    return conformance.run("inv_sqrt", sizes=(4,))


def test_conformance_shows_exact_at_rounding_level_and_torch_without_a_gradient(results):
    modest = [r for r in results if r.dtype == "float64" and "κ=1e6" not in r.case and "κ=1e10" not in r.case]
    assert all(r.error < 1e-12 for r in modest if r.contestant == "exact")
    assert any(not r.error < 1e-3 for r in modest if r.contestant == "torch")
    assert all(r.error > 0.05 for r in results if r.contestant == "svd-taylor degree 9")


def test_conformance_prints_a_row_a_case_and_writes_json(results):
    lines = conformance.as_table(results).splitlines()
    assert len(lines) == 2 + len(conformance.cases((4,)))
    assert lines[0].split()[:4] == ["gradient", "error", "torch", "exact"]
    content = json.loads(json.dumps(conformance.as_json(results), allow_nan=False))
    assert len(content["results"]) == len(results)
    assert "no finite gradient for" in conformance.summary(results)


@pytest.fixture(scope="module")
def polar_results():
    return conformance.run("polar", sizes=(4,))


def test_conformance_of_the_polar_factor(polar_results):
    """exact to rounding at every gap, torch without a gradient at ties, the values of iterations better than slopes."""

    def errors(name, label):
        return [(r.error, r.value_error) for r in polar_results if r.contestant == name and label in r.case]

    for condition in (1e1, 1e2, 1e3, 1e6):
        label = f"f64 n=4 κ=1e{round(math.log10(condition))} "
        assert np.max(errors("exact", label)) < 100 * unit(DOUBLE) * condition
        assert errors("torch", label)[2][0] > 1e-6  # gap 1e-14
    assert math.isnan(errors("torch", "identity")[0][0])
    assert errors("torch", "identity")[0][1] < 1e-15
    for name in ("polar-express", "polar-express faithful", "muon"):
        assert all(0.01 < value < 0.3 and gradient > 0.5 for gradient, value in errors(name, "f64 n=4 κ=1e2"))
    assert np.max(errors("polar-express 8 steps", "f64 n=4 κ=1e2")) < 1e-12


def test_conformance_prints_gradients_and_values_of_the_polar_factor(polar_results, monkeypatch, capsys):
    monkeypatch.setattr(conformance, "run", lambda *arguments: polar_results)
    conformance.main("polar", (4,))
    lines = capsys.readouterr().out.splitlines()
    theirs = ["linalg.polar"] if hasattr(torch.linalg, "polar") else []  # new in torch 2.15
    heads = ["torch", *theirs, "exact", "express", "express°", "express8", "muon"]
    assert [line.split() for line in lines if " error " in line and "torch" in line][:2] == [
        ["gradient", "error", *heads],
        ["value", "error", *heads],
    ]
    assert sum(line.startswith(("f64 n=4", "f32 n=4")) for line in lines) == 2 * len(conformance.polar_cases((4,)))
    assert max(map(len, lines[:-1])) < 120
    rows = json.loads(json.dumps(conformance.as_json(polar_results), allow_nan=False))["results"]
    assert [row["value_error"] for row in rows] == [r.value_error for r in polar_results]
    assert None in [row["error"] for row in rows]


def test_conformance_includes_the_polar_factor_of_torch_where_it_exists(monkeypatch):
    monkeypatch.setattr(torch.linalg, "polar", lambda M: (M, M), raising=False)
    assert torch.equal(conformance.contestants("polar")["linalg.polar"](torch.eye(2)), torch.eye(2))


def test_the_reference_of_the_polar_factor():
    """A rotation times a positive matrix, and a difference of 50-digit values of fourth order."""
    M, D, G = torch.randn(3, 3, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    P = with_spectrum([1.0, 2.0, 2.0])
    assert_close(PolarReference(random_orthogonal(3) @ P).value(), random_orthogonal(3))
    loss = lambda t: (PolarReference(M + t * D).value() * G).sum()  # noqa: E731
    slope = (8 * (loss(1e-3) - loss(-1e-3)) - loss(2e-3) + loss(-2e-3)) / 12e-3
    assert_close((PolarReference(M).gradient(G) * D).sum(), slope, rtol=1e-8, atol=1e-8)


def test_conformance_records_a_contestant_that_raises(monkeypatch):
    def broken(function):
        def root(A):
            raise ZeroDivisionError("no")

        return {"broken": root}

    monkeypatch.setattr(conformance, "installed_peers", broken)
    monkeypatch.setattr(conformance, "cases", lambda sizes: [conformance.Case("one", (1.0, 2.0), DOUBLE)])
    (result,) = [r for r in conformance.run("sqrt") if r.contestant == "broken"]
    assert math.isnan(result.error)
    assert result.note == "ZeroDivisionError: no"


def test_methods_are_listed_and_frozen():
    assert list(sg.methods()) == list(METHODS)
    assert all(line in repr(sg.methods()) for line in sg.methods().values())
    assert "exact" not in sg.methods("eigh")
    for cls in METHODS.values():
        method = cls()
        assert hash(method) == hash(cls())
        assert method == cls()
        for field in dataclasses.fields(method):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(method, field.name, None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sg.Clip(threshold=0), "Clip: expected threshold > 0, got 0"),
        (lambda: sg.TopN(keep=0), "TopN: expected keep ≥ 1, got 0"),
        (lambda: sg.Taylor(degree=-1), "Taylor: expected degree ≥ 0, got -1"),
        (lambda: sg.Pade(floor=0.0), "Pade: expected floor > 0 and finite, got 0.0"),
        (lambda: sg.Lorentzian(broadening=0), "Lorentzian: expected broadening > 0 and finite, got 0"),
        (lambda: sg.SVDPI(iterations=0), "SVDPI: expected iterations ≥ 1, got 0"),
        (lambda: sg.NewtonSchulz(steps=0), "NewtonSchulz: expected steps ≥ 1, got 0"),
        (
            lambda: sg.NewtonSchulz(normalize="max"),
            "NewtonSchulz: expected normalize to be 'trace' or 'frobenius', got 'max'",
        ),
        (lambda: sg.NewtonSchulz(backward="exact"), "NewtonSchulz: expected backward"),
    ],
)
def test_methods_refuse_senseless_settings(make, message):
    with pytest.raises(sg.MethodError, match=re.escape(message)):
        make()


def test_newton_schulz_hands_out_the_residual_it_reached():
    residuals = []
    A = torch.stack([with_spectrum([0.5, 1.0, 2.0]), with_spectrum([1e-6, 1.0, 2.0])]).requires_grad_()
    method = sg.NewtonSchulz(steps=30, backward="lyapunov", lyapunov_steps=8, on_residual=residuals.append)
    sg.matrix_sqrt(A, method=method).sum().backward()
    (residual,) = residuals
    assert residual[0] < 1e-3 < residual[1]


@pytest.mark.parametrize(("share", "warns"), [(1 + 2**-6, True), (1 - 2**-6, False)])
def test_gauge_warnings_start_above_eight_epsilon_times_the_root_of_the_size(share, warns):
    d, A = 16, torch.eye(16, dtype=torch.float64).requires_grad_()
    G = torch.eye(d, dtype=torch.float64)
    G[0, 1] = share * 8 * d**0.5 * torch.finfo(A.dtype).eps
    G[1, 0] = -G[0, 1]
    with gauge_warnings(), pytest.warns(GaugeWarning) if warns else nullcontext():
        V = sg.eigh(A).eigenvectors
        (V * (V.detach() @ G)).sum().backward()


def test_gauge_warnings_pass_over_empty_matrices():
    A = torch.zeros(2, 0, 0, requires_grad=True)
    with gauge_warnings():
        sg.eigh(A).eigenvectors.sum().backward()
    assert A.grad.shape == (2, 0, 0)


@pytest.mark.parametrize(
    "method", [sg.Pade(floor=0.25), sg.Lorentzian(broadening=0.25), sg.Masked(tolerance=0.25)], ids=str
)
def test_bounds_are_attained_or_missed_by_little(method):
    """Pairs at every relative distance from 0 to 1; a bound ten times too large would say nothing."""
    w = torch.linspace(1, 2, 101, dtype=torch.float64)
    largest, bound = float(method.gaps(w).abs().max()), float(method.bound(w))
    assert largest <= bound * (1 + 1e-12)
    assert largest > 0.45 * bound
    assert float(method.bound(torch.zeros(3, dtype=torch.float64))) == 0


@pytest.mark.parametrize(
    "f", [sg.matrix_sqrt, sg.matrix_inv_sqrt, sg.matrix_log, sg.polar, lambda A: sg.eigh(A).eigenvalues]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_matrix_is_counted_once(f, dtype):
    A = with_spectrum([0.5, 1.0, 2.0], dtype=dtype).expand(7, 3, 3)
    sg.solvers.reset_report()
    f(A)
    report = sg.solvers.reset_report()
    assert (report.calls, report.matrices, report.failures) == (1, 7, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_inspect_has_no_gradient_error_where_the_root_does_not_exist(dtype):
    """From both sides of the tolerance for negative eigenvalues."""
    limit = negative_tolerance(4, dtype)
    for share, missing in ((0.25, False), (4.0, True)):
        A = with_spectrum([-share * limit, 0.3, 0.6, 1.0], dtype=dtype)
        assert bool(inspect(A).gradient_error.isnan()) is missing
