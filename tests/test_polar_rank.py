"""The gradient of the polar factor of rank-deficient matrices is the one that its documentation states."""

import pytest
import torch
from torch.func import jvp

import spectralgrad as sg
from spectralgrad.testing import random_orthogonal, relative_error

from .helpers import DOUBLES

# The shape and the singular values.
CASES = {
    "square": ((4, 4), [2.0, 1.0, 0.5, 0.0]),
    "double null space": ((5, 5), [2.0, 2.0, 0.7, 0.0, 0.0]),
    "tall": ((6, 4), [3.0, 1.0, 0.0, 0.0]),
    "zero": ((3, 3), [0.0, 0.0, 0.0]),
}
BOUND = 1e-13


def _noise(shape, dtype, seed):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _matrix(case, dtype, seed):
    """The matrix in a random basis, its singular values and its right singular vectors."""
    (m, n), values = CASES[case]
    S = torch.tensor(values, dtype=torch.float64)
    U, V = (random_orthogonal(size, dtype=dtype, seed=seed + i)[:, : len(S)] for i, size in enumerate((m, n)))
    return (U * S) @ V.mH, S, V


def _documented(S, V, Q, G):
    """The formula of the docstring, with the left singular vectors that belong to the factor Q."""
    U = Q @ V
    P = U.mH @ G @ V
    total = S[:, None] + S
    inner = torch.where(total > 0, 1 / total, 0) * (P - P.mH)
    return (U @ inner + (G @ V - U @ P) * torch.where(S > 0, 1 / S, 0)) @ V.mH


def _gradients(M, G):
    """The factor, its gradient, and the gradient by the formulas that can be differentiated again."""
    leaf = M.clone().requires_grad_()
    Q = sg.polar(leaf)
    loss = (Q * G.conj()).sum().real
    (g,) = torch.autograd.grad(loss, leaf, retain_graph=True)
    (again,) = torch.autograd.grad(loss, leaf, create_graph=True)
    return Q.detach(), g, again.detach()


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_the_documented_one(case, dtype):
    for seed in range(3):
        M, S, V = _matrix(case, dtype, seed)
        for wide in (False, True):
            G = _noise(M.shape, dtype, seed)
            Q, *found = (x.mH if wide else x for x in _gradients(*(x.mH if wide else x for x in (M, G))))
            expected = _documented(S, V, Q, G)
            for g in found:
                assert torch.linalg.vector_norm(g - expected) <= BOUND * torch.linalg.vector_norm(G)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_derivative_along_changes_of_constant_rank(case, dtype):
    """To first order Q stays unitary, QᴴM stays Hermitian, and Q does not rotate the null space in its image."""
    M, S, V = _matrix(case, dtype, 5)
    null = V[:, S == 0]
    change = _noise((len(M), len(M)), dtype, 1) @ M + M @ _noise((len(V), len(V)), dtype, 2)  # the rank stays the same
    Q, dQ = jvp(sg.polar, (M,), (change,))
    H = dQ.mH @ M + Q.mH @ change
    bound = BOUND * (1 + torch.linalg.vector_norm(change))
    for zero in (Q.mH @ dQ + dQ.mH @ Q, H - H.mH, null.mH @ Q.mH @ dQ @ null):
        assert torch.linalg.vector_norm(zero) < bound
    G = _noise(M.shape, dtype, 3)
    _, g, _ = _gradients(M, G)
    assert abs((g.conj() * change).sum().real - (G.conj() * dQ).sum().real) < bound


def test_a_change_within_the_null_space_has_no_gradient():
    M, S, V = _matrix("square", torch.float64, 2)
    G = _noise(M.shape, M.dtype, 4)
    Q, g, _ = _gradients(M, G)
    null = V[:, S == 0]
    assert torch.linalg.vector_norm((Q @ null).mT @ g @ null) < BOUND
    assert relative_error(sg.polar(M + 1e-3 * Q @ null @ null.mT), Q) < 1e-12  # the same factor
    assert relative_error(sg.polar(M - 1e-3 * Q @ null @ null.mT), Q) > 0.5  # and one on the other side of the jump
