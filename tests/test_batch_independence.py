"""N4: what stands beside a matrix in its batch changes nothing, to the bit; and what the size of a batch may change."""

import threading
from itertools import product

import pytest
import torch

import spectralgrad as sg
from spectralgrad.native.thresholds import table
from spectralgrad.solvers.decompose import lapack_pool
from spectralgrad.testing import with_spectrum

from .helpers import DTYPES, REAL, in_turn, noise

SIZES = (2, 3, 6, 17, 40, 100)
SQUARE = {
    "svd": lambda X: sg.svd(X).U,
    "polar": sg.polar,
    "nearest_orthogonal": sg.optim.nearest_orthogonal,
    "covariance_sqrt": lambda X: sg.covariance_sqrt(X[..., : X.shape[-1] // 2 + 1]),
    "covariance_sqrt, eps": lambda X: sg.covariance_sqrt(X[..., : X.shape[-1] // 2 + 1], eps=1e-3),
}
POSITIVE = {
    "eigh": lambda X: sg.eigh(X).eigenvectors,
    "sqrt": sg.matrix_sqrt,
    "inv_sqrt": sg.matrix_inv_sqrt,
    "log": sg.matrix_log,
    "taylor": lambda X: sg.matrix_sqrt(X, method="svd-taylor"),
    "newton-schulz": lambda X: sg.matrix_sqrt(X, method="newton-schulz"),
}


def _matrices(count, d, dtype, seed):
    X = torch.randn(count, d, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    for index, steepness in ((0, -2), (1, -6), (3, -30)):  # relative to each other by so many decades
        X[index] = X[index] * torch.logspace(0, steepness, d, dtype=torch.float64).to(dtype)
    X[4] = X[4] * 1e-30
    return X


def _results(f, X):
    X = X.clone().requires_grad_()
    S = f(X)
    return (S.detach(), torch.autograd.grad(S, X, torch.ones_like(S))[0]) if S.requires_grad else (S,)


def _same(f, make):
    """The third and the last of seven matrices get the same bits beside ordinary and beside awkward neighbours."""
    A = make(0)
    plain = A[2:3].expand_as(A).clone()
    plain[-1] = A[-1]
    for got, expected in zip(_results(f, A), _results(f, plain), strict=True):
        assert torch.equal(got[2], expected[2])
        assert torch.equal(got[-1], expected[-1])


@in_turn("name, d", product(SQUARE, SIZES), dtype=DTYPES)
def test_rectangular_operations_do_not_see_the_neighbours(name, d, dtype):
    _same(SQUARE[name], lambda seed: _matrices(7, d, dtype, seed))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_concurrent_lapack_calls_repeat_to_the_bit(dtype):
    """MKL's number of threads is set for the process, and the bits depend on it."""
    X = _matrices(7, 100, dtype, 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, *others = [torch.cat([part.flatten() for part in lapack_pool.eigh(X @ X.mH)]) for _ in range(16)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first, other) for other in others)


def test_the_number_of_threads_is_kept_if_lapack_fails(monkeypatch):
    def fails(A):
        raise RuntimeError("LAPACK")

    monkeypatch.setattr(lapack_pool.lapack, "eigh", fails)
    threads = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="LAPACK"):
        lapack_pool.eigh(torch.eye(100).expand(4, 100, 100))
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [threads]


@pytest.mark.parametrize("n", [1, 3, 7, 20])
@pytest.mark.parametrize("f", [sg.polar, sg.optim.nearest_orthogonal])
def test_each_polar_factor_goes_its_own_way(f, n):
    """Flat, steep and singular matrices take three different routes; the others of the batch do not follow."""
    tall = torch.randn(3, 4 * n, n, generator=torch.Generator().manual_seed(0))
    steep = tall * torch.logspace(0, -2, n)
    singular = tall.clone()
    singular[..., -1] = 0
    for first in (tall, steep, singular):
        alone = f(first)
        for other in (tall, steep, singular):
            for index in range(3):
                mixed = other.clone()
                mixed[index] = first[index]
                assert torch.equal(f(mixed)[index], alone[index])


@in_turn("name, d", product(POSITIVE, SIZES), dtype=DTYPES)
def test_functions_do_not_see_the_neighbours(name, d, dtype):
    _same(POSITIVE[name], lambda seed: (lambda X: X @ X.mH)(_matrices(7, d, dtype, seed)))


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt"])
def test_from_the_tables_batch_on_the_size_of_the_batch_changes_no_root(name, d, dtype):
    smallest = table().smallest_batch(d, dtype)
    if sg.native.kernel() is None or smallest is None:
        pytest.skip("the kernel does not decompose these")
    A = (lambda X: X @ X.mH)(_matrices(8 + smallest, d, dtype, 0))[5:]
    whole = _results(POSITIVE[name], A)
    for count in {smallest, smallest + 1, len(A) - 1}:
        for got, expected in zip(_results(POSITIVE[name], A[:count]), whole, strict=True):
            assert torch.equal(got, expected[:count])


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt"])
def test_below_the_tables_batch_every_matrix_is_decomposed_as_if_alone(name, d, dtype):
    smallest = table().smallest_batch(d, dtype)
    if sg.native.kernel() is None:
        pytest.skip("the kernel does not decompose these")
    A = (lambda X: X @ X.mH)(_matrices(9, d, dtype, 0))[5:][: (smallest or 5) - 1]
    whole = _results(POSITIVE[name], A)
    for index in range(len(A)):
        for got, expected in zip(_results(POSITIVE[name], A[index : index + 1]), whole, strict=True):
            assert torch.equal(got[0], expected[index])


def test_every_worker_of_the_pool_uses_a_single_thread(monkeypatch):
    """The bits that LAPACK returns depend on the number of threads, and a busy machine would decide it."""
    seen, eigh, before = [], lapack_pool.lapack.eigh, torch.get_num_threads()

    def observed(A):
        seen.append(torch.get_num_threads())
        return eigh(A)

    monkeypatch.setattr(lapack_pool.lapack, "eigh", observed)
    torch.set_num_threads(2)
    try:
        lapack_pool.eigh(torch.eye(3).expand(5, 3, 3))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "function",
    [sg.matrix_log, lambda A: sg.matrix_power(A, 0.3), lambda A: sg.matrix_power(A, -3), sg.matrix_exp],
    ids=["log", "power", "whole power", "exp"],
)
def test_a_matrix_that_needs_more_care_does_not_change_its_neighbours(function, dtype, both_ways):
    """The kernel leaves it to the general way, with the gradient of the general way."""
    A = with_spectrum([0.5, 1.0, 1.0, 3.0], dtype=dtype).repeat(4, 1, 1)
    G = noise(*A.shape, dtype=dtype)
    alone, own = value_and_gradient(function, A, G)
    scales = [1.0, torch.finfo(dtype).max ** 0.4, 1.0, torch.finfo(dtype).max ** -0.4]
    if function is sg.matrix_exp:
        scales[3] = 1.0  # small numbers are not unusual to the exponential
    mixed, gradient = value_and_gradient(function, A * torch.tensor(scales, dtype=dtype)[:, None, None], G)
    assert torch.equal(mixed[::2], alone[::2])
    assert torch.equal(gradient[::2], own[::2])
    for k in (1, 3):
        others, slopes = value_and_gradient(function, A * scales[k], G)
        assert torch.equal(mixed[k], others[k])
        assert torch.equal(gradient[k], slopes[k])


def value_and_gradient(function, A, G):
    leaf = A.clone().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf, G)
    return value.detach(), gradient
