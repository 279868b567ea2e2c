"""The lists every property is tested over: methods, spectra, types, functions."""

from __future__ import annotations

import itertools
import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.utils import backend_registration

import spectralgrad as sg
from spectralgrad.native import build
from spectralgrad.testing import random_orthogonal, with_spectrum

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
REAL = (torch.float32, torch.float64)
DOUBLES = (torch.float64, torch.complex128)
BACKEND = "aot_eager" if build.compiler() is None else "inductor"  # of torch.compile: inductor generates C++

NO_DEVICE = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend") or not find_spec("spectralgrad_lab"),
    reason="the pretended device needs torch 2.13, which has backends in Python, and the lab",
)

# Spectra of size 6 (ascending or not), relative to a norm of about one.
SPECTRA = {
    "spread": [0.1, 0.3, 0.45, 0.6, 0.8, 1.0],
    "tie": [0.2, 0.5, 0.5, 0.5, 1.0, 1.0],
    "near-tie": [0.2, 0.5, 0.5 * (1 + 1e-12), 0.7, 1.0 - 1e-9, 1.0],
    "identity": [1.0] * 6,
    "zero": [0.0] * 6,
    "rank-one": [0.0] * 5 + [1.0],
    "rank-three": [0.0, 0.0, 0.0, 0.3, 0.3, 1.0],
    "clustered": list(1 + 1e-14 * np.arange(6)),
    "graded": [1e-300, 1e-200, 1e-100, 1e-12, 1e-3, 1.0],
}

DECOMPOSERS = tuple(sg.methods("eigh"))
SINGULAR = tuple(sg.methods("svd"))
FUNCTIONAL = tuple(sg.methods("sqrt"))

FUNCTIONS = {
    "sqrt": sg.matrix_sqrt,
    "inv_sqrt": sg.matrix_inv_sqrt,
    "log": sg.matrix_log,
    "exp": sg.matrix_exp,
    "power": lambda A, **options: sg.matrix_power(A, 0.3, **options),
    "square": lambda A, **options: sg.matrix_power(A, 2, **options),
    "inverse": lambda A, **options: sg.matrix_power(A, -1, **options),
    "function": lambda A, **options: sg.matrix_function(A, torch.tanh, **options),
}
OPERATION = {"square": "power", "inverse": "power"}  # the others carry their operation's name


def pairs(names=tuple(FUNCTIONS)):
    """All (function, method) that make sense together."""
    return [(name, method) for name in names for method in sg.methods(OPERATION.get(name, name))]


def in_turn(names, cases, **others):
    """Parametrize a test by the product of ``cases``, the values of ``names``, and of the values of other arguments.

    The fast tier runs each case once, with the combinations of the others in turn, such that each value of each
    argument occurs; the rest of the product is in the tier "full".
    """
    cases, combinations = list(cases), list(itertools.product(*map(list, others.values())))
    turns = _turns(len(cases), combinations)
    parameters = [
        _parameter(case, rest, () if j == turn else pytest.mark.full)
        for case, turn in zip(cases, turns, strict=True)
        for j, rest in enumerate(combinations)
    ]
    return pytest.mark.parametrize((*names.split(", "), *others), parameters)


def _turns(count, combinations):
    """The number of the combination that each case gets, such that every value of every argument occurs.

    One round through the combinations begins one later than the round before, so that they do not go in step with cases
    that are a product themselves.
    """
    n = len(combinations)
    steps = sorted((step for step in range(1, n + 1) if math.gcd(step, n) == 1), key=lambda step: abs(step - 0.6 * n))
    found = ([(i * step + i // n) % n for i in range(count)] for step in steps)
    return next(turns for turns in found if _different([combinations[j] for j in turns]) == _different(combinations))


def _different(rows):
    """How many different values each column has."""
    return [len(set(column)) for column in zip(*rows, strict=True)]


def _parameter(case, rest, marks):
    """A case, which is a value, a tuple of values or ``pytest.param``, and the values that follow."""
    given = hasattr(case, "values") and hasattr(case, "id")
    values = case.values if given else case if isinstance(case, tuple) else (case,)
    shown = lambda x: getattr(x, "__name__", None) or str(x)  # noqa: E731
    named = [case.id] if given and case.id else map(shown, values)
    return pytest.param(*values, *rest, id="-".join([*named, *map(shown, rest)]), marks=marks)


def matrix(spectrum: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return with_spectrum(SPECTRA[spectrum], dtype=dtype, seed=seed)


def every_spectrum(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The matrices of all ``SPECTRA`` as a batch."""
    return torch.stack([matrix(spectrum, dtype) for spectrum in SPECTRA])


def not_finite(names, *batches: torch.Tensor) -> list:
    """The names of the elements of batches that have an entry that is infinite or NaN in one of them."""
    finite = [torch.isfinite(batch).reshape(len(batch), -1).all(-1) for batch in batches]
    return [name for name, *good in zip(names, *finite, strict=True) if not all(good)]


def symmetric_noise(d: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    G = torch.randn(d, d, dtype=torch.complex128 if dtype.is_complex else torch.float64, generator=generator)
    return ((G + G.mH) / 2).to(dtype)


def noise(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Random numbers; matrices of them have no symmetry."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, dtype=wide, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rectangular(values, m: int = 0, n: int = 0, dtype: torch.dtype = torch.float64, seed: int = 0):
    """A matrix (m, n), by default square, with these singular values and random singular vectors.

    A negative value mirrors the matrix: if all others are positive, the determinant of a square matrix has its sign.
    """
    k, wide = len(values), torch.complex128 if dtype.is_complex else torch.float64
    U, V = (random_orthogonal(size or k, dtype=wide, seed=2 * seed + i) for i, size in ((1, m), (2, n)))
    for Q in (U, V):
        Q[:, -1] *= (torch.linalg.det(Q) / torch.linalg.det(Q).abs()).conj()
    return ((U[:, :k] * torch.as_tensor(values, dtype=torch.float64)) @ V[:, :k].mH).to(dtype)


def lopsided(G: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """A matrix without symmetry whose Hermitian part is the Hermitian matrix G exactly: of a pair of entries one is
    doubled and the other zero.
    """
    upper = torch.rand(G.shape[-2:], generator=torch.Generator().manual_seed(seed)).round().triu(1) * 2
    return G * (upper + (2 - upper.mT).tril(-1) + torch.eye(G.shape[-1])).to(G.real.dtype)


def gradient(f, A: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    """The gradient of Re⟨f(A), G⟩. For a Hermitian G and Hermitian values, of Re⟨f(A), lopsided(G)⟩, which is the same.

    So no test is blind to an error in how a gradient is symmetrized.
    """
    A = A.detach().clone().requires_grad_()
    value = f(A)
    if _is_hermitian(G) and _is_hermitian(A) and _is_hermitian(value):
        G = lopsided(G)
    (g,) = torch.autograd.grad((value * G.conj()).sum().real, A)
    return g


def _is_hermitian(x: torch.Tensor) -> bool:
    """True for Hermitian matrices, up to rounding error."""
    if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        return False
    x = x.detach()
    return bool(((x - x.mH).abs() <= 64 * torch.finfo(x.dtype).eps * x.abs().amax((-2, -1), keepdim=True)).all())


def symmetrized(f):
    """f of the Hermitian part, so that a finite difference in any entry is a legal perturbation."""
    return lambda A: f((A + A.mH) / 2)


def unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
