"""The benchmark: right before fast, complete reports, threads left as found. No time is asserted."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from spectralgrad.cli import main
from spectralgrad_lab.bench import (
    Case,
    Contest,
    Contestant,
    accuracy,
    as_json,
    command,
    comparisons,
    cost_figure,
    details,
    hold,
    jax_rivals,
    matrices,
    race,
    run,
    timing,
)
from spectralgrad_lab.bench.cases import SPECTRA
from spectralgrad_lab.bench.rivals import newton_schulz
from spectralgrad_lab.bench.stored_outcomes import here
from spectralgrad_lab.bench.studies import large_operators

from .. import forked
from ..helpers import in_turn

TINY = [
    ("eigh", Case(4, 3, torch.float32)),
    ("eigh", Case(4, 3, torch.float64)),
    ("eigh", Case(2, 8, torch.float32)),
    ("inv_sqrt", Case(4, 3, torch.float32)),
    ("inv_sqrt", Case(2, 32, torch.float32)),
    ("covariance", Case(2, 8, torch.float32, "gaussian", 5)),
    ("polar", Case(1, 4, torch.float32, "gaussian", 9)),
    ("procrustes", Case(4, 5, torch.float32, "gaussian", 3)),
    ("cca", Case(2, 9, torch.float32, "gaussian", 4)),
    ("rmsd", Case(4, 5, torch.float32, "gaussian", 3)),
    ("eigh", Case(3, 4, torch.complex64)),
    ("eigvalsh", Case(3, 4, torch.float32)),
    ("svd", Case(3, 4, torch.float32, "gaussian", 4)),
    ("svd", Case(3, 6, torch.float64, "gaussian", 2)),
    ("svd", Case(3, 2, torch.complex64, "gaussian", 6)),
    ("svd_grad", Case(3, 6, torch.float32, "gaussian", 3)),
    ("svd_grad", Case(3, 3, torch.float64, "gaussian", 6)),
    ("whitening", Case(8, 3, torch.float32, "gaussian", 16)),
    ("generalised", Case(3, 4, torch.float32)),
    ("generalised", Case(3, 4, torch.complex128)),
    ("frechet", Case(2, 4, torch.float32, "gaussian", 9)),
    ("fourth_root", Case(8, 5, torch.float32)),
    ("lstsq", Case(2, 9, torch.float32, "gaussian", 4)),
    ("pinv", Case(2, 5, torch.float32, "gaussian", 5)),
    ("lyapunov", Case(3, 4, torch.float32)),
]


@pytest.fixture(scope="module")
def outcomes():
    return run(TINY, seconds=0.005)


@pytest.fixture
def tiny(monkeypatch):
    """The command with cells that take no time."""
    monkeypatch.setattr(command, "plan", lambda *_: TINY)


@in_turn("spectrum", SPECTRA, d=[3, 16], dtype=[torch.float32, torch.float64])
def test_ours_and_torch_are_right_on_every_spectrum(spectrum, dtype, d):
    eigh, root = run([(name, Case(5, d, dtype, spectrum)) for name in ("eigh", "inv_sqrt")], seconds=0.001)
    assert eigh["ours"].right
    assert eigh["torch"].right
    assert root["exact"].right


def test_spectra_are_what_they_say():
    graded, clustered, deficient = (
        torch.linalg.eigvalsh(matrices(Case(2, 8, torch.float64, name)))
        for name in ("graded", "clustered", "rank-deficient")
    )
    torch.testing.assert_close(graded.flip(-1)[0], torch.logspace(0, -12, 8, dtype=torch.float64), rtol=1e-3, atol=0)
    assert ((clustered[0].diff() > 1e-3).sum() == 2).all()
    assert ((deficient > 1e-12).sum(-1) == 4).all()
    definite = matrices(Case(2, 8, torch.float32, "graded"), definite=True)
    assert torch.linalg.cond(definite.double()).max() < 4e3


@pytest.mark.runs
def test_every_contest_times_everyone(outcomes):
    assert {o.contest for o in outcomes} == set(comparisons.CONTESTS)
    right = {"ours", "exact", "function", "torch", "svd"}
    for outcome in outcomes:
        for entry in outcome.entries:
            assert entry.note == "", entry
            assert entry.timing is not None
            assert entry.timing.calls >= 2
        assert all(entry.right for entry in outcome.entries if entry.name in right)


def test_a_wrong_contestant_is_reported_and_not_timed():
    case = Case(2, 3, torch.float32)
    A = matrices(case)
    calls = []

    def wrong():
        calls.append(1)
        w, V = torch.linalg.eigh(A)
        return w * 1.01, V

    def raises():
        raise RuntimeError("no such luck")

    exact = {"ours": True, "exact": True}
    contestants = [
        Contestant("off", wrong, **exact),
        Contestant("broken", raises, **exact),
        Contestant("torch", lambda: torch.linalg.eigh(A), exact=True),
        Contestant("rough", wrong),
    ]
    outcome = hold(Contest("eigh", case, contestants[:3], accuracy.eigenpairs(A)), 0.001)
    assert calls == [1]
    assert (outcome["off"].right, outcome["off"].timing, outcome.ratio("off", "torch")) == (False, None, None)
    assert outcome["torch"].timing is not None
    text = details([outcome])
    assert "wrong (0.0" in text
    assert "failed" in text
    assert "no such luck" in outcome["broken"].note
    json.dumps(as_json(here([outcome], 0.001)), allow_nan=False)

    approximate = hold(Contest("eigh", case, contestants[2:], accuracy.eigenpairs(A)), 0.001)
    assert approximate["rough"].timing is not None
    assert not approximate["rough"].right


def test_nan_is_wrong_and_becomes_null():
    A = torch.eye(3).expand(2, 3, 3)
    nan = Contestant("ours", lambda: (A[..., 0] * torch.nan, A), ours=True, exact=True)
    outcome = hold(Contest("eigh", Case(2, 3, torch.float32), [nan], accuracy.eigenpairs(A)), 0.001)
    (entry,) = as_json(here([outcome], 0.001))["results"][0]["contestants"]
    assert (entry["error"], entry["right"], entry["seconds"]) == (None, False, None)


def test_judges_see_a_wrong_gradient():
    A, G = torch.diag_embed(torch.rand(2, 4) + 1), torch.eye(4).expand(2, 4, 4)
    value = torch.diag_embed(A.diagonal(dim1=-2, dim2=-1).rsqrt())
    gradient = torch.diag_embed(-(A.diagonal(dim1=-2, dim2=-1) ** -1.5) / 2)
    judge = accuracy.inverse_root(A, G)
    assert judge((value, gradient)).right
    assert not judge((value, 1.01 * gradient)).right
    assert not judge((1.01 * value, gradient)).right


def test_newton_schulz_converges_to_the_roots():
    A = matrices(Case(3, 5, torch.float64, "clustered"))
    root, inverse = newton_schulz(A, 30), newton_schulz(A, 30, inverse=True)
    torch.testing.assert_close(root @ root, A)
    torch.testing.assert_close(root @ inverse, torch.eye(5, dtype=torch.float64).expand_as(A))


@pytest.mark.parametrize("fails", [False, True])
def test_thread_count_is_restored(fails):
    found = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = set()

        def job():
            seen.add(torch.get_num_threads())
            if fails:
                raise KeyboardInterrupt

        try:
            race({"a": (job, (1, 2)), "b": (job, (2,))}, 0.001)
        except KeyboardInterrupt:
            assert fails
        assert seen == ({1} if fails else {1, 2})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(found)


def test_race_without_jobs_is_empty():
    assert race({}, 0.001) == {}


def test_a_long_call_has_one_turn(monkeypatch):
    monkeypatch.setattr(timing, "_LONG", 0.0)
    calls = []
    times = race({"slow": (lambda: calls.append(1), (1,))}, 0.0)
    assert times["slow"].calls == len(calls) == 1


def test_table_has_a_row_a_size_and_a_column_a_pair(outcomes):
    known = [o for o in outcomes if not o.case.dtype.is_complex]
    ratios = details(_without_jax(known)).split("\n\n")
    assert ratios[0] == "eigh, wishart: times faster"
    header, _, three, eight = ratios[1].splitlines()
    assert header.split() == ["f32", "ours:torch", "f64", "ours:torch"]
    assert len(three.split()) == 4  # d=3 (4) and two figures
    assert len(eight.split()) == 3  # float64 was not measured
    for pair in ("exact:autograd", "exact:ns5", "exact:ns10", "taylor:autograd", "taylor:ns5", "ours:svd"):
        assert pair in "\n".join(ratios)


def _without_jax(outcomes):
    return [replace(o, entries=tuple(e for e in o.entries if e.name != "jax")) for o in outcomes]


def test_json_names_machine_and_every_figure(outcomes):
    content = json.loads(json.dumps(as_json(here(outcomes, 0.005)), allow_nan=False))
    assert content["machine"]["torch"] == torch.__version__
    assert {"cpu", "instruction set", "threads", "date"} <= set(content["machine"])
    assert len(content["results"]) == len(TINY)
    first = content["results"][0]
    assert (first["contest"], first["batch"], first["size"], first["dtype"]) == ("eigh", 4, 3, "float32")
    ours, theirs = first["contestants"][:2]
    assert first["ratios"]["ours:torch"] == pytest.approx(theirs["seconds"] / ours["seconds"])


@pytest.mark.runs
def test_command_prints_writes_and_draws(tiny, tmp_path, capsys):
    image, results = tmp_path / "cost.png", tmp_path / "bench.json"
    options = ["--seconds", "0.002", "--json", str(results), "--plot", str(image), "--details"]
    assert main(["bench", *options]) == 0
    out = capsys.readouterr().out
    assert "comparisons with a floor" in out
    assert "times faster" in out
    assert "worst relative error" in out
    assert image.read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(results.read_text())["results"]) == len(TINY)
    assert sorted(tmp_path.iterdir()) == sorted([image, results])


def test_an_image_of_nothing_is_drawn_too(tmp_path):
    cost_figure.cost(tmp_path / "empty.png", here([], 0.001))
    assert (tmp_path / "empty.png").stat().st_size > 0


def test_a_missing_folder_is_told_before_working(tmp_path, capsys):
    assert main(["bench", "--json", str(tmp_path / "missing" / "out.json")]) == 1
    assert "does not exist; create it first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "lu"], "expected some of eigh, eigvalsh, svd, svd_grad, inv_sqrt"),
        (["--dtype", "float16"], "expected some of float32, float64, complex64, complex128"),
        (["--spectrum", "wishart,flat"], "got 'flat'"),
        (["--seconds", "0"], "expected a positive number of seconds"),
        (["--seconds", "soon"], "expected a positive number of seconds"),
    ],
)
def test_wrong_usage_exits_with_two(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_importing_the_package_does_not_load_the_benchmark():
    code = "import sys, spectralgrad; print([name for name in sys.modules if 'spectralgrad_lab.bench' in name])"
    done = forked.run("-c", code, check=True)
    assert done.stdout.strip() == "[]"


def test_judges_of_singular_values_see_each_factor():
    M = matrices(Case(2, 6, torch.float32, "gaussian", 4))
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    judge = accuracy.singular_triplets(M)
    assert judge((U, S, Vh)).right
    assert not judge((1.01 * U, S / 1.01, Vh)).right  # the residual is zero, U is not orthonormal
    assert not judge((U, S / 1.01, 1.01 * Vh)).right
    assert not judge((U, 1.01 * S, Vh)).right
    assert not judge((-U, S, Vh)).right
    assert not accuracy.eigenvalues(M.mT @ M)((S**2,)).right  # descending


@pytest.mark.parametrize("contest", ["svd_grad", "whitening", "rmsd", "cca"])
def test_judges_of_gradients_see_value_and_gradient(contest):
    contest = comparisons.CONTESTS[contest](Case(8, 3, torch.float64, "gaussian", 3))
    value, gradient = contest.contestants[0].run()
    assert contest.judge((value, gradient)).right
    assert not contest.judge((value, 1.01 * gradient)).right
    assert not contest.judge((1.01 * value, gradient)).right


def test_a_large_batch_repeats_its_matrices_and_is_checked_in_part(monkeypatch):
    from spectralgrad_lab.bench import cases

    monkeypatch.setattr(cases, "_DISTINCT", 9 * 4)
    case = Case(10, 3, torch.float32)
    A = matrices(case)
    assert case.distinct == 4
    assert A.shape == (10, 3, 3)
    assert torch.equal(A[:4], A[4:8])

    def off(place, value):
        w, V = torch.linalg.eigh(A)
        w[place] = value
        return w, V

    def judged(place, value):
        contestant = Contestant("ours", lambda: off(place, value), ours=True, exact=True)
        judge = accuracy.eigenpairs(A[comparisons.checked(case)])
        return hold(Contest("eigh", case, [contestant], judge), 0.001)["ours"].right

    assert comparisons.checked(case).tolist() == [0, 3, 6, 9]
    assert not judged(9, 5.0)  # checked
    assert not judged(1, torch.nan)  # not checked, but not finite
    assert run([("eigh", case)], 0.001)[0]["ours"].right


def test_a_large_batch_of_features_is_whitened_as_a_whole_and_checked_in_part(monkeypatch):
    from spectralgrad_lab.bench import cases

    monkeypatch.setattr(cases, "_DISTINCT", 3 * 5 * 4)
    case = Case(10, 3, torch.float32, "gaussian", 5)
    assert case.distinct == 4
    (outcome,) = run([("whitening", case)], 0.001)
    assert outcome["ours"].right
    assert not any(entry.note for entry in outcome.entries)


def test_functions_of_newer_versions_of_torch_take_part(monkeypatch):
    def root(A):
        w, V = torch.linalg.eigh(A)
        return (V * w.sqrt().unsqueeze(-2)) @ V.mH

    def polar(M):
        assert M.shape[-2] >= M.shape[-1]
        U, _, Vh = torch.linalg.svd(M, full_matrices=False)
        return U @ Vh, None

    monkeypatch.setattr(torch.linalg, "matrix_sqrth", root, raising=False)
    monkeypatch.setattr(torch.linalg, "polar", polar, raising=False)
    plan = [("inv_sqrt", Case(2, 3, torch.float32)), *(("polar", _gaussian(*shape)) for shape in ((3, 5), (5, 3)))]
    inverse, wide, tall = run(plan, 0.001)
    assert inverse["sqrth"].right
    assert wide["polar"].right
    assert tall["polar"].right


def _gaussian(rows, columns):
    return Case(2, rows, torch.float32, "gaussian", columns)


def test_jax_takes_part_where_it_is_installed(outcomes):
    pytest.importorskip("jax", reason="JAX is optional: it is only compared with")
    without = ("covariance", "whitening", "frechet", "fourth_root", "procrustes", "rmsd", "cca", "generalised")
    for outcome in outcomes:
        assert ("jax" in outcome) == (outcome.contest not in without)
        if "jax" in outcome:
            assert outcome["jax"].right, outcome
            assert outcome["jax"].timing is not None


def test_without_jax_the_others_run(monkeypatch):
    monkeypatch.setattr(jax_rivals, "installed", lambda: False)
    (outcome,) = run([("svd", _gaussian(3, 2))], 0.001)
    assert [entry.name for entry in outcome.entries] == ["ours", "torch"]


def test_a_broken_jax_is_reported(monkeypatch):
    def broken():
        raise ImportError("jaxlib is missing")

    monkeypatch.setattr(jax_rivals, "installed", lambda: True)
    monkeypatch.setattr(jax_rivals, "_jax", broken)
    (outcome,) = run([("svd", _gaussian(3, 2))], 0.001)
    assert outcome["jax"].note == "ImportError: jaxlib is missing"
    assert outcome["torch"].timing is not None


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc")
def test_the_study_of_eigsh_agrees_with_the_whole_decomposition(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(large_operators, "_in_own_process", large_operators.measured)
    assert main(["bench", "eigsh", "--sides", "10", "--json", str(tmp_path / "study.json")]) == 0
    part, whole = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))["results"]
    assert part["kind"] == "eigsh"
    assert part["derivative"] == pytest.approx(whole["derivative"], rel=1e-9)
    assert "of 8nk bytes" in capsys.readouterr().out
