"""A few thousand difficult matrices through every operation and method; ``spectralgrad fuzz`` runs a million."""

import itertools
import json
import math
from functools import cache

import numpy as np
import pytest
import torch

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.diagnostics.fuzzing import FAMILIES, OPERATIONS, Campaign, cases, draw, operations, references
from spectralgrad.diagnostics.fuzzing.homogeneous import HOMOGENEOUS
from spectralgrad.diagnostics.fuzzing.references import Spectrum
from spectralgrad.diagnostics.fuzzing.scaling import judge_scales
from spectralgrad.testing import Reference, relative_error

from .helpers import unit

ROUNDS = max(len(operation.methods) for operation in OPERATIONS.values())
CASES = ROUNDS * len(FAMILIES)  # every method meets every family


@cache
def _campaign():
    campaign = Campaign(largest=24, batch=8)
    campaign.run(range(CASES))
    return campaign


@pytest.mark.xdist_group("campaign")  # or each worker of pytest-xdist would run it
@pytest.mark.parametrize("operation", OPERATIONS)
def test_difficult_matrices(operation):
    failures = _campaign().tallies[operation].failures
    first = {(f.method, f.check): f for f in reversed(failures)}
    assert not failures, "\n".join(f"{f}\n  {f.command}" for f in first.values())


@pytest.mark.parametrize("name", [name for name in HOMOGENEOUS if OPERATIONS[name].methods[0]])
def test_every_method_is_homogeneous_over_the_whole_range(name):
    """Values and gradients at 2^±500 and 2^±60 are those at scale one times a power of two."""
    operation = HOMOGENEOUS[name]
    for number, method in itertools.product(range(len(FAMILIES)), OPERATIONS[name].methods):
        case = draw(0, number, largest=8, batch=4)
        if case.kind in operation.kinds:
            wrong = {f.check: f.measure for f in judge_scales(operation, case, method) if f.failed}
            assert not wrong, f"{method}, {case}"


def test_a_few_thousand_matrices_of_every_family_type_and_scale():
    cases = [draw(0, number, batch=8) for number in range(CASES)]
    assert sum(len(case.matrices) for case in cases) > 2000
    assert {case.family for case in cases} == set(FAMILIES)
    assert {case.scale for case in cases} == {"one", "any", "denormal", "tiny", "huge", "edge"}
    assert {case.matrices.dtype for case in cases} == {torch.float32, torch.float64, torch.complex64, torch.complex128}
    assert all(bool(torch.isfinite(case.matrices).all()) for case in cases)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_what_their_names_say(name, is_complex):
    family = FAMILIES[name]
    for d in (1, 2, 5, 8):
        A = family.make(np.random.default_rng(d), 6, d, is_complex)
        assert len(A) == 6
        if family.kind == "features":
            continue
        assert np.array_equal(A, A.conj().swapaxes(-1, -2)) or name not in ("laplacian", "diagonal", "scalar")
        w, largest = np.linalg.eigvalsh(A), np.abs(A).max()
        np.testing.assert_allclose(A, A.conj().swapaxes(-1, -2), rtol=0, atol=1e-13 * largest)
        if family.kind == "positive":
            assert w.min() >= -1e-13 * max(largest, 1e-300) * d
        if name == "laplacian" and not is_complex:
            assert np.array_equal(A.sum(-1), np.zeros((6, d)))
        if name == "hadamard":
            assert np.abs(w - w.round()).max() < 1e-12
            assert set(w.round().ravel()) <= {0.0, 1.0, 2.0, 3.0}


def test_scales_and_cotangents_of_the_cases():
    """The largest entry has the exponent that the name of the scale means, and cotangents have an imaginary part."""
    cases = [draw(0, number, batch=2) for number in range(400)]
    for case in cases:
        info, G = torch.finfo(case.matrices.dtype), case.cotangent(case.matrices)
        assert torch.equal(G, case.cotangent(case.matrices))
        assert not G.is_complex() or float(G.imag.abs().max()) > 0
        largest = float(case.matrices.abs().max())
        if not largest:
            continue
        exponent, least, most = math.log2(largest), math.log2(info.tiny), math.log2(info.max)
        if case.scale == "tiny":
            assert abs(exponent - least / 2) <= 2
        elif case.scale == "huge":
            assert most / 2 - math.log2(case.matrices.shape[-2]) - 3 <= exponent <= most / 2
        elif case.scale == "edge":
            assert most - math.log2(case.matrices.shape[-2]) - 5 <= exponent <= most - 1
        elif case.scale == "denormal":
            assert least + math.log2(info.eps) - 1 <= exponent <= least + 1


def test_denormal_cases_have_every_exponent_that_is_representable():
    for dtype in (torch.float32, torch.float64):
        info, ones = torch.finfo(dtype), np.ones((1, 2, 2))
        found = {cases._exponent(np.random.default_rng(n), "denormal", ones, dtype) for n in range(1000)}
        least = math.log2(info.tiny)
        assert (min(found), max(found)) == (least + math.log2(info.eps) + 1, least)


def test_a_check_leaves_its_case_as_it_is():
    drawn = [draw(0, number, largest=6, batch=2) for number in range(len(FAMILIES))]
    for name, operation in OPERATIONS.items():
        case = next(case for case in drawn if case.kind in operation.kinds)
        before = case.matrices.clone()
        list(operation.judge(case, operation.prepare(case.matrices), operation.methods[0]))
        assert torch.equal(case.matrices, before), name
        assert not case.matrices.requires_grad, name


@pytest.mark.parametrize("name", ["eigh", "nuclear_norm"])
def test_every_method_has_its_turn_at_other_scales(name, monkeypatch):
    """One round over the families in 16, the next one a round later, so that another method has its turn."""
    monkeypatch.setattr(operations, "judge_scales", lambda scaled, case, method: [case.number])
    operation, rounds = OPERATIONS[name], operations.SCALED_ROUNDS
    drawn = (draw(0, n, largest=1, batch=1) for n in range(2 * rounds * len(FAMILIES)))
    fitting = ((case, operation.prepare(case.matrices)) for case in drawn if case.kind in operation.kinds)
    judged = [list(operation.judge(case, prepared, operation.methods[0])) for case, prepared in fitting]
    found = [number for findings in judged for number in findings if isinstance(number, int)]
    assert {number // len(FAMILIES) for number in found} == {0, rounds + 1}


@pytest.mark.parametrize("name", ["SQRT", "INV_SQRT", "POWER", "SQUARE", "INVERSE", "LOG", "EXP"])
def test_the_references_bound_second_divided_differences_by_half_the_second_derivative(name):
    function, w = getattr(references, name), torch.linspace(0.2, 3, 9, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function.value(w).sum(), w, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), w)
    torch.testing.assert_close(function.second(w.detach()), curvature.abs() / 2)


@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt", "log", "exp"])
def test_the_references_agree_with_fifty_digits(name):
    """The closed forms in double precision are themselves checked, on real matrices of ordinary scale."""
    function = getattr(references, name.upper())
    A = torch.stack([sg.testing.with_spectrum([0.5, 0.5, 0.5 + 1e-9, 1.0, 2.0], seed=s) for s in range(3)])
    G = torch.randn(3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reference = Spectrum(A).of(function)
    assert reference.spectrum.exponent.tolist() == [0.0] * 3
    for k in range(3):
        exact = Reference(A[k])
        assert relative_error(reference.value[k], exact.value(name)) < 100 * unit(A.dtype)
        assert relative_error(reference.gradient(G)[k], exact.gradient(name, G[k])) < 100 * 4 * unit(A.dtype)


def test_wrong_results_are_noticed(monkeypatch):
    """A relative error of 1e-3 in eigenvectors, values or gradients fails the operation that has it."""
    from spectralgrad.diagnostics.fuzzing import hermitian

    eigh = sg.eigh
    monkeypatch.setattr(hermitian, "eigh", lambda A, **options: (eigh(A, **options)[0], eigh(A, **options)[1] * 1.001))
    campaign = Campaign(("eigh",), batch=2)
    campaign.run(range(2))
    assert {f.check for f in campaign.failures} == {"LAPACK ratio"}
    sqrt = sg.matrix_sqrt
    monkeypatch.setattr(hermitian.matrix_functions, "matrix_sqrt", lambda A, **options: sqrt(A * 1.001, **options))
    campaign = Campaign(("matrix_sqrt",), methods=("exact",), batch=2)
    campaign.run([0])
    assert {"value", "gradient", "S·S = A"} == {f.check for f in campaign.failures}


@pytest.mark.parametrize("factor", [0, 2])
def test_vectors_that_are_not_orthonormal_are_noticed(factor, monkeypatch):
    """Also those of singular values that are zero, which the product of the factors does not see."""
    from spectralgrad.diagnostics.fuzzing import rectangular

    svd = sg.svd

    def spoiled(M, **options):
        return [f * 1.001 if number == factor else f for number, f in enumerate(svd(M, **options))]

    zero = draw(0, 0, batch=2)
    zero = zero._replace(matrices=torch.zeros(2, 4, 3, dtype=torch.float64))
    for decompose, noticed in ((svd, set()), (spoiled, {"LAPACK ratio"})):
        monkeypatch.setattr(rectangular, "svd", decompose)
        found = rectangular.judge_svd(zero, rectangular.Rectangle(zero.matrices), "svd-clip")
        assert {f.check for f in found if f.failed} == noticed


def test_an_exception_is_charged_to_its_matrix(monkeypatch):
    from spectralgrad.diagnostics.fuzzing import hermitian

    sqrt, bad = sg.matrix_sqrt, draw(0, 0, batch=3).matrices[1]

    def raises(A, **options):
        if any(torch.equal(bad, matrix) for matrix in A.detach()):
            raise RuntimeError("no")
        return sqrt(A, **options)

    monkeypatch.setattr(hermitian.matrix_functions, "matrix_sqrt", raises)
    campaign = Campaign(("matrix_sqrt",), batch=3)
    campaign.run([0])
    (failure,) = campaign.failures
    assert (failure.index, failure.check, failure.measure) == (1, "RuntimeError", "no")
    assert failure.command == 'spectralgrad fuzz --operation "matrix_sqrt" --method exact --case 0:0:40:3'


def test_the_command_prints_a_table_and_writes_json(capsys, tmp_path):
    target = tmp_path / "fuzz.json"
    arguments = ["fuzz", "--operation", "eigh,covariance", "--method", "svd-pade", "--matrices", "8000"]
    assert main([*arguments, "--json", str(target)]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("worst ratio", "worst gradient", "eigh", "covariance"))
    table = json.loads(target.read_text())["operations"]
    assert all(row["failures"] == [] and row["ratio"] < 30 for row in table)
    assert max(row["ratio"] for row in table) > 0.1  # something was measured


def test_the_command_reports_a_failure_and_how_to_see_it_again(capsys, monkeypatch):
    from spectralgrad.diagnostics.fuzzing import hermitian

    monkeypatch.setattr(hermitian.matrix_functions, "matrix_sqrt", lambda A, **_: A * torch.nan)
    assert main(["fuzz", "--operation", "matrix_sqrt", "--method", "exact", "--case", "0:0"]) == 1
    out = capsys.readouterr().out
    assert "matrix_sqrt by exact: value finite, no on wishart" in out
    assert 'repeat with: spectralgrad fuzz --operation "matrix_sqrt" --method exact --case 0:0' in out


def test_ctrl_c_shows_what_was_measured(capsys, monkeypatch):
    def stopped(self, numbers, after):
        Campaign.examine(self, draw(0, 0, batch=2))
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "run", stopped)
    assert main(["fuzz", "--operation", "eigh"]) == 0
    captured = capsys.readouterr()
    assert "stopped" in captured.err
    assert "worst ratio" in captured.out


@pytest.mark.parametrize("wrong", [["--operation", "sqrt"], ["--method", "foo"], ["--case", "1"], ["--matrices", "0"]])
def test_wrong_usage(wrong, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fuzz", *wrong])
    assert stop.value.code == 2
    assert "expected" in capsys.readouterr().err
