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
from .calls import UNCHECKED, Scalar, Singular, Symmetric
from .derivative_calls import Derivatives, SingularDerivatives

if TYPE_CHECKING:
    from .functions import Kernel

_BATCH, _BAR = 17, 30.0
Equation = tuple[str, np.ndarray, np.ndarray]  # what is tested, left-hand side, right-hand side


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
    values, v = _wide(w)[:, None], _wide(V)
    yield "derivative of a function", _wide(derivatives.function(V, torch.ones_like(A), G)), _wide(G)
    pairs, ones, rotated = (w, V), torch.ones_like(A), (G @ V).contiguous()
    yield "gradient of eigenvalues", _wide(derivatives.eigenpairs(pairs, (w, None), 0.0, True, True)), _wide(A)
    yield (
        "gradient of eigh",
        _wide(derivatives.eigenpairs(pairs, (None, rotated), ones, False, True)),
        _wide(G),
    )
    gap, larger = values.swapaxes(1, 2) - values, np.maximum(values.swapaxes(1, 2), values)
    inner = (gap / larger**2).swapaxes(1, 2) * (v.swapaxes(1, 2) @ _wide(G))  # the gaps of SVD-Padé with the floor 1
    right = v @ (inner + inner.swapaxes(1, 2)) @ v.swapaxes(1, 2) / 2
    yield "gradient of eigh", _wide(derivatives.eigenpairs(pairs, (None, G), 1.0, True, True)), right


def _of_hermitian(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """One matrix at a time, complex matrices, and eigenvalues alone."""
    yield from _of_pairs("eigh, one by one", A, *_symmetric(native, A, lanes=False).eigh(A))
    lower = G.tril(-1)
    H = torch.complex(A, (lower - lower.mT) / A.shape[-1])
    yield from _of_pairs("complex eigh", H, *_symmetric(native, H).eigh(H))
    yield from _of_pairs("complex eigh, one by one", H, *_symmetric(native, H, lanes=False).eigh(H))
    for X in (A, H):
        lanes, single = _symmetric(native, X), _symmetric(native, X, lanes=False)
        values = _wide(single.eigh(X)[0][0])
        yield "eigenvalues", _wide(lanes.eigvalsh(X)[0]), values
        yield "eigenvalues, one by one", _wide(single.eigvalsh(X)[0]), values
        skewed = X + torch.ones_like(X).triu(1)
        found = lanes.eigh(skewed, 0.01)[1], single.eigh(skewed, 0.01)[1], lanes.eigh(X, 0.01)[1]
        yield "asymmetry", np.array(found), np.array([len(X), len(X), 0])


def _symmetric(native: Kernel, A: Tensor, lanes: bool = True) -> Symmetric:
    return Symmetric.of(native, A.shape, A.dtype, lanes)


def _singular(native: Kernel, M: Tensor, lanes: bool = True) -> Singular:
    return Singular.of(native, M.shape, M.dtype, lanes)


def _of_pairs(name: str, A: Tensor, pairs: tuple[Tensor, Tensor], failed: int) -> Iterator[Equation]:
    w, V = pairs
    values, v = _wide(w)[:, None], _wide(V)
    adjoint = v.conj().swapaxes(1, 2)
    yield name, np.append(np.diff(values) < 0, failed > 0), np.array(0.0)
    yield name, (v * values) @ adjoint, _wide(A)
    yield name, adjoint @ v, np.eye(A.shape[-1])


def _of_svd(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    d = A.shape[-1]
    for name, M in (("svd", A + G), ("tall svd", A[..., : d - 1]), ("wide svd", (A + G)[:, : d - 1])):
        M = M.contiguous()
        (U, S, Vh), failed = _singular(native, M).svd(M)
        yield from _of_triples(name, M, (U, S, Vh), failed)
        yield "singular values", _wide(_singular(native, M).svdvals(M)[0]), _wide(S)
        yield f"gradient of {name}", *_gradient(native, U, torch.arange(S.shape[-1], 0, -1, dtype=S.dtype), Vh)
        yield from _of_function(native, M.cos(), U, S, Vh)


def _of_other_svds(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """One matrix at a time, a long one too, and complex matrices."""
    C = torch.complex(A, G)
    for M in (A + G, A.reshape(-1)[:100].reshape(1, 50, 2), C[..., :4]):
        yield from _of_values("svd, one by one", M.contiguous(), native, lanes=False)
    for M in (C, C[:, :9, :4], C[:, :4]):
        yield from _of_values("complex svd", M.contiguous(), native, lanes=True)


def _of_values(name: str, M: Tensor, native: Kernel, lanes: bool) -> Iterator[Equation]:
    plan = _singular(native, M, lanes)
    factors, failed = plan.svd(M)
    yield from _of_triples(name, M, factors, failed)
    yield f"{name}, values alone", _wide(plan.svdvals(M)[0]), _wide(factors[1])


def _of_triples(name: str, M: Tensor, factors: tuple[Tensor, Tensor, Tensor], failed: int) -> Iterator[Equation]:
    u, vh, S = _wide(factors[0]), _wide(factors[2]), factors[1]
    values = _wide(S)[:, None]
    yield name, np.append(np.diff(values) > 0, failed > 0), np.array(0.0)
    yield name, (u * values) @ vh, _wide(M)
    adjoints = u.conj().swapaxes(1, 2), vh.conj().swapaxes(1, 2)
    yield name, np.concatenate([adjoints[0] @ u, vh @ adjoints[1]]), np.eye(S.shape[-1])


def _of_function(native: Kernel, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Iterator[Equation]:
    """The function σ², whose divided differences are σᵢ + σⱼ, and its derivative in the direction G."""
    for w in (S.mT, S):  # seventeen values at a time are processed in another way than few
        found = derivative_calls.divided_differences(native, w, w * w, lambda x: 2 * x)
        joint, ratio = (w.unsqueeze(-1), w) if found is None else found
        yield "divided differences", _wide(joint), _wide(w)[:, :, None] + _wide(w)[:, None]
        yield "ratios", _wide(ratio), _wide(w)
    u, s, vh, g = map(_wide, (U, S, Vh, G))
    rows, columns = s[:, :, None], s[:, None]
    plan = SingularDerivatives.of(native, U.shape, Vh.shape, U.dtype)
    composed = plan.composed(U, S * S, Vh)
    yield "function of singular values", _wide(composed), (u * columns**2) @ vh
    p = u.swapaxes(1, 2) @ g @ vh.swapaxes(1, 2)
    even, odd = p + p.swapaxes(1, 2), p - p.swapaxes(1, 2)
    inner = (rows + columns) * even / 2 + (rows**2 + columns**2) / (rows + columns) * odd / 2
    rest = g - u @ p @ vh  # outside the span of U or V
    expected = u @ inner @ vh + rest @ vh.swapaxes(1, 2) * columns @ vh + u @ (rows * (u.swapaxes(1, 2) @ rest))
    derivative = plan.derivative(G, U, S, Vh, joint.contiguous(), ratio)
    yield "derivative of a function of singular values", _wide(derivative), expected


def _gradient(native: Kernel, U: Tensor, s: Tensor, Vh: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of tr(WᵀM) through M = U diag(s) Vh, and W, which it should be."""
    W, S = (U @ Vh).cos(), s.expand(len(U), -1)
    cotangents = (W @ (Vh.mT * s), (U * (W @ Vh.mT)).sum(-2), (U * s).mT @ W)
    floor = 64 * torch.finfo(s.dtype).eps
    plan = SingularDerivatives.of(native, U.shape, Vh.shape, U.dtype)
    contiguous = [x.contiguous() for x in cotangents]
    return _wide(plan.factors((U, S.contiguous(), Vh), contiguous, floor, True, True)), _wide(W)  # type: ignore[arg-type]


def _of_roots(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    for lanes in (False, True):
        plan, limits = _symmetric(native, A, lanes), (0.0, 1.0, UNCHECKED)
        (S, s, V), failed = plan.root(A, False, limits)
        root, inverse = _wide(S), _wide(plan.root(A, True, limits)[0][0])
        yield "root", root @ root, _wide(A) + failed
        yield "inverse root", inverse @ root, np.eye(A.shape[-1])
        T = _wide(plan.power(A, -0.25, 0.0, False, (0.0, 1.0, 0.5))[0])
        yield "power", T @ T, inverse
    derivatives = Derivatives.of(native, A.shape, A.dtype)
    X, Y = (_wide(derivatives.root(V, s, G, which)) for which in (False, True))
    yield "derivative of the root", root @ X + X @ root, _wide(G)
    yield "derivative of the inverse root", Y, -inverse @ X @ inverse


def _of_scalar_functions(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """Functions and their inverses, so that one derivative undoes the other; a square of any sign."""
    for lanes in (True, False):
        log, slope = _scalar(native, A, G, "logarithm", 0.0, lanes)
        third, change = _scalar(native, A, G, "real_power", 1 / 3, lanes)
        pairs = (log, slope, "exponential", 0.0), (third, change, "whole_power", 3.0)
        for X, direction, kind, p in pairs:
            back = _scalar(native, X, direction, kind, p, lanes)
            yield kind, _wide(back[0]), _wide(A)
            yield f"derivative of {kind}", _wide(back[1]), _wide(G)
        cubed = np.linalg.matrix_power(_wide(third), 3)
        yield "power", cubed, _wide(A)
        signs = log - torch.eye(A.shape[-1], dtype=A.dtype) / 2
        square, change = _scalar(native, signs, G, "whole_power", 2.0, lanes)
        left, g = _wide(signs), _wide(G)
        yield "square", _wide(square), left @ left
        yield "derivative of the square", _wide(change), left @ g + g @ left


def _scalar(native: Kernel, A: Tensor, G: Tensor, kind: str, p: float, lanes: bool) -> tuple[Tensor, Tensor]:
    """A scalar function of matrices and its derivative in the direction G; NaN if the kernel doubts a matrix."""
    f, limits = Scalar(kind, p, 1e6), (-1.0, 1.0, UNCHECKED)
    (S, w, V), doubtful = _symmetric(native, A, lanes).function(A, f, True, limits)
    return S / (doubtful == 0), Derivatives.of(native, A.shape, A.dtype).scalar(V, w, G, f)


def _of_points(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """The steps of an alignment: centred cross-covariance, distance of a fit, and gradient, with weights."""
    w = 1 + A[..., 0].square()
    x, y, e = torch.empty_like(w), torch.empty_like(w), w.new_empty(len(w))
    C, gX, gY, gw = torch.empty_like(A), torch.empty_like(A), torch.empty_like(A), torch.empty_like(w)
    native.points("cross_covariance", A, G, w, x, y, C)
    native.points("fit_distance", A, G, w, x, y, A, e)
    native.points("point_gradient", A, G, w, x, y, A, None, y, x, gX, gY, gw)
    a, g, weights = _wide(A), _wide(G), _wide(w)[..., None]
    shares = weights / weights.sum(1, keepdims=True)
    near, far = a - (shares * a).sum(1, keepdims=True), g - (shares * g).sum(1, keepdims=True)
    pulled, pushed = (
        _wide(y)[:, None] / weights.sum(1, keepdims=True),
        _wide(x)[:, None] / weights.sum(1, keepdims=True),
    )
    misses, turned = near @ a.swapaxes(1, 2) - far, near @ a.swapaxes(1, 2)
    yield "cross-covariance", _wide(C), (weights * far).swapaxes(1, 2) @ near
    yield "distance of a fit", _wide(e), (weights * misses**2).sum((1, 2))
    yield "gradient of points", _wide(gX), weights * (far @ a + pulled)
    yield "gradient of points", _wide(gY), weights * (turned + pushed)
    yield "gradient of weights", _wide(gw), (far * (turned + pushed) + near * pulled).sum(-1)


def _of_features(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """The passes over features of seventeen samples with 2 groups of d/2 channels and d positions."""
    samples, d = A.shape[:2]
    shape = (samples, 2, d // 2, d)
    x0, y0, B = A[0, 0].view(2, -1), G[0, 0].view(2, -1), A[1].view(2, d // 2, d)[..., : d // 2]
    C, sums, out = B.new_empty(B.shape), torch.empty_like(x0), torch.empty_like(A)
    x, y, b = _wide(A).reshape(shape) - _wide(x0)[..., None], _wide(G).reshape(shape), _wide(B)
    native.features("moments", shape, A, x0, None, C, sums)
    yield "moments of features", _wide(C), (x @ x.swapaxes(2, 3)).sum(0)
    native.features("moments", shape, A, x0, G, C, sums)
    yield "moments of features", _wide(C), (y @ x.swapaxes(2, 3)).sum(0)
    yield "sums of features", _wide(sums), y.sum((0, 3))
    native.features("map", shape, G, y0, B, A, x0, B, x0, out)
    right = b @ (y - _wide(y0)[..., None]) + b @ x + _wide(x0)[..., None]
    yield "affine map of features", _wide(out).reshape(shape), right


def _wide(x: Tensor) -> np.ndarray:
    return x.numpy().astype(np.complex128 if x.is_complex() else np.float64)


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
    (2, _of_points),
    (3, _of_points),
    (6, _of_points),
    (34, _of_features),
)
