"""Checks of the operations on rectangular matrices and on features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from ...linalg.covariances import covariance, covariance_sqrt
from ...linalg.decompositions import svd
from ...linalg.polar_factor import polar
from ...precision import mean, rank_tolerance
from .cases import Case
from .checks import FORWARD, GRADIENT, Finding, finite, orthonormal, residual, size, within
from .hermitian import APPROXIMATE, gradients
from .references import Rounding, normalized, shifted, wide


class Rectangle:
    """Matrices (batch, m, n) in double precision, with their singular values by LAPACK, computed on demand."""

    rounding: Rounding
    scaled: Tensor
    exponent: Tensor
    norm: Tensor

    def __init__(self, M: Tensor) -> None:
        self.M = M
        self.rounding = Rounding(M)
        self.scaled, self.exponent = normalized(M)
        self.norm = size(self.scaled)

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The reduced factors."""
        return tuple(torch.linalg.svd(self.scaled, full_matrices=False))

    def steep(self, G: Tensor, resolution: float) -> Tensor:
        """True if ‖G‖/(resolution·‖M‖) does not overflow (batch,)."""
        steepest = size(wide(G)) / (resolution * self.norm.clamp_min(1e-300))
        return self.rounding.holds(steepest, -self.exponent) | (self.norm == 0)


def judge_svd(case: Case, rectangle: Rectangle, method: str) -> Iterator[Finding]:
    """Checks LAPACK's error bound, descending order, and a finite gradient.

    The unit is an ulp of 2u, as in LAPACK's test DDRVBD. LAPACK itself needs it: for 3×3 matrices with a close pair,
    its error is up to 36 n u (in torch and in numpy).
    """
    M = case.matrices.clone().requires_grad_()
    U, S, Vh = svd(M, method=method)
    ulp = rectangle.rounding.eps
    skew = torch.maximum(orthonormal(U, ulp), orthonormal(Vh.mH, ulp))
    ratio = torch.maximum(residual(case.matrices, U, S, Vh, 2 * rectangle.rounding.unit), skew)
    yield Finding("LAPACK ratio", ratio, FORWARD)
    yield Finding("descending", (S.detach().diff(dim=-1) > 0).any(-1).double(), 0.5)
    if method != "svd":
        (g,) = gradients((U, S, Vh), (M,), case)
        yield finite("gradient finite", g, rectangle.steep(case.cotangent(U), rectangle.rounding.eps**2))


def judge_polar(case: Case, rectangle: Rectangle, method: str) -> Iterator[Finding]:
    """Checks orthonormal columns or rows, a Hermitian positive semi-definite other factor, and the gradient."""
    M = case.matrices.clone().requires_grad_()
    Q = polar(M)
    (g,) = gradients((Q,), (M,), case)
    G, ulp = case.cotangent(Q), rectangle.rounding.eps  # LAPACK's, as in judge_svd
    tall = M.shape[-2] >= M.shape[-1]
    yield Finding("orthonormal", orthonormal(Q if tall else Q.mH, ulp), FORWARD)
    H = wide(Q).mH @ rectangle.scaled if tall else rectangle.scaled @ wide(Q).mH
    everywhere, unit = torch.ones(len(M), dtype=torch.bool), max(M.shape[-2:]) * ulp * rectangle.norm
    yield within("other factor Hermitian", size(H - H.mH), unit, everywhere, FORWARD)
    smallest = torch.linalg.eigvalsh(torch.nan_to_num(H + H.mH) / 2).amin(-1)
    yield within("other factor positive", -smallest.clamp_max(0), unit, everywhere, FORWARD)
    yield finite("gradient finite", g, rectangle.steep(G, rectangle.rounding.eps))
    yield _polar_gradient(g, G, rectangle)


def _polar_gradient(g: Tensor, G: Tensor, rectangle: Rectangle) -> Finding:
    """Checks the gradient U((X − Xᴴ)/(σᵢ + σⱼ))Vᴴ, X = UᴴGV, plus the part outside the spans of U and V; full rank."""
    U, s, Vh = rectangle.factors
    V, G, rounding = Vh.mH, wide(G), rectangle.rounding
    least, norm = s[:, -1], size(G)
    X = U.mH @ G @ V
    safe = torch.where(s > 0, s, 1)
    core = (X - X.mH) / (safe.unsqueeze(-1) + safe.unsqueeze(-2))
    outside = (G @ V - U @ X) / safe.unsqueeze(-2) @ Vh + U / safe.unsqueeze(-2) @ (U.mH @ G - X @ Vh)
    error = size(shifted(wide(g), rectangle.exponent) - U @ core @ Vh - outside)
    unit = rounding.unit * (s[:, 0] / least.square() + 1 / least) * norm
    wanted = least > 8 * rank_tolerance(max(g.shape[-2:]), g.dtype) * s[:, 0]
    wanted &= rounding.holds(norm / least, -rectangle.exponent) & rounding.resolves(norm / least, -rectangle.exponent)
    return within("gradient", error, unit, wanted, GRADIENT)


class Covariance:
    """Features (batch, d, N), scaled, centred and divided by √N, in double precision."""

    rounding: Rounding
    exponent: Tensor
    count: int
    centered: Tensor
    matrix: Tensor
    power: Tensor
    unit: Tensor

    def __init__(self, rectangle: Rectangle) -> None:
        X = rectangle.scaled
        self.rounding, self.exponent, self.count = rectangle.rounding, rectangle.exponent, X.shape[-1]
        self.centered = (X - mean(X)) / self.count**0.5
        self.matrix = self.centered @ self.centered.mH
        self.power = rectangle.norm.square() / self.count  # before centring: rounding errors are relative to this
        self.unit = self.rounding.unit * max(X.shape[-2:])


def judge_covariance(case: Case, rectangle: Rectangle, method: str) -> Iterator[Finding]:
    """Checks the covariance and its gradient 2 sym(G) X/N."""
    X = case.matrices.clone().requires_grad_()
    C = covariance(X)
    (g,) = gradients((C,), (X,), case)
    reference, G = Covariance(rectangle), wide(case.cotangent(C))
    rounding, twice = reference.rounding, 2 * rectangle.exponent
    fits = rounding.holds(reference.power, twice)
    yield finite("value finite", C, fits)
    error = size(shifted(wide(C), -twice) - reference.matrix)
    known = fits & rounding.resolves(reference.power, twice)
    yield within("value", error, reference.unit * reference.power, known, FORWARD)
    scale = size(G) * rectangle.norm / reference.count
    fits = rounding.holds(scale, rectangle.exponent)
    yield finite("gradient finite", g, fits)
    error = size(shifted(wide(g), -rectangle.exponent) - (G + G.mH) @ reference.centered / reference.count**0.5)
    yield within(
        "gradient", error, reference.unit * scale, fits & rounding.resolves(scale, rectangle.exponent), FORWARD
    )


def judge_covariance_sqrt(case: Case, rectangle: Rectangle, method: str) -> Iterator[Finding]:
    """Checks that S·S is the covariance, that the gradient is finite, and for ``exact`` the constant-rank gradient."""
    if not _covariance_fits(rectangle, method):
        return
    X = case.matrices.clone().requires_grad_()
    S = covariance_sqrt(X, method=method)
    (g,) = gradients((S,), (X,), case)
    reference, G = Covariance(rectangle), case.cotangent(S)
    root = shifted(wide(S), -rectangle.exponent)
    yield finite("value finite", S, reference.rounding.holds(rectangle.norm, rectangle.exponent))
    if method not in APPROXIMATE:
        known = reference.rounding.resolves(rectangle.norm, rectangle.exponent)
        unit = reference.unit * reference.power
        yield within("S·S = C", size(root @ root - reference.matrix), unit, known, FORWARD)
    if method != "svd":
        yield finite("gradient finite", g, torch.ones(len(X), dtype=torch.bool))
    if method == "exact":
        yield _root_gradient(g, G, reference)


def _covariance_fits(rectangle: Rectangle, method: str) -> bool:
    """True if the covariances are far from overflow and underflow, or the method is ``exact``, which rescales them.

    Other methods have absolute thresholds, so the covariance is not rescaled for them and must be representable.
    """
    power, twice = rectangle.norm.square(), 2 * rectangle.exponent
    within_range = rectangle.rounding.holds(power, twice) & rectangle.rounding.resolves(power, twice)
    return method == "exact" or bool((within_range | (rectangle.norm == 0)).all())


def layer(
    call: Callable[[Tensor, str], Tensor], any_scale: bool
) -> Callable[[Case, Rectangle, str], Iterator[Finding]]:
    """The check of a layer on real features: results are finite, for ``exact`` at any scale if ``any_scale``."""

    def judge(case: Case, rectangle: Rectangle, method: str) -> Iterator[Finding]:
        if case.matrices.dtype.is_complex or not _covariance_fits(rectangle, method if any_scale else ""):
            return
        X = case.matrices.clone().requires_grad_()
        Y = call(X, method)
        (g,) = gradients((Y,), (X,), case)
        everywhere = torch.ones(len(X), dtype=torch.bool)
        yield finite("value finite", Y, everywhere)
        if method != "svd":
            yield finite("gradient finite", g, everywhere)

    return judge


def _root_gradient(g: Tensor, G: Tensor, reference: Covariance) -> Finding:
    """Checks the gradient 2·D·X/√N, D = U(Γ ∘ Uᴴ sym(G) U)Uᴴ, Γᵢⱼ = 1/(σᵢ + σⱼ), from the features' singular values."""
    G, rounding = wide(G), reference.rounding
    d = G.shape[-1]
    U, s, _ = torch.linalg.svd(reference.centered)
    s = torch.nn.functional.pad(s, (0, d - s.shape[-1]))
    noise = 64 * max(reference.centered.shape[-2:]) * torch.finfo(s.dtype).eps * reference.power.sqrt().unsqueeze(-1)
    live = s > noise
    least = torch.where(live, s, torch.inf).amin(-1)
    total = torch.where(live, s, 0).unsqueeze(-1) + torch.where(live, s, 0).unsqueeze(-2)
    gamma = torch.where(total > 0, 1 / torch.where(total > 0, total, 1), 0)
    D = U @ (gamma * (U.mH @ (G + G.mH) @ U)) @ U.mH
    error = size(wide(g) - D @ reference.centered / reference.count**0.5)
    scale = size(G) * (reference.power / reference.count).sqrt()
    unit = reference.unit * (reference.power / least.pow(3) + 1 / least) * scale
    tolerance = 8 * rank_tolerance(max(reference.centered.shape[-2:]), g.dtype) * reference.power
    decided = (least.square() > tolerance) & rounding.resolves(reference.power.sqrt(), reference.exponent)
    return within("gradient", error, unit, decided, GRADIENT)
