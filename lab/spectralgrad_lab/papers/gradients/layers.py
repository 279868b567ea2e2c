"""Two realistic layers: what the rules do to the gradient of the features, through the spectral path only."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import relative_error

from ..inputs import EPS, eq2, gaussian, gradient, sym, uniform
from ..registry import computes
from ..value_conditions import Value
from .compared import root_by
from .refined import true_gradient

RULES: Mapping[str, sg.GapMethod] = {
    "taylor_9": sg.Taylor(faithful=True),
    "taylor_19": sg.Taylor(degree=19, faithful=True),
    "taylor_100": sg.Taylor(degree=100, faithful=True),
    "clip": sg.Clip(),
    "trunc": sg.Trunc(faithful=True),
}
"""The rules as released, with their signs at ties."""


def convolved(dtype: torch.dtype, white: bool = False) -> Tensor:
    """Centred features (64, 28800) after a random 3×3 convolution of three channels, so of rank 27.

    The images are synthetic: noise with a spectrum of 1/f and correlated channels, as in photographs, or white noise.
    """
    f = torch.hypot(torch.fft.fftfreq(32)[:, None], torch.fft.fftfreq(32)).double().clamp_min(1 / 32)
    images = torch.fft.ifft2(torch.fft.fft2(gaussian(32, 3, 32, 32)) / f).real
    images = gaussian(32, 3, 32, 32) if white else 0.3 * images + 1.5 * images.mean(1, keepdim=True)
    images = (images - images.mean()) / images.std()
    weight = uniform(64, 3, 3, 3, low=-1, high=1, seed=1) / 27**0.5  # torch's initial weights
    features = torch.nn.functional.conv2d(images.to(dtype), weight.to(dtype)).transpose(0, 1).flatten(1)
    return features - features.mean(1, keepdim=True)


def to_features(gradient_of_matrix: Tensor, X: Tensor) -> Tensor:
    """The gradient of X from the gradient of the covariance XXᵀ/n."""
    return 2 / X.shape[1] * sym(gradient_of_matrix) @ X


def repaired_gaps(w: Tensor) -> Tensor:
    """1/(λi − λj) as released: +∞ becomes the largest finite entry, −∞ the smallest."""
    K = sg.Analytic().gaps(w)
    finite = K[K.isfinite()]
    return K.clamp(finite.min(), finite.max())


def by_formula(K: Tensor, w: Tensor, V: Tensor, G: Tensor, p: float) -> Tensor:
    """The gradient of ⟨A^p, G⟩ by TPAMI Eq. 2 with the matrix K in place of 1/(λi − λj)."""
    return eq2(V, K, 2 * G @ V * w**p, (V.mT @ G @ V).diagonal() * p * w ** (p - 1))


def whitening_errors(dtype: torch.dtype, eps: float, white: bool = False) -> dict[str, Value]:
    """Errors of dL/dX for whitening as released, where L = ⟨M^(-1/2)X, H⟩ and X is constant in the product.

    M = XXᵀ/n + εI, and computed eigenvalues below ε are set to ε, which makes ties.
    """

    def covariance(X: Tensor) -> Tensor:
        return X @ X.mT / X.shape[1] + eps * torch.eye(64, dtype=X.dtype)

    X = convolved(dtype, white)
    G = sym(gaussian(*X.shape, seed=2, dtype=dtype) @ X.mT)
    truth = to_features(true_gradient(covariance(X.double()), "inv_sqrt", G.double()), X.double())
    w, V = sg.eigh(covariance(X))
    w, s = w.clamp_min(eps), w.clamp_min(eps).sqrt()
    gaps = {"plain": repaired_gaps(w)} | {name: rule.gaps(w) for name, rule in RULES.items()}
    found = {name: by_formula(K, w, V, G, -0.5) for name, K in gaps.items()}
    found["exact"] = V @ (-(V.mT @ G @ V) / (s * s[:, None] * (s + s[:, None]))) @ V.mT
    errors: dict[str, Value] = {name: relative_error(to_features(g, X), truth) for name, g in found.items()}
    unrepaired = by_formula(sg.Analytic().gaps(w), w, V, G, -0.5)
    library = to_features(gradient(root_by(sg.Exact()), covariance(X), G), X)
    errors["library"] = relative_error(library, truth)
    return {**errors, "unrepaired_finite": bool(unrepaired.isfinite().all()), "tied": int((w == eps).sum())}


@computes("gradients/whitening-layer")
def whitening() -> Mapping[str, Value]:
    """The errors in float32 and float64 with ε = 1e-2, in float32 with ε = 1e-4, and for white noise in float64."""
    cases = ((torch.float32, 1e-2), (torch.float64, 1e-2), (torch.float32, 1e-4))
    found = [whitening_errors(*case) for case in cases]
    noise = whitening_errors(torch.float64, 1e-2, white=True)
    values: dict[str, Value] = {name: [errors[name] for errors in found] for name in found[0]}
    return {**values, "noise_taylor_9": noise["taylor_9"], "noise_clip": noise["clip"]}


def pooled() -> tuple[Tensor, Tensor]:
    """Centred features (256, 169) after a ReLU, of rank 168, and a symmetric cotangent of the square root."""
    X = gaussian(256, 169).relu()
    return X - X.mean(1, keepdim=True), sym(gaussian(256, 256, seed=1))


def gradient_on_the_range(X: Tensor, G: Tensor) -> Tensor:
    """The true gradient of ⟨(XXᵀ/n)^(1/2), G⟩ in X, from the singular values of X; the null space gets none.

    With the left singular vectors U and the singular values s of X/√n, dL/dM = U(T_ij/(s_i + s_j))Uᵀ for T = UᵀGU.
    Pairs of null vectors are left out, since they are multiplied by u_nullᵀX = 0.
    """
    U, s, _ = torch.linalg.svd(X / X.shape[1] ** 0.5)
    s = torch.cat([torch.where(s > 1e-12 * s[0], s, 0), s.new_zeros(len(U) - len(s))])
    total = s + s[:, None]
    F = torch.where(total > 0, 1 / torch.where(total > 0, total, 1), 0)
    return to_features(U @ (F * (U.mT @ G @ U)) @ U.mT, X)


@computes("gradients/pooling-layer")
def pooling() -> Mapping[str, Value]:
    """Errors of dL/dX for covariance pooling in float64, eigenvalues clamped at 2.2e-16 as released."""
    X, G = pooled()
    truth, M = gradient_on_the_range(X, G), X @ X.mT / X.shape[1]
    w, V = sg.eigh(M)
    w = w.clamp_min(EPS)
    gaps = {"plain": repaired_gaps(w), "pade": sg.Pade(faithful=True).gaps(w)}
    gaps |= {name: rule.gaps(w) for name, rule in RULES.items()}
    values: dict[str, Value] = {
        name: relative_error(to_features(by_formula(K, w, V, G, 0.5), X), truth) for name, K in gaps.items()
    }
    s = w.sqrt()
    divided = V @ ((V.mT @ G @ V) / (s + s[:, None])) @ V.mT
    root = sg.matrix_sqrt(M)
    steps = [sg.NewtonSchulz(steps=n) for n in (3, 5, 10, 20)]
    return {
        **values,
        "rank": int(torch.linalg.matrix_rank(X)),
        "largest_gap_entry": float(gaps["plain"].abs().max()),
        "divided_differences": relative_error(to_features(divided, X), truth),
        "exact": relative_error(to_features(gradient(root_by(sg.Exact(), "sqrt"), M, G), X), truth),
        "newton_schulz": [relative_error(to_features(gradient(root_by(m, "sqrt"), M, G), X), truth) for m in steps],
        "newton_schulz_forward": [relative_error(sg.matrix_sqrt(M, method=m), root) for m in steps],
    }
