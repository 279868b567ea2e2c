"""The native kernel: LAPACK's bar for every size, independence of lanes, threads and neighbours, and its way down."""

import multiprocessing
import threading

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel, library, thresholds
from spectralgrad.native.calls import Symmetric
from spectralgrad.solvers import eigh_ratio
from spectralgrad.solvers.decompose import choice
from spectralgrad.solvers.decompose.operators import Operator
from spectralgrad.testing import random_orthogonal, relative_error, with_spectrum

from . import forked, kernel_calls
from .helpers import REAL, SPECTRA, gradient, symmetric_noise, unit

NATIVE = kernel_calls.calls()
needs_kernel = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built or is switched off")
SIZES = [*range(1, 34), 48, 63, 64, 65, 96, 127, 128, 129, 200, 257, 384, 512]


def _family(d, dtype):
    """Matrices of size d that have broken eigensolvers before."""
    generator = torch.Generator().manual_seed(d)
    X = torch.randn(d, d, dtype=torch.float64, generator=generator)
    huge, tiny = (1e18, 1e-18) if dtype == torch.float32 else (1e150, 1e-150)
    spectra = {
        "graded": np.logspace(0, -12, d),
        "clustered": 1 + 1e-13 * np.arange(d),
        "signs": np.where(np.arange(d) % 2, 1.0, -1.0),
        "one large": np.r_[1.0, np.full(d - 1, 1e-8)],
        "rank one": np.r_[1.0, np.zeros(d - 1)],
    }
    matrices = [with_spectrum(w, seed=d) for w in spectra.values()]
    matrices += [
        X @ X.mT / d,
        X + X.mT,
        torch.zeros(d, d),
        torch.eye(d),
        torch.ones(d, d),
        torch.diag(torch.arange(1.0, d + 1)),
    ]
    matrices += [(X + X.mT) * huge, (X + X.mT) * tiny]
    return torch.stack([m.to(dtype) for m in matrices])


@needs_kernel
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", SIZES)
def test_lapacks_bar_for_every_size(d, dtype):
    A = _family(d, dtype)
    w, V, failed = NATIVE.eigh(A)
    assert failed == 0
    assert (w.diff(dim=-1) >= 0).all()
    assert max(eigh_ratio(*item) for item in zip(A, zip(w, V, strict=True), strict=True)) < 30


@needs_kernel
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", [2, 3, 4, 5, 8, 16, 31, 64, 130])
def test_result_depends_on_neither_neighbours_nor_place_nor_threads(d, dtype):
    A = _family(d, dtype)
    w, V, _ = NATIVE.eigh(A)
    threads = torch.get_num_threads()
    for batch in (A[:1], A[3:8], A.flip(0), torch.cat([A, A, A * torch.nan, A])):
        torch.set_num_threads(1 if len(batch) % 2 else 4)
        try:
            other = NATIVE.eigh(batch)
        finally:
            torch.set_num_threads(threads)
        for k, matrix in enumerate(batch):
            for i in range(len(A)):
                if torch.equal(matrix, A[i]):
                    assert torch.equal(other[0][k], w[i])
                    assert torch.equal(other[1][k], V[i])


@needs_kernel
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 16, 40, 140])
def test_bad_matrix_gives_nan_for_itself_only(d, bad):
    A = torch.eye(d).repeat(5, 1, 1)
    A[3, -1, 0] = bad
    w, V, failed = NATIVE.eigh(A)
    assert failed == 1
    good = torch.tensor([True, True, True, False, True])
    assert torch.equal(torch.isfinite(w).all(-1), good)
    assert torch.equal(torch.isfinite(V).flatten(1).all(-1), good)


@needs_kernel
def test_what_the_kernel_fails_on_goes_down_the_ladder_alone(monkeypatch):
    A = torch.stack([with_spectrum([1.0, 2, 3, 4], seed=s) for s in range(6)])
    expected = sg.eigh(A)
    real = type(NATIVE).eigh

    def lame(self, X):
        w, V, _ = real(self, X)
        w[4], V[4] = torch.nan, torch.nan
        return w, V, 1

    monkeypatch.setattr(type(NATIVE), "eigh", lame)
    sg.solvers.reset_report()
    w, V = sg.eigh(A)
    assert_close(w, expected.eigenvalues)
    assert_close((V * w.unsqueeze(-2)) @ V.mT, A)
    assert torch.equal(w[:4], expected.eigenvalues[:4])


@needs_kernel
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("spectrum", [s for s in SPECTRA if s != "graded"])
@pytest.mark.parametrize("verb", [sg.matrix_sqrt, sg.matrix_inv_sqrt])
def test_fused_roots_agree_with_lapack(verb, spectrum, dtype, monkeypatch):
    A = torch.stack([with_spectrum(SPECTRA[spectrum], dtype=dtype, seed=s) for s in range(19)])
    G = symmetric_noise(6, dtype) + torch.ones(6, 6, dtype=dtype).triu()
    fused = verb(A), gradient(verb, A, G)
    monkeypatch.setattr(library, "switched_off", True)
    plain = verb(A), gradient(verb, A, G)
    for x, y in zip(fused, plain, strict=True):
        assert_close(x, y, rtol=1e3 * unit(dtype), atol=1e3 * unit(dtype) * float(y.abs().max()))


@needs_kernel
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 9, 16, 17, 32, 33])
def test_fused_gradients_are_exact_at_every_size(d):
    A = with_spectrum(np.r_[np.ones(d // 2), np.linspace(1, 2, d - d // 2)]).expand(7, d, d)
    G = symmetric_noise(d)
    w, V = torch.linalg.eigh(A[0])
    s = w.sqrt()
    gamma = -1 / (s[:, None] * s * (s[:, None] + s))
    expected = V @ (gamma * (V.mT @ G @ V)) @ V.mT
    assert relative_error(gradient(sg.matrix_inv_sqrt, A, G)[3], expected) < 1e-13


@needs_kernel
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 9, 16, 33, 70, 130])
def test_given_divided_differences_are_four_products(d, dtype):
    """The gradient's G need not be symmetric; of Γ the lower triangle is read."""
    V = random_orthogonal(d, dtype=torch.float64).expand(5, d, d)
    gamma, G = symmetric_noise(d).expand(5, d, d), torch.randn(5, d, d, dtype=torch.float64)
    expected = V @ (gamma * (V.mT @ (G + G.mT) / 2 @ V)) @ V.mT
    result = NATIVE.function_derivative(V.to(dtype), gamma.to(dtype).tril(), G.to(dtype))
    assert relative_error(result.double(), expected) < 8 * d * unit(dtype)
    assert torch.equal(result, result.mT)


@needs_kernel
@pytest.mark.parametrize("degree", [0, 1, 2, 9, 100])
@pytest.mark.parametrize("verb", [sg.matrix_sqrt, sg.matrix_inv_sqrt])
@pytest.mark.parametrize("d", [2, 3, 8, 9, 17, 64])
def test_taylor_inside_the_kernel_equals_its_formula(d, verb, degree):
    """Regular, tied and rank-deficient matrices; the gap matrix of the method object is the reference."""
    spectra = [np.linspace(0.5, 3, d), np.ones(d), np.r_[np.zeros(1), np.linspace(1, 2, d - 1)]]
    G, rule = symmetric_noise(d), sg.Taylor(degree=degree)
    for values in spectra:
        A = with_spectrum(values).expand(3, d, d)
        w, V = (x[1] for x in choice.eigh(A))  # at ties the method depends on the basis
        f = w.clamp_min(0).sqrt() if verb is sg.matrix_sqrt else torch.where(w > 1e-12, w.rsqrt(), 0)
        f = torch.where(w > 1e-12, f, 0)
        slope = torch.where(w > 1e-12, (0.5 if verb is sg.matrix_sqrt else -0.5) * f / w, 0)
        gamma = rule.gaps(torch.where(w > 1e-12, w, 0)) * (f[:, None] - f) + torch.diag(slope)
        expected = V @ (gamma * (V.mT @ G @ V)) @ V.mT
        got = gradient(lambda X: verb(X, method=rule), A, G)[1]
        assert relative_error(got, expected) < 1e4 * unit(torch.float64)


@needs_kernel
@pytest.mark.parametrize("d", [2, 5, 20, 70])
def test_a_clearly_negative_eigenvalue_is_an_error_and_a_clamped_one_is_not(d):
    A = torch.eye(d).repeat(33, 1, 1)
    A[17, 0, 0] = -0.25
    with pytest.raises(sg.IndefiniteError, match=r"-0\.25.*\(17,\)"):
        sg.matrix_sqrt(A)
    root = sg.matrix_sqrt(A, clamp=True)
    assert_close(root[17].diagonal(), torch.cat([torch.zeros(1), torch.ones(d - 1)]))
    assert_close(root[16], torch.eye(d))


@needs_kernel
def test_several_threads_may_call_at_once():
    A = _family(24, torch.float64)
    expected, results = NATIVE.eigh(A)[:2], [None] * 8

    def work(k):
        results[k] = all(all(map(torch.equal, NATIVE.eigh(A)[:2], expected)) for _ in range(20))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 8


@needs_kernel
def test_a_forked_child_can_call():
    """With more than one thread, so that the parent's sleeping threads are missed in the child.

    Nothing is left for torch to do there: its own OpenMP threads do not survive a fork.
    """
    A = with_spectrum([1.0, 2, 3, 4, 5]).repeat(4096, 1, 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        NATIVE.eigh(A)
        child = multiprocessing.get_context("fork").Process(target=NATIVE.eigh, args=(A,))
        child.start()
        child.join(30)
        child.kill()
    finally:
        torch.set_num_threads(threads)
    assert child.exitcode == 0


def _spoil_third(monkeypatch, method, straight):
    """Make the kernel fail on the third of four 3×3 matrices; return the list of its calls.

    A call that nothing observes goes straight to the kernel, others through the operator.
    """

    def damage(results, _):
        for x in results:
            x[2] = torch.nan
        return results, 1

    if not straight:
        monkeypatch.setattr(Operator, "at_once", lambda *_: None)
    return kernel_calls.spoiled(monkeypatch, Symmetric, method, damage)


@needs_kernel
@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("function", [sg.matrix_sqrt, sg.matrix_inv_sqrt])
def test_a_root_that_the_kernel_fails_on_goes_down_the_ladder_alone(monkeypatch, function, straight):
    """The kernel runs once; the other matrices keep its results."""
    A = torch.stack([with_spectrum([1.0, 2, 3], seed=seed) for seed in range(4)])
    expected = function(A)
    calls = _spoil_third(monkeypatch, "root", straight)
    monkeypatch.setattr(Symmetric, "eigh", lambda *_: pytest.fail("the kernel was run again"))
    result = function(A)
    assert len(calls) == 1
    assert_close(result, expected)
    assert torch.equal(result[[0, 1, 3]], expected[[0, 1, 3]])
    A[1] = -A[1]
    with pytest.raises(sg.IndefiniteError, match=r"got eigenvalue -3 in batch position \(1,\)"):
        function(A)


@needs_kernel
@pytest.mark.parametrize("straight", [True, False])
def test_the_kernels_eigh_is_not_run_again_on_what_it_fails_on(monkeypatch, straight):
    A = torch.stack([with_spectrum([1.0, 2, 3], seed=seed) for seed in range(4)])
    expected = sg.eigh(A)
    calls = _spoil_third(monkeypatch, "eigh", straight)
    w, V = sg.eigh(A)
    assert len(calls) == 1
    assert_close(w, expected.eigenvalues)
    assert_close((V * w.unsqueeze(-2)) @ V.mT, A)


def test_kernel_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(library, "switched_off", True)
    assert kernel() is None
    assert choice.symmetric(torch.eye(3)) is None
    assert_close(sg.eigh(torch.eye(3)).eigenvalues, torch.ones(3))


@needs_kernel
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_instruction_sets_below_the_machines_own_agree(isa):
    code = (
        "import torch; from spectralgrad.solvers import eigh_ratio\n"
        "from tests import kernel_calls; k = kernel_calls.calls()\n"
        "X = torch.randn(40, 21, 21, generator=torch.Generator().manual_seed(0)); A = X @ X.mT\n"
        "w, V, _ = k.eigh(A); print(k.isa, max(eigh_ratio(*i) for i in zip(A, zip(w, V))) < 30)"
    )
    environment = {"SPECTRALGRAD_ISA": isa}
    done = forked.run("-c", code, check=True, environment=environment)
    used, good = done.stdout.split()
    assert good == "True"
    assert used == isa or isa != "baseline" or isa not in kernel_calls.built()


def test_pool_equals_torch():
    Q = random_orthogonal(20, dtype=torch.complex128)
    A = torch.stack([(Q * torch.arange(1, 21)) @ Q.mH * s for s in range(1, 8)]).reshape(7, 1, 20, 20)
    w, V = choice.lapack_pool.eigh(A)
    assert_close(w, torch.linalg.eigvalsh(A))
    assert_close((V * w.unsqueeze(-2)) @ V.mH, A)
    assert w.shape == (7, 1, 20)


def test_the_pool_leaves_the_number_of_threads_as_it_is():
    """Its workers use one thread each, which must not become the setting of threads that start later."""
    found, before = [], torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        choice.lapack_pool.eigh(torch.eye(3).expand(7, 3, 3))
        later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert found == [3]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("d", "expected"), [(1, 1), (4, 1), (5, 1), (600, None)])
def test_table_covers_every_size(d, expected):
    assert thresholds.Table(float32=(1,) * 9 + (None, None)).smallest_batch(d, torch.float32) == expected


def test_a_stored_table_is_used_and_a_damaged_one_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if NATIVE is None:
        pytest.skip("the native kernel was not built or is switched off")
    choice.forget()
    try:
        mine = thresholds.Table(float32=(7,) * len(thresholds.SIZES))
        thresholds.store(NATIVE.isa, mine)
        assert thresholds.table() == mine
        choice.forget()
        (tmp_path / "spectralgrad" / "solvers.json").write_text("{")
        assert thresholds.table() == thresholds.Table()
    finally:
        choice.forget()
