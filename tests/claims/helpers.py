"""What the claim tests share: inputs, gradients by autograd, and the papers' formulas at 50 digits."""

from __future__ import annotations

from functools import lru_cache

import mpmath
import torch

import spectralgrad as sg
from spectralgrad.testing import Reference, paired_spectrum, with_spectrum

mp = mpmath.mp.clone()
mp.dps = 50
EPS = torch.finfo(torch.float64).eps
SPECTRUM = (0.05, 0.19, 0.2, 0.4, 0.69, 0.7, 0.95, 1.0)  # claim G2
KEEP_ALL = {"eps": 0.0, "energy": 2.0, "tolerance": float("inf")}  # Algorithm 1 without its stopping rules


def gaussian(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def uniform(*shape, low=0.0, high=1.0, seed=0):
    draw = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return low + (high - low) * draw


def sym(M):
    return (M + M.mT) / 2


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def gradient(f, A, G=None):
    """The gradient of ⟨f(A), G⟩, or of the scalar f(A)."""
    A = A.detach().clone().requires_grad_()
    return torch.autograd.grad(f(A), A, G)[0]


def vector_gradient(A, method, H):
    """The gradient of ⟨V, H⟩ for the eigenvectors V that ``method`` differentiates."""
    return gradient(lambda M: sg.eigh(M, method=method).eigenvectors, A, H)


def eq2(V, K, gV, gw=None):
    """TPAMI Eq. 2 as printed, not symmetrised."""
    inner = K.mT * (V.mT @ gV)
    return V @ (inner if gw is None else inner + torch.diag_embed(gw)) @ V.mT


def pair_gap(rule, x):
    """K̂ for the eigenvalues 1 and x ≤ 1: the rule's approximation of 1/(1 − x)."""
    return float(rule.gaps(tensor(x, 1.0))[1, 0])


@lru_cache(maxsize=64)
def paired(condition, gap):
    """The 8×8 matrix of the accuracy table, its 50-digit reference and a cotangent."""
    A = with_spectrum(paired_spectrum(8, condition, gap))
    return A, Reference(A), sym(gaussian(8, 8, seed=1))


def mp_matrix(A):
    return mp.matrix(A.tolist())


def from_mp(M):
    return torch.tensor([[float(M[i, j]) for j in range(M.cols)] for i in range(M.rows)], dtype=torch.float64)


def mp_eigensystem(A):
    """Ascending eigenvalues and eigenvectors of ``A`` at 50 digits, with the signs that sg.eigh chose."""
    w, V = mp.eigsy(mp_matrix(A))
    signs = torch.sign((from_mp(V) * sg.eigh(A).eigenvectors).sum(0)).tolist()
    return list(w), V * mp.diag(signs)


def mp_rule_gradient(V, K, coupling, diagonal):
    """sym(Eq. 2) at 50 digits; ``coupling`` is Vᵀ dL/dV."""
    d = V.rows
    inner = mp.matrix(d, d)
    for i in range(d):
        for j in range(d):
            inner[i, j] = (K[j, i] * coupling[i, j] + K[i, j] * coupling[j, i]) / 2
        inner[i, i] = diagonal[i]
    return from_mp(V * inner * V.T)


def mp_gaps(rule, w):
    """The rule's K̂ as its paper writes it, sums term by term, at 50 digits, for ascending eigenvalues."""
    w = [mp.mpf(x) for x in w]
    if isinstance(rule, sg.TopN):  # ICCV Eq. 11: the discarded eigenvalues are set to zero
        w = [x if i >= len(w) - rule.keep else mp.mpf(0) for i, x in enumerate(w)]
    top = max(abs(x) for x in w)
    K = mp.matrix(len(w), len(w))
    for i, a in enumerate(w):
        for j, b in enumerate(w):
            if i != j:
                K[i, j] = _mp_gap(rule, a, b, top)
    return K


def _mp_gap(rule, a, b, top):
    if a == b:
        return mp.inf if rule.name == "svd" else mp.mpf(0)
    return _FORMULAS[rule.name](rule, a, b, top)


def _clipped(rule, a, b, top):
    limit = mp.mpf(rule.threshold)
    return max(-limit, min(limit, 1 / (a - b)))


def _series(a, b, terms):
    """±(1/λ) Σ x^k for k < terms, x the smaller over the larger; positive if a > b."""
    big, small = max(a, b), min(a, b)
    return mp.sign(a - b) * mp.fsum((small / big) ** k for k in range(terms)) / big


def _floored(rule, a, b, top):
    cut = mp.mpf(64 * EPS if rule.floor is None else rule.floor) * max(a, b)
    return 1 / (a - b) if abs(a - b) >= cut else (a - b) / cut**2


def _masked(rule, a, b, top):
    cut = mp.mpf(EPS ** (2 / 3) if rule.tolerance is None else rule.tolerance) * top
    return 1 / (a - b) if abs(a - b) > cut else mp.mpf(0)


_FORMULAS = {
    "svd": lambda rule, a, b, top: 1 / (a - b),
    "svd-clip": _clipped,
    "svd-trunc": _clipped,
    "svd-topn": lambda rule, a, b, top: 1 / (a - b),
    "svd-taylor": lambda rule, a, b, top: _series(a, b, rule.degree + 1),
    "svd-pade": _floored,
    "svd-pi": lambda rule, a, b, top: _series(a, b, rule.iterations - (a < b)),
    "lorentzian": lambda rule, a, b, top: (a - b) / ((a - b) ** 2 + (mp.mpf(rule.broadening) * top) ** 2),
    "masked": _masked,
}


def power_iteration_gradient(M, iterates, g):
    """NeurIPS Eq. 3 (TPAMI Eq. 17) as printed: the gradient of ⟨v_K, g⟩ in M for iterates v_0 … v_K."""
    total = torch.zeros_like(M)
    for v, after in zip(iterates[-2::-1], iterates[:0:-1], strict=True):
        step = (g - after * (after @ g)) / (M @ v).norm()
        total, g = total + torch.outer(step, v), M @ step
    return total
