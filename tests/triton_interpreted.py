"""Tests of the Triton kernels for a process with TRITON_INTERPRET=1: see test_triton_kernels.py.

The interpreter runs one operation of all matrices of a program after another, in numpy. So each test passes its
matrices as one batch, and a program has more matrices than on a device.
"""

import numpy as np
import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics.fuzzing import FAMILIES
from spectralgrad.precision import negative_tolerance, rank_tolerance
from spectralgrad.solvers import devices
from spectralgrad.solvers.devices import launching
from spectralgrad.testing import PolarReference, Reference, relative_error, with_spectrum

from .helpers import REAL, noise, rectangular, unit
from .lapack_matrices import BAR, KINDS, SINGULAR_KINDS, eigh_bar, hermitian_matrix, rectangular_matrix, svd_bar

SIZES = (2, 3, 4, 5, 8)
SHAPES = ((1, 1), (2, 2), (3, 3), (4, 4), (1, 4), (3, 2), (2, 7), (8, 3), (5, 5), (8, 8))
TALL_SHAPES = ((9, 1), (9, 8), (3, 40), (300, 3))
SCALES = {torch.float32: (1.0, 1e30, 1e-30), torch.float64: (1.0, 1e150, 1e-150)}
SPECTRA = ([1.0] * 8, np.linspace(1, 0.1, 8), [1.0] + [1e-3] * 7, [1.0, 0.5, 0.5, 1e-2, 1e-2, 1e-3, 1e-3, 1e-3])


@pytest.fixture(autouse=True)
def _many_threads(request, monkeypatch):
    """One program for up to 512 matrices. Long matrices keep 32 threads per warp, and so have several blocks."""
    if "tall" not in request.node.name:
        monkeypatch.setattr(launching, "warp", lambda: 512)


def bits(*results):
    """What compares results bit for bit, NaN included."""
    return [x.numpy().tobytes() for x in results]


def worst(bar, *results):
    """The largest ratio over a batch; printed, as these figures are quoted."""
    found = max(map(bar, *results))
    print(f"  {found:.1f}")
    return found


def of_families(d, dtype):
    """Two matrices of each family of the fuzz test that has symmetric matrices of this size, at each scale.

    Without those whose largest entry has lost digits to the end of the range: their eigenvalues have fewer digits.
    """
    random = np.random.default_rng(d)
    made = [family.make(random, 2, d, False) for family in FAMILIES.values() if family.kind != "features"]
    A = torch.from_numpy(np.concatenate([A for A in made if A.shape[-1] == d]))
    found = torch.cat([(A * scale).to(dtype) for scale in SCALES[dtype]])
    size = found.abs().amax((1, 2))
    return found[(size == 0) | (size > torch.finfo(dtype).tiny / unit(dtype))]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", SIZES)
class TestEigh:
    def test_passes_lapacks_bar(self, d, dtype):
        A = torch.stack([hermitian_matrix(kind, d, dtype) for kind in KINDS.values()])
        w, V, failed = devices.eigh(A)
        assert worst(eigh_bar, A, w, V) < BAR
        assert bool((w.diff() >= 0).all())
        assert not bool(failed.any())

    def test_passes_lapacks_bar_on_the_families_of_the_fuzz_test(self, d, dtype):
        A = of_families(d, dtype)
        w, V, failed = devices.eigh(A)
        assert worst(eigh_bar, A, w, V) < BAR
        assert not bool(failed.any())


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
class TestSvd:
    def test_passes_lapacks_bar(self, shape, dtype):
        M = torch.stack([rectangular_matrix(kind, *shape, dtype) for kind in SINGULAR_KINDS.values()])
        U, S, Vh, failed = devices.svd(M)
        assert worst(svd_bar, M, U, S, Vh) < BAR
        assert bool((S.diff() <= 0).all())
        assert not bool(failed.any())

    def test_passes_lapacks_bar_on_the_families_of_the_fuzz_test(self, shape, dtype):
        M = of_families(max(2, *shape), dtype)[:, : shape[0], : shape[1]].contiguous()
        U, S, Vh, failed = devices.svd(M)
        assert worst(svd_bar, M, U, S, Vh) < BAR
        assert not bool(failed.any())


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", TALL_SHAPES, ids=str)
def test_tall_svd_passes_lapacks_bar(shape, dtype):
    M = torch.stack([rectangular_matrix(kind, *shape, dtype) for kind in SINGULAR_KINDS.values()])
    U, S, Vh, failed = devices.tall_svd(M)
    assert worst(svd_bar, M, U, S, Vh) < BAR
    assert bool((S.diff() <= 0).all())
    assert not bool(failed.any())


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (5, 5), (140, 3)], ids=str)
def test_tall_and_small_singular_values_are_accurate_relative_to_themselves(shape, dtype):
    """Columns that differ by a factor of 1e6 are what one-sided rotations keep apart and a Gram matrix does not."""
    n = shape[1]
    scales = torch.tensor([1.0, 1e-3, 1e-6, 1e-4, 1e-5][:n], dtype=torch.float64)
    M = (rectangular([1.0, 0.9, 0.8, 0.7, 0.6][:n], *shape) * scales).to(dtype)
    S = (devices.tall_svd if shape[0] > 8 else devices.svd)(M[None])[1][0]
    assert float((S.double() / _fifty_digits(M) - 1).abs().max()) <= 40 * unit(dtype)


def _fifty_digits(M):
    import mpmath

    with mpmath.workdps(50):
        wide = mpmath.matrix(M.double().tolist())
        values = mpmath.eigsy(wide.T * wide, eigvals_only=True)
        return torch.tensor(sorted((float(mpmath.sqrt(x)) for x in values), reverse=True), dtype=torch.float64)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("inverse", [False, True])
def test_roots_and_gradients_agree_with_fifty_digits(inverse, d, dtype):
    """Within the contract: 100 u κ of the matrix, at ties too."""
    A = torch.stack([with_spectrum(spectrum[-d:], dtype=dtype, seed=i) for i, spectrum in enumerate(SPECTRA)])
    G = noise(len(A), d, d, dtype=dtype)
    S, s, V, state = devices.root(A, inverse, rank_tolerance(d, dtype), negative_tolerance(d, dtype))
    X = devices.root_derivative(V, s, G, inverse)
    assert not bool(state.any())
    assert bool((S == S.mT).all() & (X == X.mT).all())
    name, limit = "inv_sqrt" if inverse else "sqrt", 100 * unit(dtype) * 1e3
    for i in range(len(A)):
        reference = Reference(A[i])
        assert relative_error(S[i], reference.value(name)) <= limit
        assert relative_error(X[i], reference.gradient(name, G[i])) <= limit


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", [3, 5])
def test_roots_of_singular_matrices_are_those_of_the_range(d, dtype):
    values = [4.0] + [0.0] * (d - 1)
    A, G = with_spectrum(values, dtype=dtype, seed=1), noise(d, d, dtype=dtype)
    for inverse, value in ((False, 2.0), (True, 0.5)):
        S, s, V, state = devices.root(A[None], inverse, rank_tolerance(d, dtype), negative_tolerance(d, dtype))
        assert not bool(state.any())
        assert s[0].tolist()[:-1] == [0.0] * (d - 1)
        assert relative_error(S[0], A * value / 4) <= 50 * unit(dtype)
        X, P = devices.root_derivative(V, s, G[None], inverse)[0], A.double() / 4
        H, null = (G + G.mT).double() / 2, torch.eye(d, dtype=torch.float64) - A.double() / 4
        within, beside = (-1 / 16, 1 / 8) if inverse else (1 / 4, 1 / 2)  # f'(4) and f(4)/4
        expected = within * P @ H @ P + beside * (P @ H @ null + null @ H @ P)
        assert relative_error(X, expected) <= 100 * unit(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_roots_at_the_ends_of_the_range(dtype):
    info = torch.finfo(dtype)
    A = torch.eye(3, dtype=dtype).expand(3, 3, 3) * torch.tensor([info.max, info.tiny, 0.0], dtype=dtype)[:, None, None]
    S, s, _, state = devices.root(A.contiguous(), False, 0.0, 0.0)
    assert state.tolist() == [0, 0, 0]
    assert relative_error(S.diagonal(dim1=1, dim2=2)[1], s[1].double()) <= 4 * unit(dtype)
    assert relative_error(s[:, 0], torch.tensor([info.max, info.tiny, 0.0], dtype=torch.float64).sqrt()) < unit(dtype)
    Z = devices.root(A.contiguous(), True, 0.0, 0.0)[0]
    assert relative_error(Z[1, 0, 0], torch.tensor(info.tiny, dtype=torch.float64).rsqrt()) <= 2 * unit(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_polar_factors_and_gradients_agree_with_fifty_digits(n, dtype):
    values = ([1.0, 0.8, 0.5, 0.3], [1.0] * 4, [-0.3, 1.0, 1.0, 0.7])  # the last one mirrors
    M = torch.stack([rectangular(x[:n], dtype=dtype, seed=i) for i, x in enumerate(values)])
    G = noise(*M.shape, dtype=dtype)
    Q, h, Vh, failed = devices.polar(M, False, 0.0)
    X = devices.polar_derivative(Q, h, Vh, G)
    assert not bool(failed.any())
    for i in range(len(M)):
        reference = PolarReference(M[i])
        assert relative_error(Q[i], reference.value()) <= 50 * unit(dtype)
        assert relative_error(X[i], reference.gradient(G[i])) <= 100 * unit(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_rotations(n, dtype):
    """Of mirrored, singular and zero matrices too; the derivative is that of the library's composition."""
    values = ([1.0, 0.8, 0.5, 0.3], [-0.3, 1.0, 0.9, 0.7], [0.0, 1.0, 0.5, 0.2], [0.0] * 4)
    M = torch.stack([rectangular(x[:n], dtype=dtype, seed=i) for i, x in enumerate(values)])
    Q, h, Vh, failed = devices.polar(M, True, 0.0)
    assert not bool(failed.any())
    assert float((torch.linalg.det(Q.double()) - 1).abs().max()) <= 50 * unit(dtype)
    assert float((Q.double() @ Q.double().mT - torch.eye(n)).abs().max()) <= 50 * unit(dtype)
    assert float(((Q @ Vh.mT * h.unsqueeze(-2)) @ Vh - M).abs().max()) <= 50 * unit(dtype)
    assert bool((h[:, :-1] >= h[:, -1:].abs()).all())
    G, wide = noise(3, n, n, dtype=dtype), M[:3].double().requires_grad_()
    (expected,) = torch.autograd.grad((sg.polar(wide, special=True) * G).sum(), wide)
    X = devices.polar_derivative(Q[:3], h[:3], Vh[:3], G)
    assert float((X - expected).abs().max()) <= 500 * unit(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "k"), [(5, 2), (40, 3), (1100, 3)])
def test_point_sets_agree_with_sums_in_torch(n, k, weighted, dtype):
    """Sets of one block and of several; a masked point, and a set whose weights are all zero."""
    X, Y = noise(3, n, k, dtype=dtype), noise(3, n, k, dtype=dtype, seed=1)
    w = noise(3, n, dtype=dtype, seed=2).abs() * (torch.arange(n) != 3) * (torch.arange(3) != 2)[:, None]
    R, pulls = noise(3, k, k, dtype=dtype), (noise(3, k, dtype=dtype), noise(3, k, dtype=dtype, seed=1))
    w, close = (w if weighted else None), {"rtol": 0, "atol": 40 * n * unit(dtype)}
    for center in (False, True):
        C, x, y = devices.cross_covariance(X, Y, w, center)
        exact = [z.double().requires_grad_() for z in (X, Y, *(() if w is None else (w,)))]
        expected, means, distance = _in_torch(*exact, R=R.double(), center=center)
        for found, wanted in zip((C, x, y), (expected, *means), strict=True):
            torch.testing.assert_close(found.double(), wanted, **close)
        torch.testing.assert_close(devices.fit_distance(X, Y, w, x, y, R).double(), distance, **close)
        pulled = sum((m * p).sum() for m, p in zip(means, pulls, strict=True)) if center else 0
        wanted = torch.autograd.grad((expected * R).sum() + pulled, exact)
        found = devices.point_gradients(X, Y, w, (x, y), R, pulls if center else None)
        for g, h in zip(found, wanted, strict=False):
            ordinary = slice(None, 2) if weighted else slice(None)  # torch divides by the zero sum of the last weights
            torch.testing.assert_close(g.double()[ordinary], h[ordinary], **close)


def _in_torch(X, Y, w=None, *, R, center):
    w = torch.ones_like(X[..., 0]) if w is None else w
    total = w.sum(-1, keepdim=True)
    share = torch.where(total > 0, w / torch.where(total > 0, total, 1), 0).unsqueeze(-1) * center
    x, y = (share * X).sum(-2, keepdim=True), (share * Y).sum(-2, keepdim=True)
    misses = (X - x) @ R.mT - (Y - y)
    C = (w.unsqueeze(-1) * (Y - y)).mT @ (X - x)
    return C, (x.squeeze(-2), y.squeeze(-2)), (w * misses.square().sum(-1)).sum(-1)


def test_states_of_roots():
    A = torch.stack([torch.diag(torch.tensor([1.0, x])) for x in (0.5, -0.5, -1e-9, float("nan"), float("inf"))])
    S, s, V, state = devices.root(A, False, 1e-6, 1e-5)
    assert state.tolist() == [0, devices.INDEFINITE, 0, devices.FAILED, devices.FAILED]
    assert torch.isfinite(S[:3]).all()
    assert s[1].tolist() == [0.0, 1.0]
    assert all(bool(x[3:].isnan().all()) for x in (S, s, V))
    assert devices.root(A, False, 1e-6, float("inf"))[3].tolist() == [0, 0, 0, devices.FAILED, devices.FAILED]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("d", [3, 5])
def test_a_failed_matrix_stays_alone(d, bad):
    A = torch.stack([hermitian_matrix(kind, d, torch.float64) for kind in KINDS.values()])
    B = A.clone()
    B[4, d - 1, 0] = bad
    calls = [devices.eigh, devices.svd, lambda A: devices.root(A, False, 0.0, float("inf"))]
    calls += [lambda A: devices.polar(A, True, 0.0)] * (d <= 4)
    for call in calls:
        good, found = call(A), call(B)
        failed = found[-1].bool()
        assert failed.nonzero().flatten().tolist() == [4]
        assert all(bool(x[4].isnan().all()) for x in found[:-1])
        assert bits(*(x[~failed] for x in good)) == bits(*(x[~failed] for x in found))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_failed_tall_matrix_stays_alone(bad):
    M = torch.stack([rectangular_matrix(kind, 200, 3, torch.float64) for kind in SINGULAR_KINDS.values()])
    N = M.clone()
    N[4, 150, 1] = bad
    good, found = devices.tall_svd(M), devices.tall_svd(N)
    failed = found[-1]
    assert failed.nonzero().flatten().tolist() == [4]
    assert all(bool(x[4].isnan().all()) for x in found[:-1])
    assert bits(*(x[~failed] for x in good)) == bits(*(x[~failed] for x in found))


@pytest.mark.parametrize("d", [3, 5])
def test_results_do_not_depend_on_the_rest_of_the_batch(d):
    A = torch.stack([hermitian_matrix(kind, d, torch.float32) for kind in KINDS.values()])
    for call in (devices.eigh, devices.svd):
        whole = call(A)
        for i in (1, 4, 9):  # a tie, a cluster and a graded matrix
            assert bits(*(x[i : i + 1] for x in whole)) == bits(*call(A[i : i + 1].contiguous()))


def test_only_the_lower_triangle_is_read():
    A = torch.stack([hermitian_matrix(kind, 3, torch.float64) for kind in KINDS.values()])
    assert bits(*devices.eigh(A)) == bits(*devices.eigh(A.tril() + torch.full_like(A, float("nan")).triu(1)))


def test_shapes_of_batches():
    for shape in ((0, 3, 3), (3, 3), (2, 0, 3, 3), (2, 1, 3, 3)):
        A = torch.eye(3).expand(shape).contiguous()
        w, V, failed = devices.eigh(A)
        assert (w.shape, V.shape, failed.shape) == (shape[:-1], shape, shape[:-2])
        U, S, Vh, failed = devices.svd(A)
        assert (U.shape, S.shape, Vh.shape, failed.shape) == (shape, shape[:-1], shape, shape[:-2])
        assert torch.equal(w, S)
