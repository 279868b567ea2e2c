"""Gradients of functions of block-diagonal matrices from mpmath, whose blocks may have any scale."""

from __future__ import annotations

import math

import mpmath
import torch

from spectralgrad.testing import with_spectrum

FUNCTIONS = {  # name → f and f'
    "power": lambda p: (lambda x: x**p, lambda x: p * x ** (p - 1)),
    "log": lambda _: (mpmath.log, lambda x: 1 / x),
    "exp": lambda _: (mpmath.exp, mpmath.exp),
}


def blocks_of(sizes, dtype, turned=True):
    """Blocks (2, 2) of these sizes, with random eigenvectors; a zero or a block that is not ``turned`` is a number."""
    shape = [1.0, 0.4]
    return [
        (with_spectrum(shape, seed=i) * size).to(dtype) if turned and size else torch.full((1, 1), size, dtype=dtype)
        for i, size in enumerate(sizes)
    ]


def gradient(blocks, f, slope, G):
    """V (Γ ∘ Vᵀ sym(G) V) Vᵀ as a matrix of mpmath; f is zero on the null space, and Γ as for constant rank."""
    pairs = [mpmath.eigsy(mpmath.matrix(B.double().tolist())) for B in blocks]
    w = [x for values, _ in pairs for x in values]
    V, at = mpmath.zeros(len(w)), 0
    for values, Q in pairs:
        for i in range(len(values)):
            for j in range(len(values)):
                V[at + i, at + j] = Q[i, j]
        at += len(values)
    G = mpmath.matrix(((G + G.mT) / 2).double().tolist())
    inner, values = V.T * G * V, [f(x) if x else mpmath.mpf(0) for x in w]
    for i, a in enumerate(w):
        for j, b in enumerate(w):
            inner[i, j] *= (values[i] - values[j]) / (a - b) if a != b else slope(a) if a else 0
    return V * inner * V.T


def _number(x):
    return math.inf * mpmath.sign(x) if abs(x) > mpmath.mpf(2) ** 1024 else float(x)


def assert_gradient(found, blocks, name, p, G, tolerance):
    """Compare a gradient with the reference: diagonal matrices entry by entry, others relative to the largest entry."""
    with mpmath.workdps(60):
        wanted = gradient(blocks, *FUNCTIONS[name](None if p is None else mpmath.mpf(p)), G)
        wanted = torch.tensor([[_number(x) for x in row] for row in wanted.tolist()], dtype=torch.float64)
    info, found = torch.finfo(found.dtype), found.double()
    beyond = wanted.abs() > info.max
    assert torch.equal(found[beyond], wanted[beyond].sign() * torch.inf), (found, wanted)
    size = wanted.abs() if len(blocks) == len(wanted) else torch.where(beyond, 0, wanted).abs().max()
    wrong = (found - wanted).abs() > tolerance * info.eps * size + 4 * info.tiny
    assert not bool((wrong | found.isnan())[~beyond].any()), (found, wanted)
