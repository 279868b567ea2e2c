"""In batch-invariant mode a matrix gives the same bits alone and in every batch, and elsewhere nothing changes."""

import threading

import pytest
import torch

import spectralgrad as sg
from spectralgrad.native import kernel, library
from spectralgrad.native.calls import Singular
from spectralgrad.solvers import batch_invariance, batch_invariant
from spectralgrad.solvers.decompose import choice, lapack

from .helpers import DTYPES, REAL

# Odd sizes, for which LAPACK itself depends on the batch; the limits of the lanes (48) and of the table (64, 128).
SIZES = (1, 3, 7, 17, 48, 49, 65, 129)
DECOMPOSITIONS = {
    "eigh": sg.eigh,
    "eigvalsh": sg.eigvalsh,
    "svd": sg.svd,
    "svd of wide matrices": lambda M: sg.svd(M[..., :-1, :], full_matrices=False),
    "svdvals": sg.svdvals,
}
IN_KERNEL = {"matrix_sqrt": sg.matrix_sqrt, "matrix_inv_sqrt": sg.matrix_inv_sqrt}


def matrices(d, dtype):
    """Positive semi-definite: random, the identity, zero, rank one, small, and graded over twelve orders."""
    X = torch.randn(9, d, d, dtype=dtype, generator=torch.Generator().manual_seed(d))
    A = X @ X.mH / d
    A[1], A[2], A[3] = torch.eye(d, dtype=dtype), 0, 1
    A[4] *= 1e-20
    A[5] = torch.diag(torch.logspace(0, -12, d, dtype=torch.float64).to(dtype))
    return A


def parts(result):
    return result if isinstance(result, tuple) else (result,)


def same_bits(function, A):
    """True if all matrices alone, and some parts of the batch, give the bits of the whole batch."""
    whole = parts(function(A))
    indices = [*range(len(A)), slice(0, 1), slice(1, 3), slice(2, None), slice(None, None, 3)]
    return all(
        torch.equal(x, y[index])
        for index in indices
        for x, y in zip(parts(function(A[index].clone())), whole, strict=True)
    )


def gradient(function):
    def of(A):
        A = A.clone().requires_grad_()
        results = parts(function(A))
        cotangents = [torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype).expand_as(x) for x in results]
        return torch.autograd.grad(results, A, cotangents)

    return of


@pytest.mark.parametrize("native", [True, False], ids=["kernel", "LAPACK"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions_do_not_depend_on_the_batch(name, dtype, native, monkeypatch):
    if not native:
        monkeypatch.setattr(library, "switched_off", True)
    for d in SIZES if native else (7, 17, 65):
        with batch_invariant():
            assert same_bits(DECOMPOSITIONS[name], matrices(d, dtype)), d


@pytest.mark.skipif(kernel() is None, reason="products are torch's, which depend on the batch")
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_roots_and_gradients_of_the_kernel_do_not_depend_on_the_batch(dtype):
    for name, function in (DECOMPOSITIONS | IN_KERNEL).items():
        for d in (3, 17, 65):
            with batch_invariant():
                assert name in DECOMPOSITIONS or same_bits(function, matrices(d, dtype)), (name, d)
                assert same_bits(gradient(function), matrices(d, dtype)), (name, d)


@pytest.mark.skipif(kernel() is None, reason="the kernel has the algorithms between which the batch decides")
def test_without_the_mode_the_batch_decides():
    """Otherwise the tests above could not fail. LAPACK differs too, so its calls have to be separated."""
    assert not same_bits(sg.eigh, matrices(17, torch.float32))
    assert [choice.in_lanes(torch.Size([n, 17, 17]), torch.float32) for n in (1, 100)] == [False, True]
    with batch_invariant():
        assert [choice.in_lanes(torch.Size([n, 17, 17]), torch.float32) for n in (1, 100)] == [True, True]
        assert [choice.in_lanes(torch.Size([n, 65, 65]), torch.float32) for n in (1, 100)] == [False, False]


def test_lapack_separately_is_lapack():
    A = matrices(5, torch.float64).reshape(3, 3, 5, 5)
    for driver in (lapack.eigh, lapack.svd):
        for M in (A, A[0, 0], A[:0]):
            one_by_one, together = lapack.separately(driver, M), driver(M)
            assert [x.shape for x in one_by_one] == [x.shape for x in together]
            assert all(torch.allclose(x.abs(), y.abs(), atol=1e-13) for x, y in zip(one_by_one, together, strict=True))


def test_compiled_and_mapped_calls_read_the_mode_when_they_run():
    A = matrices(17, torch.float32)
    compiled = torch.compile(lambda A: sg.eigh(A).eigenvectors, fullgraph=True, backend="aot_eager")
    usual = compiled(A[0])
    with batch_invariant():
        expected = sg.eigh(A).eigenvectors
        assert torch.equal(compiled(A[0]), expected[0])
        assert torch.equal(torch.vmap(lambda A: sg.eigh(A).eigenvectors)(A), expected)
    assert kernel() is None or not torch.equal(usual, expected[0])


def test_it_is_nested_a_decorator_and_of_this_thread():
    seen = []
    with batch_invariant() as outer, outer, batch_invariant():
        thread = threading.Thread(target=lambda: seen.append(batch_invariance.active()))
        thread.start()
        thread.join()
        assert batch_invariance.active()
    assert seen == [False]
    assert not batch_invariance.active()
    assert batch_invariant()(batch_invariance.active)()
    with pytest.raises(ZeroDivisionError), batch_invariant():
        _ = 1 / 0
    assert not batch_invariance.active()


@pytest.mark.skipif(kernel() is None, reason="the kernel fails here")
def test_values_that_the_kernel_does_not_find_leave_the_others_as_they_are(monkeypatch):
    M = matrices(5, torch.float32)
    found = sg.svdvals(M)
    spoiled = found.index_fill(0, torch.tensor([2, 6]), torch.nan)
    monkeypatch.setattr(Singular, "svdvals", lambda self, M: (spoiled.clone(), 2))
    S = sg.solvers.svdvals(M)
    others = [0, 1, 3, 4, 5, 7, 8]
    assert torch.equal(S[others], found[others])
    assert torch.allclose(S[6], found[6], rtol=1e-5)
