"""eigsh at repeated eigenvalues: it converges, and the gradient of vectors cut off from a tie is refused."""

import pytest
import torch

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

KRON = torch.kron(torch.eye(2, dtype=torch.float64), torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))


def _spectrum(n, copies, gap=0.0):
    """Ascending eigenvalues from −1 to 1, the largest repeated; one copy is smaller by ``gap``."""
    inner = torch.linspace(-1, 0.8, n - copies, dtype=torch.float64)
    return torch.cat([inner, torch.full((copies,), 1.0, dtype=torch.float64) - gap * (torch.arange(copies) == 0)])


def _gradient(decompose, A, seed, power=1):
    A = A.clone().requires_grad_()
    V = decompose(A).eigenvectors
    weights = torch.randn(V.shape, dtype=V.dtype, generator=torch.Generator().manual_seed(seed))
    return torch.autograd.grad((weights * V**power).sum(), A)[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_through_a_double_eigenvalue_is_refused(seed):
    rotated = with_spectrum([1.0, 1.0, 3.0, 3.0], dtype=torch.float64, seed=seed)
    for A in (KRON, rotated):
        for largest in (True, False):
            with pytest.raises(sg.ConvergenceError, match="Choose k"):
                _gradient(lambda A, end=largest: sg.eigsh(A, 1, largest=end), A, seed)


@pytest.mark.parametrize("scale", [2.0**-60, 1.0, 2.0**40])
@pytest.mark.parametrize(("n", "copies", "k"), [(3, 2, 1), (5, 3, 2), (8, 2, 1), (33, 3, 1), (80, 2, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cut_through_a_tie_is_refused_at_every_scale_and_end(n, copies, k, scale, dtype):
    w = _spectrum(n, copies)
    spectra = {True: w, False: -w.flip(0)}
    null = w.clone() if n < 5 else (w.flip(0) - 1).abs().sort().values  # a tie at zero, far below the norm
    for seed in range(3):
        for largest, spectrum in [*spectra.items(), (n < 5, null)]:
            A = (scale * with_spectrum(spectrum, dtype=torch.float64, seed=seed)).to(dtype)
            with pytest.raises(sg.ConvergenceError, match="Choose k"):
                _gradient(lambda A, end=largest: sg.eigsh(A, k, largest=end), A, seed)


@pytest.mark.parametrize(("n", "gap"), [(4, 1e-4), (4, 1e-8), (4, 1e-12), (40, 1e-4), (40, 1e-6), (80, 1e-5)])
def test_a_gap_beyond_rounding_is_not_refused(n, gap):
    """The error of the eigenvectors, and so of the gradient, is the rounding error divided by the gap."""
    A = with_spectrum(_spectrum(n, 2, gap), dtype=torch.float64, seed=1)
    expected = _gradient(lambda A: sg.eigh(A, k=1), A, 0, power=2)
    found = _gradient(lambda A: sg.eigsh(A, 1), A, 0, power=2)
    assert relative_error(found, expected) < 100 * n**0.5 * torch.finfo(torch.float64).eps / gap


@pytest.mark.parametrize(("n", "copies", "k"), [(100, 3, 1), (200, 3, 1), (100, 3, 2), (150, 6, 3), (100, 10, 4)])
def test_the_solver_converges_at_repeated_eigenvalues(n, copies, k):
    pytest.importorskip("scipy")
    spectrum = _spectrum(n, copies)
    for seed in range(12):
        for sign in (1, -1):
            A = with_spectrum(sign * spectrum, dtype=torch.float64, seed=seed)
            w, V = sg.eigsh(A, k, largest=sign > 0)
            eps = torch.finfo(torch.float64).eps
            assert (w - sign).abs().max() < 30 * n**0.5 * eps
            assert torch.linalg.vector_norm(A @ V - V * w, dim=0).max() < 30 * n**0.5 * eps
            assert (V.mT @ V - torch.eye(k, dtype=torch.float64)).abs().max() < 30 * n**0.5 * eps
