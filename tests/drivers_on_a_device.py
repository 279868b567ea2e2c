"""Drivers of torch.linalg that misbehave like those in CUDA, on the pretended device: see test_devices.py."""

import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import matrix
from spectralgrad.solvers.decompose import lapack
from spectralgrad_lab.bench.studies.pretended_device import counted, put

from .on_a_device import _registered, most  # noqa: F401


@pytest.mark.parametrize("shape", [(2, 40, 5), (2, 5, 40), (40, 1), (2, 40, 30)])
def test_tall_and_wide_matrices_are_reduced_to_square_ones(shape, most):  # noqa: F811
    """cuSOLVER decomposes those with more than 32 rows one after another."""
    M = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with counted() as count:
        U, S, Vh = (x.on_host for x in sg.svd(put(M)))
    assert len(count.reads) <= most
    assert count.operations["linalg_qr"] == (max(shape[-2:]) >= 2 * min(shape[-2:]))
    torch.testing.assert_close(S, torch.linalg.svdvals(M))
    torch.testing.assert_close(U * S.unsqueeze(-2) @ Vh, M, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(U.mT @ U, torch.eye(U.shape[-1]).expand(*shape[:-2], -1, -1), rtol=0, atol=1e-5)


def test_vectors_that_are_not_orthonormal_are_noticed(monkeypatch):
    """As of complex64 in cuSOLVER's batched driver (pytorch issue 192483)."""
    driver = lapack.eigh

    def eigh(A):
        w, V = driver(A)
        if V.dim() > 2:
            V[1, :, 0] = V[1, :, 1]
        return w, V

    monkeypatch.setattr(lapack, "eigh", eigh)
    A = torch.stack([matrix(seed) for seed in range(3)]).to(torch.complex64)
    w, V = (x.on_host for x in sg.eigh(put(A)))
    torch.testing.assert_close(V @ (w.unsqueeze(-1) * V.mH), A, rtol=1e-4, atol=1e-5)
    with sg.solvers.unchecked():
        w, V = (x.on_host for x in sg.eigh(put(A)))
    assert V.isnan().flatten(1).all(1).tolist() == [False, True, False]
    with pytest.raises(sg.SpectralError, match="eigh at position 1"):
        sg.solvers.check()


def test_only_the_matrices_concerned_are_decomposed_again(monkeypatch):
    """A driver that refuses a batch gets halves of it; what it still refuses climbs the ladder, last on the host."""
    batches, numpys = [], []
    driver, by_numpy, by_svd = lapack.eigh, lapack.eigh_numpy, lapack.eigh_by_svd

    def eigh(A):
        batches.append(A.shape[:-2].numel())
        if bool((A[..., 0, 0] < 0).any()):
            raise torch.linalg.LinAlgError("refused")
        return driver(A)

    monkeypatch.setattr(lapack, "eigh", eigh)
    monkeypatch.setattr(lapack, "eigh_numpy", lambda A: numpys.append(1) or by_numpy(A))
    A = torch.stack([matrix(seed) for seed in range(16)])
    A[5] *= -1
    torch.testing.assert_close(sg.eigh(put(A)).eigenvalues.on_host, torch.linalg.eigvalsh(A))
    assert batches[:7] == [16, 16, 16, 8, 4, 4, 2]  # the optimistic run, the same of zeros, the careful one, halves
    assert not numpys
    monkeypatch.setattr(lapack, "eigh_by_svd", lambda A: [x * 0 for x in by_svd(A)])
    torch.testing.assert_close(sg.eigh(put(A)).eigenvalues.on_host, torch.linalg.eigvalsh(A))
    assert len(numpys) == 1


@pytest.mark.parametrize("call", [sg.eigvalsh, sg.svdvals, sg.matrix_sqrt, sg.polar])
def test_a_driver_that_spoils_a_batch_with_nan_does_not_see_it(call, monkeypatch):
    """A matrix that is not finite is kept from the driver, for which one NaN may spoil all results."""

    def guarded(driver):
        def run(A):
            assert bool(A.isfinite().all())
            return driver(A)

        return run

    for name in ("eigh", "svd"):
        monkeypatch.setattr(lapack, name, guarded(getattr(lapack, name)))
    A = torch.stack([matrix(seed) for seed in range(3)])
    B = A.clone()
    B[1, 0, 0] = torch.nan
    with sg.solvers.unchecked():
        found = call(put(B)).on_host
    torch.testing.assert_close(found[[0, 2]], call(A)[[0, 2]])
    assert found[1].isnan().all()
    with pytest.raises(sg.SpectralError, match="position 1"):
        sg.solvers.check()
