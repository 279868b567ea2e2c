"""Hessian-vector products in every way torch offers, and a reference with 50 digits."""

from __future__ import annotations

import mpmath
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacrev, jvp, vmap

mp = mpmath.mp.clone() if hasattr(mpmath.mp, "clone") else mpmath.mp
mp.dps = 50


def eager(f, A, Z):
    A = A.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(A), A, create_graph=True)
    return torch.autograd.grad((g * Z.conj()).sum().real, A)[0]


def forward_over_reverse(f, A, Z):
    return jvp(grad(f), (A,), (Z,))[1]


def _dual(f, A, Z):
    with forward_ad.dual_level():
        X = forward_ad.make_dual(A.clone().requires_grad_(), Z)
        return forward_ad.unpack_dual(torch.autograd.grad(f(X), X)[0]).tangent


def _applied(H, Z):
    return torch.einsum("ijkl,kl->ij", H, Z)


def _mapped_inside(f, A, Z):
    return grad(lambda X: (grad(lambda X: vmap(f)(X).sum())(X) * Z).sum())(torch.stack([A, 2 * A]))[0]


def _recorded_outside(f, A, Z):
    batch = torch.stack([A, 2 * A]).requires_grad_()
    return torch.autograd.grad((vmap(jacrev(f))(batch) * Z).sum(), batch)[0][0]


def _several(f, A, Z):
    return _applied(jacrev(jacrev(lambda X: torch.stack([X.sum(), f(X)])))(A)[1], Z)


PRODUCTS = {
    "eager": eager,
    "forward over reverse": forward_over_reverse,
    "dual numbers": _dual,
    "func.hessian": lambda f, A, Z: _applied(hessian(f)(A), Z),
    "jacrev of jacrev": lambda f, A, Z: _applied(jacrev(jacrev(f))(A), Z),
    "grad of grad": lambda f, A, Z: grad(lambda X: (grad(f)(X) * Z).sum())(A),
    "functional.hessian": lambda f, A, Z: _applied(torch.autograd.functional.hessian(f, A), Z),
    "functional.hvp": lambda f, A, Z: torch.autograd.functional.hvp(f, A, Z)[1],
    "vmap of hessian": lambda f, A, Z: _applied(vmap(hessian(f))(torch.stack([2 * A, A]))[1], Z),
    "vmap of jacrev": lambda f, A, Z: _applied(vmap(jacrev(jacrev(f)))(torch.stack([2 * A, A]))[1], Z),
    "grad of grad of vmap": _mapped_inside,
    "autograd of vmap of jacrev": _recorded_outside,
    "jacrev of jacrev of several": _several,
}


def exact_product(slopes, second, A, Z):
    """The derivative of V diag(∇g) Vᴴ in the direction Z, for the Hermitian matrix as it is stored.

    Args:
        slopes: ∇g as a function of the list of eigenvalues.
        second: ∇²g likewise, as a function that returns a function of two indices.
        A, Z: Hermitian matrices (d, d).
    """
    d = len(A)
    convert = mp.mpc if A.dtype.is_complex else mp.mpf
    matrix, direction = (mp.matrix([[convert(x) for x in row] for row in X.tolist()]) for X in (A, Z))
    w, V = (mp.eighe if A.dtype.is_complex else mp.eigsy)(matrix)
    w, inner = list(w), V.transpose_conj() * direction * V
    g, H = slopes(w), second(w)
    T = mp.matrix(d, d)
    for i in range(d):
        T[i, i] = sum(H(i, k) * mp.re(inner[k, k]) for k in range(d))
        for j in set(range(d)) - {i}:
            gap = w[i] - w[j]
            tied = abs(gap) <= mp.mpf(10) ** -30 * max(map(abs, w))
            T[i, j] = inner[i, j] * (H(i, i) - H(i, j) if tied else (g[i] - g[j]) / gap)
    result = V * T * V.transpose_conj()
    number = complex if A.dtype.is_complex else (lambda x: float(mp.re(x)))
    rows = [[number(result[i, j]) for j in range(d)] for i in range(d)]
    return torch.tensor(rows, dtype=torch.complex128 if A.dtype.is_complex else torch.float64)
