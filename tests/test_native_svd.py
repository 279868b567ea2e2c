"""The native SVD: LAPACK's bar for every shape, singular values as good as LAPACK's, independence of neighbours."""

import mpmath
import numpy as np
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import library
from spectralgrad.native.calls import Singular
from spectralgrad.solvers.decompose import choice
from spectralgrad.solvers.decompose.operators import Operator

from . import forked, kernel_calls
from .helpers import REAL, unit
from .lapack_matrices import BAR, SINGULAR_KINDS, rectangular_matrix, svd_bar

NATIVE = kernel_calls.calls()
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built or is switched off")
SQUARE = [(n, n) for n in (*range(1, 11), 15, 16, 17, 24, 25, 32, 33, 64, 65, 110, 128, 130)]
OBLONG = [(5, 1), (1, 5), (7, 2), (2, 9), (9, 3), (4, 20), (64, 32), (32, 64), (128, 9), (9, 128), (30, 12), (100, 6)]
SHAPES = SQUARE + OBLONG + [(33, 7), (40, 60), (260, 70), (140, 131)]


def family(m, n, dtype):
    """Matrices that have broken SVDs before, beside LAPACK's kinds; names and a batch."""
    named = {name: rectangular_matrix(kind, m, n, dtype) for name, kind in SINGULAR_KINDS.items()}
    generator = torch.Generator().manual_seed(m * n)
    X = torch.randn(m, n, dtype=torch.float64, generator=generator)
    shift, eye = torch.diag_embed(torch.ones(max(m, n)), 1)[:m, :n], torch.eye(m, n)
    bidiagonal = X * (shift + eye)
    middle = min(m, n) // 2
    hollow, zero_column, zero_row, gap = X * (1 - eye), X.clone(), X.clone(), bidiagonal.clone()
    zero_column[:, n // 2] = zero_row[m // 2] = gap[middle, middle] = 0
    nearly = gap.clone()
    nearly[middle, middle] = 1e-25 if dtype == torch.float32 else 1e-220
    rows, columns = torch.logspace(0, -15, m, dtype=torch.float64), torch.logspace(0, -15, n, dtype=torch.float64)
    largest = X / X.abs().max() * torch.finfo(dtype).max
    named |= {
        "rank one": torch.ones(m, n),
        "equal rows": torch.arange(1.0, n + 1).expand(m, n),
        "two values": _with_values(np.where(np.arange(min(m, n)) % 2, 1.0, 3.0), X),
        "nearly equal": _with_values(1 + 1e-13 * np.arange(min(m, n)), X),
        "graded": _with_values(np.logspace(0, -12, min(m, n)), X),
        "Jordan, 0": shift,
        "Jordan, 1/2": shift + 0.5 * eye,
        "Jordan, 1": shift + eye,
        "zero diagonal": hollow,
        "zero column": zero_column,
        "zero row": zero_row,
        "bidiagonal": bidiagonal,
        "bidiagonal with a zero": gap,
        "bidiagonal with a tiny entry": nearly,
        "triangular": X.triu(),
        "rows graded down": X * rows[:, None],
        "columns graded down": X * columns,
        "columns graded up": X * columns.flip(0),
        "both graded up": X * rows.flip(0)[:, None] * columns.flip(0),
        "sparse": X * (torch.rand(m, n, generator=generator) < 0.15),
        "ascending diagonal": torch.diag_embed(torch.arange(1.0, max(m, n) + 1))[:m, :n],
        "signs": X.sign(),
        "overflow": largest / (m * n) ** 0.5,
        "underflow": X * torch.finfo(dtype).tiny * max(m, n),
    }
    return list(named), torch.stack([M.to(dtype) for M in named.values()])


def _with_values(values, X):
    U, _, Vh = torch.linalg.svd(X, full_matrices=False)
    return (U * torch.as_tensor(values)) @ Vh


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lapacks_bar_for_every_shape(shape, dtype):
    names, M = family(*shape, dtype)
    U, S, Vh, failed = NATIVE.svd(M)
    assert failed == 0
    assert (S.diff(dim=-1) <= 0).all()
    assert (S >= 0).all()
    ratios = dict(zip(names, map(svd_bar, M, U, S, Vh), strict=True))
    assert max(ratios.values()) < BAR, max(ratios, key=ratios.get)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(6, 6), (33, 8), (9, 9), (17, 40), (33, 31), (70, 70)], ids=str)
def test_low_rank_converges(shape, dtype):
    """Products of small integers: after the reduction nothing but rounding errors is left beside a few entries."""
    generator = torch.Generator().manual_seed(0)
    for rank in (1, 2, 3):
        factors = (torch.randint(-3, 8, (200, n, rank), generator=generator).to(dtype) for n in shape)
        M = next(factors) @ next(factors).mT
        U, S, Vh, failed = NATIVE.svd(M)
        assert failed == 0
        assert max(map(svd_bar, M, U, S, Vh)) < BAR


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_are_as_accurate_as_lapacks(shape):
    """In float32, against float64: the worst error over all kinds, relative to the largest singular value."""
    _, M = family(*shape, torch.float32)
    exact = torch.linalg.svdvals(M.double())
    errors = [_error(S, exact) for S in (NATIVE.svd(M)[1], torch.linalg.svdvals(M))]
    assert errors[0] <= 3 * max(errors[1], unit(torch.float32))


@pytest.mark.parametrize("shape", [(n, n) for n in (2, 3, 5, 6, 9, 16)] + [(12, 4), (7, 10)], ids=str)
def test_double_singular_values_are_as_accurate_as_lapacks(shape):
    """The same in float64, against forty digits."""
    _, M = family(*shape, torch.float64)
    M = M[:-2]  # mpmath takes everything but the edges of the range
    exact = torch.stack([_forty_digits(A) for A in M])
    errors = [_error(S, exact) for S in (NATIVE.svd(M)[1], torch.linalg.svdvals(M))]
    assert errors[0] <= 3 * max(errors[1], unit(torch.float64))


def _error(S, exact):
    size = exact[:, :1].clamp_min(torch.finfo(S.dtype).tiny)
    return float(((S.double() - exact).abs() / size).max())


def _forty_digits(A, digits=40):
    with mpmath.workdps(digits):
        tall = A if A.shape[0] >= A.shape[1] else A.T
        values = mpmath.svd_r(mpmath.matrix(tall.tolist()), compute_uv=False)
        return torch.tensor(sorted(map(float, values), reverse=True), dtype=torch.float64)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (6, 4), (5, 5)], ids=str)
def test_small_matrices_keep_small_singular_values(shape, dtype):
    """Columns of very different norms: relative accuracy, which neither LAPACK's SVD nor the larger sizes have."""
    generator = torch.Generator().manual_seed(3)
    eps, n = torch.finfo(dtype).eps, shape[1]
    X = torch.linalg.qr(torch.randn(50, *shape, dtype=torch.float64, generator=generator))[0]
    X = X + 0.3 * torch.randn(50, *shape, dtype=torch.float64, generator=generator)
    M = (X * torch.logspace(0, -4 if dtype == torch.float32 else -12, n, dtype=torch.float64)).to(dtype)
    exact = torch.stack([_forty_digits(A) for A in M.double()])
    assert float(((NATIVE.svd(M)[1].double() - exact) / exact).abs().max()) < 100 * n * eps


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_two_by_two_has_an_accurate_determinant(dtype):
    """σ₂ of nearly singular matrices to a few units in the last place."""
    one = torch.ones((), dtype=dtype)
    eps = torch.finfo(dtype).eps
    M = torch.stack(
        [torch.stack([one, one + k * eps, one - k * eps, one + j * eps]) for k in range(9) for j in range(9)]
    )
    M = M.reshape(-1, 2, 2)
    exact = torch.stack([_forty_digits(A, 80) for A in M.double()])  # σ₂ is as small as eps²
    S = NATIVE.svd(M)[1].double()
    assert float((S - exact).abs().max(0).values[0]) < 4 * eps
    assert torch.all((S[:, 1] - exact[:, 1]).abs() <= 4 * eps * exact[:, 1])


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (3, 3), (5, 9), (6, 6), (16, 16), (40, 20), (50, 70), (131, 130)], ids=str
)
def test_values_alone_are_those_of_the_decomposition(shape, dtype):
    _, M = family(*shape, dtype)
    S, failed = NATIVE.svdvals(M)
    assert failed == 0
    assert torch.equal(S, NATIVE.svd(M)[1])


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize(
    "shape", [(2, 2), (3, 3), (4, 7), (5, 5), (6, 6), (16, 16), (31, 9), (64, 64), (131, 130)], ids=str
)
def test_result_depends_on_neither_neighbours_nor_place_nor_threads(shape, dtype):
    names, M = family(*shape, dtype)
    factors = NATIVE.svd(M)[:3]
    threads = torch.get_num_threads()
    for picked in ([0], [5, 3, 8, 1, 2], list(range(len(names)))[::-1], [*range(len(names)), 7, 7, 0, 4, 9]):
        batch = M[picked].clone()
        batch = torch.cat([batch, batch * torch.nan, batch])
        torch.set_num_threads(1 if len(picked) % 2 else 4)
        try:
            other = NATIVE.svd(batch)[:3]
        finally:
            torch.set_num_threads(threads)
        for x, y in zip(factors, other, strict=True):
            for part in (y[: len(picked)], y[2 * len(picked) :]):
                assert torch.equal(part, x[picked])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (5, 2), (7, 7), (9, 30), (40, 33), (140, 150)], ids=str)
def test_bad_matrix_gives_nan_for_itself_only(shape, bad):
    M = torch.eye(*shape).repeat(5, 1, 1)
    M[3, -1, 0] = bad
    *factors, failed = NATIVE.svd(M)
    assert failed == NATIVE.svdvals(M)[1] == 1
    good = torch.tensor([True, True, True, False, True])
    for x in factors:
        assert torch.equal(torch.isfinite(x).flatten(1).all(-1), good)
        assert torch.equal(torch.isnan(x).flatten(1).all(-1), ~good)


def _spoil(monkeypatch, position, straight):
    """Make the kernel fail on one matrix of a batch (B, m, n); return the list of its calls.

    A call that nothing observes goes straight to the kernel, others through the operator.
    """

    def lame(factors, _):
        for x in factors:
            x[position] = torch.nan
        return factors, 1

    if not straight:
        monkeypatch.setattr(Operator, "at_once", lambda *_: None)
    return kernel_calls.spoiled(monkeypatch, Singular, "svd", lame)


@pytest.mark.parametrize("straight", [True, False])
def test_what_the_kernel_fails_on_goes_down_the_ladder_alone(monkeypatch, straight):
    M = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
    expected = sg.svd(M)
    calls = _spoil(monkeypatch, 4, straight)
    U, S, Vh = sg.svd(M)
    assert len(calls) == 1
    assert_close(S, expected.S)
    assert_close((U * S.unsqueeze(-2)) @ Vh, M)
    assert torch.equal(U[:4], expected.U[:4])


def test_values_that_the_kernel_fails_on_come_from_lapack(monkeypatch):
    M = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(Singular, "svdvals", lambda self, M: (torch.full((6, 4), torch.nan), 6))
    assert_close(sg.solvers.svdvals(M), torch.linalg.svdvals(M))
    with pytest.raises(sg.NonFiniteError, match="svdvals"):
        sg.solvers.svdvals(M * torch.nan)


@pytest.mark.parametrize("shape", [(0, 3, 3), (4, 0, 3), (4, 3, 0), (0, 0)], ids=str)
def test_nothing_to_decompose(shape):
    M = torch.zeros(shape)
    *factors, failed = NATIVE.svd(M)
    assert failed == 0
    assert [x.shape for x in factors] == [x.shape for x in torch.linalg.svd(M, full_matrices=False)]
    assert sg.solvers.svdvals(M).shape == torch.linalg.svdvals(M).shape


def test_the_kernel_serves_sg_svd_and_can_be_switched_off(monkeypatch):
    M, calls = torch.randn(64, 3, 3), []
    run = Singular.svd
    monkeypatch.setattr(Singular, "svd", lambda self, M: calls.append(M) or run(self, M))
    S = sg.svd(M).S
    assert len(calls) == 1
    monkeypatch.setattr(library, "switched_off", True)
    assert choice.singular(M) is None
    assert_close(sg.svd(M).S, S)
    assert_close(sg.solvers.svdvals(M), S)
    assert len(calls) == 1


def test_values_under_vmap_and_compile():
    M = torch.randn(5, 4, 6, 3)
    expected = torch.linalg.svdvals(M)
    assert_close(torch.func.vmap(sg.solvers.svdvals)(M), expected)
    assert_close(torch.compile(sg.solvers.svdvals, backend="aot_eager", fullgraph=True)(M), expected)


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_instruction_sets_below_the_machines_own_agree(isa):
    code = (
        "import torch; from tests import kernel_calls; from tests.test_native_svd import BAR, family, svd_bar\n"
        "k = kernel_calls.calls(); worst = 0\n"
        "for shape in [(2, 2), (3, 3), (5, 9), (9, 9), (40, 27)]:\n"
        "    for dtype in (torch.float32, torch.float64):\n"
        "        M = family(*shape, dtype)[1]; worst = max(worst, *map(svd_bar, M, *k.svd(M)[:3]))\n"
        "print(k.isa, worst < BAR)"
    )
    used, good = forked.run("-c", code, check=True, environment={"SPECTRALGRAD_ISA": isa}).stdout.split()
    assert good == "True"
    assert used == isa or isa != "baseline" or isa not in kernel_calls.built()


@pytest.mark.parametrize("shape", [(512, 1), (512, 5), (4000, 1), (4000, 2), (3, 4000), (16000, 1)], ids=str)
def test_long_matrices_are_as_accurate_as_by_lapack(shape):
    M = torch.rand(16, *shape, generator=torch.Generator().manual_seed(0))
    reference = torch.linalg.svdvals(M.double())
    ours, lapack = (
        ((S.double() - reference).abs().amax(-1) / reference[:, 0]).mean()
        for S in (sg.svd(M).S, torch.linalg.svd(M, full_matrices=False).S)
    )
    assert ours <= 3 * lapack + torch.finfo(M.dtype).eps
