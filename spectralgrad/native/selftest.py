r"""A self-test that runs at the first use of the kernel, so that a miscompiled kernel is not used.

All functions are tested in both dtypes on matrices of size 3 (Jacobi) and 6 (Householder and QL, real and complex), the
singular value decomposition, its gradient and functions of singular values on sizes 2, 3, 9 and 12 and on rectangular
ones, the other ways to it on size 17, passes over features on 17 channels and 34 positions. There are seventeen
matrices of each size, more than a vector of any instruction set holds. The equations that define the results must hold
to :math:`30\,n\,u`, LAPACK's acceptance threshold; the matrices are well conditioned, so roots meet it too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from . import derivative_calls
from .calls import UNCHECKED, Singular, Symmetric
from .derivative_calls import Derivatives, SingularDerivatives
from .selftest_products import (
    Equation,
    of_features,
    of_known_functions,
    of_points,
    of_polar,
    of_projector,
    scalar,
    wide,
)

if TYPE_CHECKING:
    from .functions import Kernel

_BATCH, _BAR = 17, 30.0


def problem(native: Kernel) -> str | None:
    """Return the name of the first function with a wrong result, or None if all are correct.

    The test runs in its own thread, because modes of torch that may be active at the first use (fake tensors,
    torch.func, a default device) are local to a thread and would interfere.
    """
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(_first(_problems(native))))
    thread.start()
    thread.join()
    return found[0] if found else None


def _first(names: Iterator[str]) -> list[str]:
    try:
        return list(islice(names, 1))
    except Exception as error:  # a kernel that raises must not be used either
        return [f"{type(error).__name__}: {error}"]


def _problems(native: Kernel) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):
        for d, equations in _TESTS:
            a, g = _matrices(d)
            A, G = torch.from_numpy(a).to(dtype), torch.from_numpy(g).to(dtype)
            bar = _BAR * d * torch.finfo(dtype).eps / 2
            for name, left, right in equations(native, A, G):
                if not abs(left - right).max() <= bar * abs(right).max():
                    yield f"{name} of {d}×{d} matrices in {str(dtype).removeprefix('torch.')}"


@cache
def _matrices(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return symmetric matrices with eigenvalues from 1 to about 4, and symmetric cotangents."""
    phase = np.arange(_BATCH * d * d).reshape(_BATCH, d, d)
    noise, other = np.cos(phase * 1.7), np.sin(phase * 2.3)
    return np.eye(d) + noise @ noise.swapaxes(1, 2) / d, other + other.swapaxes(1, 2)


def _of_eigh(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    (w, V), failed = _symmetric(native, A).eigh(A)
    derivatives = Derivatives.of(native, A.shape, A.dtype)
    yield from _of_pairs("eigh", A, (w, V), failed)
    values, v = wide(w)[:, None], wide(V)
    yield "derivative of a function", wide(derivatives.function(V, torch.ones_like(A), G)), wide(G)
    pairs, ones, rotated = (w, V), torch.ones_like(A), (G @ V).contiguous()
    yield "gradient of eigenvalues", wide(derivatives.eigenpairs(pairs, (w, None), 0.0, True, True)), wide(A)
    yield (
        "gradient of eigh",
        wide(derivatives.eigenpairs(pairs, (None, rotated), ones, False, True)),
        wide(G),
    )
    gap, larger = values.swapaxes(1, 2) - values, np.maximum(values.swapaxes(1, 2), values)
    inner = (gap / larger**2).swapaxes(1, 2) * (v.swapaxes(1, 2) @ wide(G))  # the gaps of SVD-Padé with the floor 1
    right = v @ (inner + inner.swapaxes(1, 2)) @ v.swapaxes(1, 2) / 2
    yield "gradient of eigh", wide(derivatives.eigenpairs(pairs, (None, G), 1.0, True, True)), right


def _of_hermitian(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """One matrix at a time, complex matrices, and eigenvalues alone."""
    yield from _of_pairs("eigh, one by one", A, *_symmetric(native, A, lanes=False).eigh(A))
    lower = G.tril(-1)
    H = torch.complex(A, (lower - lower.mT) / A.shape[-1])
    yield from _of_pairs("complex eigh", H, *_symmetric(native, H).eigh(H))
    yield from _of_pairs("complex eigh, one by one", H, *_symmetric(native, H, lanes=False).eigh(H))
    for X in (A, H):
        lanes, single = _symmetric(native, X), _symmetric(native, X, lanes=False)
        values = wide(single.eigh(X)[0][0])
        yield "eigenvalues", wide(lanes.eigvalsh(X)[0]), values
        yield "eigenvalues, one by one", wide(single.eigvalsh(X)[0]), values
        skewed = X + torch.ones_like(X).triu(1)
        found = lanes.eigh(skewed, 0.01)[1], single.eigh(skewed, 0.01)[1], lanes.eigh(X, 0.01)[1]
        yield "asymmetry", np.array(found), np.array([len(X), len(X), 0])


def _symmetric(native: Kernel, A: Tensor, lanes: bool = True) -> Symmetric:
    return Symmetric.of(native, A.shape, A.dtype, lanes)


def _singular(native: Kernel, M: Tensor, lanes: bool = True) -> Singular:
    return Singular.of(native, M.shape, M.dtype, lanes)


def _of_pairs(name: str, A: Tensor, pairs: tuple[Tensor, Tensor], failed: int) -> Iterator[Equation]:
    w, V = pairs
    values, v = wide(w)[:, None], wide(V)
    adjoint = v.conj().swapaxes(1, 2)
    yield name, np.append(np.diff(values) < 0, failed > 0), np.array(0.0)
    yield name, (v * values) @ adjoint, wide(A)
    yield name, adjoint @ v, np.eye(A.shape[-1])


def _of_svd(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    d = A.shape[-1]
    for name, M in (("svd", A + G), ("tall svd", A[..., : d - 1]), ("wide svd", (A + G)[:, : d - 1])):
        M = M.contiguous()
        (U, S, Vh), failed = _singular(native, M).svd(M)
        yield from _of_triples(name, M, (U, S, Vh), failed)
        yield "singular values", wide(_singular(native, M).svdvals(M)[0]), wide(S)
        if M.shape[1] >= d - 1 and M.shape[1] >= M.shape[2]:
            yield from of_polar(native, M, lanes=True)
        yield f"gradient of {name}", *_gradient(native, U, torch.arange(S.shape[-1], 0, -1, dtype=S.dtype), Vh)
        yield from _of_function(native, M.cos(), U, S, Vh)


def _of_other_svds(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """One matrix at a time, a long one too, and complex matrices."""
    C = torch.complex(A, G)
    yield from of_polar(native, A + G, lanes=False)
    for M in (A + G, A.reshape(-1)[:100].reshape(1, 50, 2), C[..., :4]):
        yield from _of_values("svd, one by one", M.contiguous(), native, lanes=False)
    for M in (C, C[:, :9, :4], C[:, :4]):
        yield from _of_values("complex svd", M.contiguous(), native, lanes=True)


def _of_values(name: str, M: Tensor, native: Kernel, lanes: bool) -> Iterator[Equation]:
    plan = _singular(native, M, lanes)
    factors, failed = plan.svd(M)
    yield from _of_triples(name, M, factors, failed)
    yield f"{name}, values alone", wide(plan.svdvals(M)[0]), wide(factors[1])


def _of_triples(name: str, M: Tensor, factors: tuple[Tensor, Tensor, Tensor], failed: int) -> Iterator[Equation]:
    u, vh, S = wide(factors[0]), wide(factors[2]), factors[1]
    values = wide(S)[:, None]
    yield name, np.append(np.diff(values) > 0, failed > 0), np.array(0.0)
    yield name, (u * values) @ vh, wide(M)
    adjoints = u.conj().swapaxes(1, 2), vh.conj().swapaxes(1, 2)
    yield name, np.concatenate([adjoints[0] @ u, vh @ adjoints[1]]), np.eye(S.shape[-1])


def _of_function(native: Kernel, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Iterator[Equation]:
    """The function σ², whose divided differences are σᵢ + σⱼ, and its derivative in the direction G."""
    for w in (S.mT, S):  # seventeen values at a time are processed in another way than few
        found = derivative_calls.divided_differences(native, w, w * w, lambda x: 2 * x)
        joint, ratio = (w.unsqueeze(-1), w) if found is None else found
        yield "divided differences", wide(joint), wide(w)[:, :, None] + wide(w)[:, None]
        yield "ratios", wide(ratio), wide(w)
    u, s, vh, g = map(wide, (U, S, Vh, G))
    rows, columns = s[:, :, None], s[:, None]
    plan = SingularDerivatives.of(native, U.shape, Vh.shape, U.dtype)
    yield from of_known_functions(plan, G, U, S, Vh)
    composed = plan.composed(U, S * S, Vh)
    yield "function of singular values", wide(composed), (u * columns**2) @ vh
    p = u.swapaxes(1, 2) @ g @ vh.swapaxes(1, 2)
    even, odd = p + p.swapaxes(1, 2), p - p.swapaxes(1, 2)
    inner = (rows + columns) * even / 2 + (rows**2 + columns**2) / (rows + columns) * odd / 2
    rest = g - u @ p @ vh  # outside the span of U or V
    expected = u @ inner @ vh + rest @ vh.swapaxes(1, 2) * columns @ vh + u @ (rows * (u.swapaxes(1, 2) @ rest))
    derivative = plan.derivative(G, U, S, Vh, joint.contiguous(), ratio)
    yield "derivative of a function of singular values", wide(derivative), expected


def _gradient(native: Kernel, U: Tensor, s: Tensor, Vh: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of tr(WᵀM) through M = U diag(s) Vh, and W, which it should be."""
    W, S = (U @ Vh).cos(), s.expand(len(U), -1)
    cotangents = (W @ (Vh.mT * s), (U * (W @ Vh.mT)).sum(-2), (U * s).mT @ W)
    floor = 64 * torch.finfo(s.dtype).eps
    plan = SingularDerivatives.of(native, U.shape, Vh.shape, U.dtype)
    contiguous = [x.contiguous() for x in cotangents]
    return wide(plan.factors((U, S.contiguous(), Vh), contiguous, floor, True, True)), wide(W)  # type: ignore[arg-type]


def _of_roots(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    for lanes in (False, True):
        plan, limits = _symmetric(native, A, lanes), (0.0, 1.0, UNCHECKED)
        (S, s, V), failed = plan.root(A, False, limits)
        root, inverse = wide(S), wide(plan.root(A, True, limits)[0][0])
        yield "root", root @ root, wide(A) + failed
        yield "inverse root", inverse @ root, np.eye(A.shape[-1])
        T = wide(plan.power(A, -0.25, 0.0, False, (0.0, 1.0, 0.5))[0])
        yield "power", T @ T, inverse
    derivatives = Derivatives.of(native, A.shape, A.dtype)
    X, Y = (wide(derivatives.root(V, s, G, which)) for which in (False, True))
    yield "derivative of the root", root @ X + X @ root, wide(G)
    yield "derivative of the inverse root", Y, -inverse @ X @ inverse


def _of_scalar_functions(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """Functions and their inverses, so that one derivative undoes the other; a square of any sign."""
    for lanes in (True, False):
        log, slope = scalar(native, A, G, "logarithm", 0.0, lanes)
        third, change = scalar(native, A, G, "real_power", 1 / 3, lanes)
        pairs = (log, slope, "exponential", 0.0), (third, change, "whole_power", 3.0)
        for X, direction, kind, p in pairs:
            back = scalar(native, X, direction, kind, p, lanes)
            yield kind, wide(back[0]), wide(A)
            yield f"derivative of {kind}", wide(back[1]), wide(G)
        cubed = np.linalg.matrix_power(wide(third), 3)
        yield "power", cubed, wide(A)
        yield from of_projector(native, A, G, lanes)
        signs = log - torch.eye(A.shape[-1], dtype=A.dtype) / 2
        square, change = scalar(native, signs, G, "whole_power", 2.0, lanes)
        left, g = wide(signs), wide(G)
        yield "square", wide(square), left @ left
        yield "derivative of the square", wide(change), left @ g + g @ left


_TESTS = (
    (3, _of_eigh),
    (6, _of_eigh),
    (6, _of_hermitian),
    (6, _of_roots),
    (3, _of_scalar_functions),
    (10, _of_scalar_functions),
    (2, _of_svd),
    (3, _of_svd),
    (9, _of_svd),
    (12, _of_svd),
    (17, _of_other_svds),
    (2, of_points),
    (3, of_points),
    (6, of_points),
    (34, of_features),
)
