"""SVD-PI: in closed form what Algorithm 1 of NeurIPS 2019 computes step by step, with its stopping rules."""

import pytest
import torch

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import gradient, symmetric_noise

SPECTRUM = (0.05, 0.19, 0.2, 0.4, 0.69, 0.7, 0.95, 1.0)  # two close pairs
KEEP_ALL = {"eps": 0.0, "energy": 2.0, "tolerance": float("inf")}  # Algorithm 1 without its stopping rules


@pytest.mark.parametrize("iterations", [2, 19])
def test_closed_form_equals_the_unrolled_algorithm(iterations):
    A, H = with_spectrum(SPECTRUM), torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    closed, unrolled = (sg.SVDPI(iterations=iterations, unrolled=u, **KEEP_ALL) for u in (False, True))
    vectors = [gradient(lambda M, m=m: sg.eigh(M, method=m).eigenvectors, A, H) for m in (closed, unrolled)]
    assert relative_error(*vectors) < 1e-12
    roots = [gradient(lambda M, m=m: sg.matrix_sqrt(M, method=m), A, symmetric_noise(8)) for m in (closed, unrolled)]
    assert relative_error(*roots) < 1e-12


@pytest.mark.parametrize(
    ("options", "discarded"),
    [
        (KEEP_ALL, 0),
        ({**KEEP_ALL, "eps": 0.195}, 2),
        ({**KEEP_ALL, "energy": 0.9}, 3),  # shares 0.239, 0.467, 0.634, 0.799, 0.895, 0.943, …
        ({**KEEP_ALL, "energy": 1.0}, 0),
    ],
    ids=["none", "eps", "energy", "energy-disabled"],
)
def test_stopping_rules(options, discarded):
    """Pairs are kept, largest first, until λ ≤ ε or their energy reaches the share; a share of 1 disables that rule."""
    A = with_spectrum(SPECTRUM)
    w, V = sg.eigh(A)
    assert (~sg.SVDPI(**options).kept(A, w, V)).sum() == discarded


@pytest.mark.parametrize("seed", [1, 4])
def test_a_negative_quotient_of_power_iteration_has_no_part_in_the_function_and_its_gradient(seed):
    """After one step from a random start the last quotient is negative; its inverse root would be NaN."""
    method = sg.PI(iterations=1, **KEEP_ALL)
    A, E, G = with_spectrum([1e-3, 0.5, 0.9, 1.0], seed=seed), symmetric_noise(4), symmetric_noise(4, seed=2)
    assert (sg.eigh(A, method=method).eigenvalues < 0).sum() == 1
    f = lambda A: (sg.matrix_inv_sqrt(A, method=method) * G).sum()  # noqa: E731
    slope = (f(A + 1e-6 * E) - f(A - 1e-6 * E)) / 2e-6
    found = gradient(lambda A: sg.matrix_inv_sqrt(A, method=method), A, G)
    torch.testing.assert_close((found * E).sum(), slope, rtol=1e-6, atol=0)
