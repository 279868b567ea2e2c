"""The kernel's other ways to singular value decompositions: complex matrices, and one matrix at a time."""

from functools import cache

import mpmath
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import thresholds
from spectralgrad.solvers.decompose import choice

from . import forked, kernel_calls
from .helpers import REAL, unit
from .lapack_matrices import BAR, svd_bar
from .test_native_svd import family

NATIVE = kernel_calls.calls()
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built or is switched off")
COMPLEX = (torch.complex64, torch.complex128)
WAYS = [("svd", dtype) for dtype in COMPLEX] + [("svd_single", dtype) for dtype in (*REAL, *COMPLEX)]
WAY_NAMES = [f"{way}, {thresholds.NAMES[dtype]}" for way, dtype in WAYS]
SHAPES = [(n, n) for n in (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 97, 130)]
SHAPES += [(5, 1), (1, 5), (40, 3), (2, 90), (7, 12), (30, 12), (64, 32), (9, 128), (260, 70), (140, 131)]
ways = pytest.mark.parametrize(("way", "dtype"), WAYS, ids=WAY_NAMES)


def matrices(m, n, dtype):
    """The family of test_native_svd.py; of complex matrices also with rows and columns times phase factors."""
    if not dtype.is_complex:
        return family(m, n, dtype)
    names, M = family(m, n, dtype.to_real())
    rows, columns = torch.arange(m) * 2.4, torch.arange(n) * 1.7
    turned = torch.polar(torch.ones(()), rows)[:, None] * torch.polar(torch.ones(()), columns)
    X = torch.randn(3, m, n, dtype=torch.complex128, generator=torch.Generator().manual_seed(m * n))
    unitary = torch.linalg.qr(X[0] if m >= n else X[0].mT)[0]
    more = {
        "complex": X[1],
        "unitary": unitary if m >= n else unitary.mT,
        "imaginary": X[2].imag * 1j,
        "one entry": torch.zeros(m, n, dtype=torch.complex128).index_put_(
            (torch.tensor(0), torch.tensor(n - 1)), X[0, 0, 0]
        ),
    }
    parts = M.to(dtype), M * turned.to(dtype), torch.stack([x.to(dtype) for x in more.values()])
    return [*names, *(f"{name}, turned" for name in names), *more], torch.cat(parts)


@ways
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lapacks_bar_for_every_shape(shape, way, dtype):
    names, M = matrices(*shape, dtype)
    U, S, Vh, failed = getattr(NATIVE, way)(M)
    assert failed == 0
    assert (S.diff(dim=-1) <= 0).all()
    assert (S >= 0).all()
    ratios = dict(zip(names, map(svd_bar, M, U, S, Vh), strict=True))
    assert max(ratios.values()) < BAR, max(ratios, key=ratios.get)
    alone, failed = getattr(NATIVE, way.replace("svd", "svdvals"))(M)
    assert failed == 0
    assert torch.equal(alone, S)


@pytest.mark.parametrize(("way", "dtype"), [x for x in WAYS if x[1].to_real() == torch.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_are_as_accurate_as_lapacks(shape, way, dtype):
    """In single precision, against double: the worst error over all kinds, relative to the largest singular value."""
    _, M = matrices(*shape, dtype)
    exact = torch.linalg.svdvals(M.to(torch.complex128))
    errors = [_error(S, exact) for S in (getattr(NATIVE, way)(M)[1], torch.linalg.svdvals(M))]
    assert errors[0] <= 3 * max(errors[1], unit(dtype))


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (6, 6), (9, 9), (12, 4), (7, 10)], ids=str)
def test_complex_double_singular_values_are_as_accurate_as_lapacks(shape):
    """The same in double precision, against forty digits."""
    names, M = matrices(*shape, torch.complex128)
    M = M[[i for i, name in enumerate(names) if "flow" not in name]][::3]  # mpmath does not take the edges of the range
    with mpmath.workdps(40):
        tall = M if shape[0] >= shape[1] else M.mT
        values = [mpmath.svd_c(mpmath.matrix(A.tolist()), compute_uv=False) for A in tall]
        exact = torch.tensor([sorted(map(float, S), reverse=True) for S in values], dtype=torch.float64)
    ours = [getattr(NATIVE, way)(M)[1] for way in ("svd", "svd_single")]
    allowed = 3 * max(_error(torch.linalg.svdvals(M), exact), unit(torch.float64))
    assert max(_error(S, exact) for S in ours) <= allowed


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (6, 4), (50, 4), (3, 100), (200, 5), (90, 1)], ids=str)
def test_few_columns_keep_small_singular_values_alone_too(shape, dtype):
    """Columns of very different norms in any order: relative accuracy, as in test_native_svd.py."""
    long, few = max(shape), min(shape)
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(6, long, few, dtype=torch.float64, generator=generator)
    sizes = torch.logspace(0, -4 if dtype == torch.float32 else -12, 5, dtype=torch.float64)
    M = torch.stack([x * sizes[torch.randperm(5, generator=generator)[:few]] for x in X]).to(dtype)
    M = M if shape[0] >= shape[1] else M.mT
    with mpmath.workdps(60):
        values = [
            mpmath.svd_r(mpmath.matrix(A.double().tolist()), compute_uv=False)
            for A in (M if shape[0] >= shape[1] else M.mT)
        ]
        exact = torch.tensor([sorted(map(float, S), reverse=True) for S in values], dtype=torch.float64)
    S = NATIVE.svd_single(M)[1].double()
    assert ((S - exact).abs() <= 20 * long**0.5 * unit(dtype) * exact).all()


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(100, 4), (5, 100), (400, 1)], ids=str)
def test_a_value_that_overflows_is_infinite_and_its_vectors_are_orthonormal(shape, dtype):
    """Alone as in a batch; the entries themselves are finite."""
    M = torch.full(shape, 0.9 * torch.finfo(dtype).max, dtype=dtype) * torch.linspace(-1, 1, shape[1]).sign().to(dtype)
    few = min(shape)
    for X in (M, M.expand(9, *shape)):
        U, S, Vh = sg.svd(X)
        assert torch.isposinf(S[..., 0]).all()
        assert_close(U.mT @ U, torch.eye(few, dtype=dtype).expand(*X.shape[:-2], few, few))
        assert_close(Vh @ Vh.mT, torch.eye(few, dtype=dtype).expand(*X.shape[:-2], few, few))


def _error(S, exact):
    size = exact[:, :1].clamp_min(torch.finfo(S.dtype).tiny)
    return float(((S.double() - exact).abs() / size).max())


@ways
@pytest.mark.parametrize("shape", [(3, 3), (9, 9), (31, 14), (20, 64), (131, 130)], ids=str)
def test_result_depends_on_neither_neighbours_nor_place_nor_threads(shape, way, dtype):
    names, M = matrices(*shape, dtype)
    solver, threads = getattr(NATIVE, way), torch.get_num_threads()
    factors = solver(M)[:3]
    for count, picked in ((1, [0]), (4, [len(names) - 3]), (3, [5, 3, 8, 1, 2]), (2, list(range(len(names)))[::-1])):
        batch = torch.cat([M[picked], M[picked] * torch.nan, M[picked]]) if len(picked) > 1 else M[picked]
        torch.set_num_threads(count)
        try:
            other = solver(batch)[:3]
        finally:
            torch.set_num_threads(threads)
        for x, y in zip(factors, other, strict=True):
            assert torch.equal(y[: len(picked)], x[picked])
            assert torch.equal(y[-len(picked) :], x[picked])


@ways
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 40), (40, 33), (120, 130)], ids=str)
def test_bad_matrix_gives_nan_for_itself_only(shape, bad, way, dtype):
    M = torch.eye(*shape, dtype=dtype).repeat(5, 1, 1)
    M[3, -1, 0] = complex(0, bad) if dtype.is_complex else bad
    *factors, failed = getattr(NATIVE, way)(M)
    assert failed == 1
    good = torch.tensor([True, True, True, False, True])
    for x in factors:
        assert torch.equal(torch.isfinite(x).flatten(1).all(-1), good)
        assert torch.equal(torch.isnan(x).flatten(1).any(-1), ~good)


def test_views_are_read_as_they_are_meant():
    M = torch.randn(7, 6, 9, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    for view in (M.mT, M.mH, M.conj(), M[:, ::2], M[:, :, 1:5]):
        U, S, Vh = sg.svd(view)
        assert_close((U * S.unsqueeze(-2)) @ Vh, view.resolve_conj())
        assert_close(sg.svdvals(view), torch.linalg.svdvals(view))


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX], ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (12, 40), (70, 70)], ids=str)
def test_the_table_decides_between_the_ways(shape, dtype, batch, monkeypatch, request):
    request.addfinalizer(choice.forget)
    M = torch.randn(batch, *shape, dtype=dtype)
    name = f"svd_{thresholds.NAMES[dtype]}"
    for column, single, expected in ((1, 0, True), (None, 128, False), (65, 0, None)):
        mine = thresholds.Table(**{name: (column,) * len(thresholds.SIZES)}, svd_single=(single,) * 4)
        monkeypatch.setattr(choice, "table", cache(lambda mine=mine: mine))
        choice.forget()
        plan = choice.singular(M)
        assert (plan and plan.lanes) is expected
        U, S, Vh = sg.svd(M)
        assert_close((U * S.unsqueeze(-2)) @ Vh, M)
        if expected is not None:
            assert torch.equal(S, NATIVE.svd(M, expected)[1])
        assert_close(sg.svdvals(M), torch.linalg.svdvals(M))


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_every_instruction_set_passes_the_bar(isa):
    code = (
        "from tests import kernel_calls; from tests.test_native_svd_ways import BAR, WAYS, matrices, svd_bar\n"
        "k = kernel_calls.calls(); worst = 0\n"
        "for shape in [(2, 2), (5, 9), (17, 17), (40, 27)]:\n"
        "    for way, dtype in WAYS:\n"
        "        M = matrices(*shape, dtype)[1]; worst = max(worst, *map(svd_bar, M, *getattr(k, way)(M)[:3]))\n"
        "print(k.isa, worst < BAR)"
    )
    used, good = forked.run("-c", code, check=True, environment={"SPECTRALGRAD_ISA": isa}).stdout.split()
    assert good == "True"
    assert used == isa or isa != "baseline" or isa not in kernel_calls.built()
