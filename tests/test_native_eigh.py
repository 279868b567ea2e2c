"""The kernel's other ways to eigenvalues: one matrix at a time, complex matrices, and values alone."""

from functools import cache
from itertools import product

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import library, thresholds
from spectralgrad.native.calls import Symmetric
from spectralgrad.solvers.decompose import choice, lapack

from . import forked, kernel_calls
from .helpers import DTYPES, in_turn, unit
from .lapack_matrices import BAR, KINDS, eigh_bar, hermitian_matrix

NATIVE = kernel_calls.calls()
needs_kernel = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built or is switched off")
SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18, 24, 25, 31, 32, 33, 48, 64, 65, 96, 97, 128, 130, 200]
WAYS = {"in lanes": ("eigh", "eigvalsh"), "one by one": ("eigh_single", "eigvalsh_single")}


def _pairs(way, A):
    return getattr(NATIVE, WAYS[way][0])(A)


def _values(way, A):
    return getattr(NATIVE, WAYS[way][1])(A)


def _family(n, dtype):
    """LAPACK's kinds, matrices of rank one, and matrices at either end of the range."""
    kinds = [hermitian_matrix(kind, n, dtype) for kind in KINDS.values()]
    x = hermitian_matrix(KINDS["13 random entries"], n, dtype)
    info = torch.finfo(dtype)
    row = x[:1]
    extremes = [x * (info.max / (8 * n)), x * (info.tiny / info.eps), x * info.tiny]
    return torch.stack([*kinds, row.mH @ row, torch.ones_like(x), *extremes])


@needs_kernel
@in_turn("n, way", product(SIZES, WAYS), dtype=DTYPES)
def test_lapacks_bar(n, way, dtype):
    A = _family(n, dtype)
    w, V, failed = _pairs(way, A)
    assert failed == 0
    assert (w.diff(dim=-1) >= 0).all()
    normal = len(A) - 1  # the entries of the last one are subnormal, hence not known to relative accuracy
    assert max(map(eigh_bar, A[:normal], w, V)) < BAR
    values, failed = _values(way, A)
    assert failed == 0
    assert (values.diff(dim=-1) >= 0).all()
    size = w.double().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(dtype).tiny)
    assert float(((values.double() - w.double()).abs() / size).max()) <= BAR * n * unit(dtype)


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [1, 3, 5, 12, 20, 33, 70, 100])
def test_only_the_lower_triangle_and_the_real_diagonal_are_read(n, way, dtype):
    A = hermitian_matrix(KINDS["13 random entries"], n, dtype).repeat(3, 1, 1)
    spoiled = A.clone()
    rows, columns = torch.triu_indices(n, n, 1)
    spoiled[:, rows, columns] = torch.nan
    if dtype.is_complex:
        spoiled.diagonal(dim1=-2, dim2=-1).imag.fill_(torch.inf)
    for got, expected in zip(_pairs(way, spoiled), _pairs(way, A), strict=True):
        assert torch.equal(got, expected) if isinstance(got, torch.Tensor) else got == expected
    assert torch.equal(_values(way, spoiled)[0], _values(way, A)[0])


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [2, 3, 7, 16, 30, 65, 100])
def test_a_bad_matrix_fails_alone_and_neither_place_nor_threads_matter(n, way, dtype):
    A = _family(n, dtype)
    bad = A.clone()
    bad[3, -1, 0] = torch.nan
    bad[7, -1, -1] = torch.inf
    good = torch.ones(len(A), dtype=torch.bool)
    good[[3, 7]] = False
    w, V, _ = _pairs(way, A)
    threads = torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            ws, Vs, failed = _pairs(way, bad)
            values, values_failed = _values(way, bad)
            assert failed == values_failed == 2
            assert torch.equal(ws[good], w[good])
            assert torch.equal(Vs[good], V[good])
            for x in (ws, Vs, values):
                assert torch.equal(torch.isfinite(x).flatten(1).all(-1), good)
    finally:
        torch.set_num_threads(threads)
    turned = _pairs(way, A.flip(0))
    assert torch.equal(turned[0].flip(0), w)
    assert torch.equal(turned[1].flip(0), V)


@needs_kernel
@pytest.mark.parametrize("way", WAYS)
def test_conjugate_and_transposed_views_are_read_as_they_are(way):
    A = hermitian_matrix(KINDS["13 random entries"], 7, torch.complex128)[None]
    expected = _pairs(way, A.clone().conj().resolve_conj())
    for view in (A.conj(), A.mT):
        w, V, _ = _pairs(way, view)
        assert torch.equal(w, expected[0])
        assert torch.equal(V, expected[1])


@needs_kernel
@pytest.mark.parametrize("n", [128, 131, 259])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_several_threads_on_one_matrix_give_the_same_result(n, dtype):
    """From 128 rows on, threads share a matrix; which of them does what changes nothing, bit for bit."""
    A = hermitian_matrix(KINDS["13 random entries"], n, dtype)
    square, before, found = A @ A, torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            w, V, failed = NATIVE.eigh_single(A)
            results = [w, V, NATIVE.eigvalsh_single(A)[0]]
            if not dtype.is_complex:
                results += NATIVE.root_and_eigenpairs(square, True, 0.0, 1.0, True)[:3]
                results.append(NATIVE.root_derivative(V, w.abs(), A, True))
                results.append(NATIVE.eigh_gradient((w, V), (w, A), 1e-3, True, True))
            found.append((failed, results))
    finally:
        torch.set_num_threads(before)
    for failed, results in found:
        assert failed == 0
        assert all(torch.equal(a, b) for a, b in zip(results, found[0][1], strict=True))


@needs_kernel
@pytest.mark.parametrize(("n", "dtype"), [(513, torch.float32), (700, torch.float32), (300, torch.float64)], ids=str)
@pytest.mark.parametrize("kind", ["09 dense, geometric", "10 dense, clustered", "13 random entries"])
def test_lapacks_bar_for_one_large_matrix(n, dtype, kind):
    A = hermitian_matrix(KINDS[kind], n, dtype)
    w, V, failed = NATIVE.eigh_single(A)
    assert failed == 0
    assert eigh_bar(A, w, V) < BAR


@needs_kernel
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_every_instruction_set_passes_the_bar(isa):
    code = (
        "import torch; from spectralgrad.solvers import eigh_ratio; from tests import kernel_calls\n"
        "k = kernel_calls.calls(); worst = 0.0\n"
        "for n in (5, 8, 17, 40, 70, 130):\n"
        "    X = torch.randn(9, n, n, dtype=torch.complex128, generator=torch.Generator().manual_seed(n))\n"
        "    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):\n"
        "        A = (X @ X.mH).to(dtype) if dtype.is_complex else (X.real @ X.real.mT).to(dtype)\n"
        "        for solver in (k.eigh, k.eigh_single):\n"
        "            w, V, failed = solver(A)\n"
        "            worst = max(worst, 1e9 * failed, *(eigh_ratio(*i) for i in zip(A, zip(w, V))))\n"
        "print(k.isa, worst < 30)"
    )
    done = forked.run("-c", code, check=True, environment={"SPECTRALGRAD_ISA": isa})
    used, good = done.stdout.split()
    assert good == "True"
    assert used == isa or isa != "baseline" or isa not in kernel_calls.built()


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_table_decides_between_lanes_and_one_by_one(dtype, monkeypatch, request):
    request.addfinalizer(choice.forget)
    column = (1, 1, 1, 3) + (None,) * (len(thresholds.SIZES) - 4)
    name = str(dtype).removeprefix("torch.")
    mine = thresholds.Table(**{name: column}, single=(16,) * 4)
    monkeypatch.setattr(choice, "table", cache(lambda: mine))
    choice.forget()
    called = []
    for name in ("eigh", "eigvalsh"):
        run, ways = getattr(Symmetric, name), (f"{name}_single", name)
        monkeypatch.setattr(Symmetric, name, lambda s, A, *a, r=run, w=ways: called.append(w[s.lanes]) or r(s, A, *a))
    for batch, d in ((3, 8), (2, 8), (64, 16), (1, 17)):
        A = torch.eye(d, dtype=dtype).expand(batch, d, d)
        sg.solvers.eigh(A)
        sg.solvers.eigvalsh(A)
    assert called == ["eigh", "eigvalsh", "eigh_single", "eigvalsh_single", "eigh_single", "eigvalsh_single"]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (20, 8, 8), (2, 3, 33, 33), (0, 4, 4), (5, 0, 0), (2, 600, 600)])
def test_eigenvalues_alone_agree_with_torch(shape, dtype, native, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not native)
    X = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    A = X @ X.mH
    w, expected = sg.solvers.eigvalsh(A), torch.linalg.eigvalsh(A)
    assert w.shape == expected.shape
    assert w.dtype == expected.dtype
    size = float(expected.abs().max()) if expected.numel() else 1.0
    assert_close(w, expected, rtol=0, atol=2 * BAR * max(shape[-1], 1) * unit(dtype) * size)


def test_eigenvalues_alone_in_transforms_and_compiled():
    X = torch.randn(4, 5, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    A = X @ X.mH
    expected = torch.linalg.eigvalsh(A)
    assert_close(torch.func.vmap(sg.solvers.eigvalsh)(A), expected)
    assert_close(torch.compile(sg.solvers.eigvalsh, backend="aot_eager", fullgraph=True)(A), expected)


@pytest.mark.parametrize("native", [True, False])
def test_eigenvalues_of_bad_input_are_an_error_that_names_the_position(native, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not native)
    A = torch.eye(5).repeat(4, 1, 1)
    A[2, 3, 1] = torch.nan
    with pytest.raises(sg.NonFiniteError, match=r"eigvalsh.*position 2"):
        sg.solvers.eigvalsh(A)


def test_eigenvalues_that_a_driver_fails_on_come_from_the_ladder(monkeypatch):
    def refuse(A):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(library, "switched_off", True)
    monkeypatch.setattr(lapack, "eigvalsh", refuse)
    monkeypatch.setattr(lapack, "eigh", refuse)
    sg.solvers.reset_report()
    assert_close(sg.solvers.eigvalsh(torch.diag(torch.tensor([3.0, 1.0, 2.0]))), torch.tensor([1.0, 2.0, 3.0]))
    assert sg.solvers.report().fallbacks == {"eigh_numpy": 1}


@needs_kernel
def test_eigenvalues_that_the_kernel_fails_on_come_from_the_ladder(monkeypatch):
    A = torch.diag(torch.tensor([3.0, 1.0, 2.0])).repeat(4, 1, 1)
    monkeypatch.setattr(Symmetric, "eigvalsh", lambda self, A: (torch.full((4, 3), torch.nan), 4))
    assert_close(sg.solvers.eigvalsh(A), torch.tensor([1.0, 2.0, 3.0]).expand(4, 3))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("verb", [sg.matrix_sqrt, sg.matrix_inv_sqrt, sg.matrix_log])
def test_complex_functions_by_the_kernel_agree_with_lapack(verb, dtype, monkeypatch):
    X = torch.randn(9, 12, 12, dtype=dtype, generator=torch.Generator().manual_seed(0))
    A = X @ X.mH / 12 + torch.eye(12)
    called = []
    run = Symmetric.eigh
    monkeypatch.setattr(Symmetric, "eigh", lambda self, A, limit: called.append(A.dtype) or run(self, A, limit))
    result = verb(A)
    assert called == [dtype]
    monkeypatch.setattr(library, "switched_off", True)
    expected = verb(A)
    assert_close(result, expected, rtol=0, atol=1e3 * unit(dtype) * float(expected.abs().max()))


@needs_kernel
@pytest.mark.parametrize("d", [5, 9, 16, 33, 100])
@pytest.mark.parametrize("inverse", [False, True])
def test_roots_of_few_matrices(inverse, d):
    X = torch.randn(2, d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d))
    A = X @ X.mT / d + torch.eye(d)
    single, lanes = (NATIVE.root_and_eigenpairs(A, inverse, 0.0, 1.0, way) for way in (True, False))
    assert single[3] == lanes[3] == 0
    assert_close(single[0], lanes[0], rtol=0, atol=BAR * d * unit(A.dtype) * float(lanes[0].abs().max()))
    A[1] = -A[1]
    assert NATIVE.root_and_eigenpairs(A, inverse, 0.0, 1e-3, True)[3] == 1
