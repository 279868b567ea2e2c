"""Checks of the operations on Hermitian matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...linalg import matrix_functions
from ...linalg.decompositions import eigh
from ...linalg.subspaces import spectral_projector
from . import references
from .cases import Case
from .checks import FORWARD, GRADIENT, Finding, finite, hermitian_gradient, orthonormal, residual, size, within
from .references import Function, FunctionReference, Spectrum, shifted, wide

Call = Callable[[Tensor, str], Tensor]
# Methods whose forward pass only approximates f(A), by definition.
APPROXIMATE = ("pi", "svd-pi", "newton-schulz", "mtp", "mpa")


def gradients(outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], case: Case) -> tuple[Tensor, ...]:
    """The gradients of Σ Re⟨output, cotangent⟩."""
    cotangents = [case.cotangent(x, k) for k, x in enumerate(outputs)]
    return torch.autograd.grad(outputs, inputs, cotangents)


def vectors_differentiable(spectrum: Spectrum, cotangent: Tensor) -> Tensor:
    r"""True if a gradient of norm :math:`\|G\|/(\epsilon^2\|A\|)` does not overflow (batch,).

    This is about the bound of the gap rules, so the gradient for a smaller matrix is not representable in general.
    """
    steepest = size(wide(cotangent)) / (spectrum.rounding.eps**2 * spectrum.size.clamp_min(1e-300))
    return spectrum.rounding.holds(steepest, -spectrum.exponent) | (spectrum.size == 0)


def judge_eigh(case: Case, spectrum: Spectrum, method: str) -> Iterator[Finding]:
    """Checks LAPACK's error bound, ascending order, independence of the batch, and a finite Hermitian gradient."""
    A = case.matrices.clone().requires_grad_()
    w, V = eigh(A, method=method)
    unit = spectrum.rounding.unit
    if method != "pi":
        ratio = torch.maximum(residual(case.matrices, V, w, V.mH, unit), orthonormal(V, spectrum.rounding.eps / 2))
        yield Finding("LAPACK ratio", ratio, FORWARD)
        yield Finding("ascending", (w.detach().diff(dim=-1) < 0).any(-1).double(), 0.5)
    yield _beside_others(case.matrices, w, V, method)
    (g,) = gradients((w, V), (A,), case)
    if method != "svd":
        fits = vectors_differentiable(spectrum, case.cotangent(V, 1))
        yield finite("gradient finite", g, fits)
    yield hermitian_gradient(g, spectrum.rounding)


def _promised(G: Tensor, reference: FunctionReference, method: str) -> Tensor:
    """True if the method guarantees a finite gradient, provided that the true one is representable (batch,)."""
    spectrum, norm = reference.spectrum, size(wide(G))
    if method == "svd":
        return _differentiable(reference)
    if method == "svd-newton":  # diverges where rounding made A indefinite; 20 steps magnify a null space by 1.5^20
        steepest = reference.steepest * norm * 1.5**60
        return ~spectrum.coarse & spectrum.rounding.holds(steepest, reference.shift(1))
    if method == "pi":
        carried = spectrum.rounding.carries(reference.height, reference.shift(0))
        return carried & vectors_differentiable(spectrum, G)
    return torch.ones_like(norm, dtype=torch.bool)


def _beside_others(A: Tensor, w: Tensor, V: Tensor, method: str) -> Finding:
    """The results at even batch positions must not change in any bit if the matrices at odd positions are replaced."""
    others = A.clone()
    others[1::2] = A.flip(0)[1::2]
    again = eigh(others, method=method)
    same = (again[0] == w).all(-1) & (again[1] == V).flatten(1).all(1)
    same[1::2] = True
    return Finding("independent of neighbours", (~same).double(), 0.5)


def judge_function(case: Case, spectrum: Spectrum, method: str, f: Function, call: Call) -> Iterator[Finding]:
    """Checks f(A) and its gradient against the reference; both must be finite if the true ones are representable."""
    A = case.matrices.clone().requires_grad_()
    S = call(A, method)
    reference = spectrum.of(f)
    (g,) = gradients((S,), (A,), case)
    yield from _judge_value(S, reference, method)
    yield from _judge_gradient(g, case.cotangent(S), reference, method)
    if f is references.SQRT and method not in APPROXIMATE:
        yield _squares_back(S, spectrum)


def judge_learned_power(case: Case, spectrum: Spectrum, method: str) -> Iterator[Finding]:
    """Checks a power with a learned exponent, including the gradient Σ G̃ᵢᵢ λᵖ ln λ of the exponent."""
    A = case.matrices.clone().requires_grad_()
    p = torch.full((), 0.375, dtype=spectrum.A.real.dtype, requires_grad=True)
    S = matrix_functions.matrix_power(A, p, method=method)
    reference = spectrum.of(references.POWER)
    g, slope = gradients((S,), (A, p), case)
    yield from _judge_value(S, reference, method)
    yield from _judge_gradient(g, case.cotangent(S), reference, method)
    fits = reference.spectrum.rounding.holds(reference.height, reference.shift(0)).all()
    yield finite("exponent's gradient finite", slope.expand(len(A), 1), fits.expand(len(A)))


def _judge_value(S: Tensor, reference: FunctionReference, method: str) -> Iterator[Finding]:
    rounding, shift = reference.spectrum.rounding, reference.shift(0)
    fits = rounding.holds(reference.height, shift)
    yield finite("value finite", S, fits)
    if method in APPROXIMATE:
        return
    known = fits & reference.decided & rounding.resolves(reference.height, shift)
    error = size(shifted(wide(S), -shift) - reference.value)
    noise = S.shape[-1] * rounding.unit * reference.size
    unit = noise * (reference.steepest + reference.second * noise) + S.shape[-1] * rounding.unit * reference.height
    yield within("value", error, unit, known, FORWARD)


def _judge_gradient(g: Tensor, G: Tensor, reference: FunctionReference, method: str) -> Iterator[Finding]:
    rounding, shift, norm = reference.spectrum.rounding, reference.shift(1), size(wide(G))
    fits = rounding.holds(reference.steepest * norm.clamp_min(1), shift)
    fits &= rounding.holds(reference.height, reference.shift(0))
    yield finite("gradient finite", g, fits & _promised(G, reference, method))
    steepest = rounding.power(reference.steepest * norm, shift)
    if reference.f.lipschitz is not None:  # rounding may move an eigenvalue to where f is that steep
        steepest = torch.maximum(steepest, rounding.power(reference.f.lipschitz * norm, torch.zeros_like(norm)))
    yield hermitian_gradient(g, rounding, steepest)
    if method == "exact":
        known = fits & reference.decided & rounding.resolves(reference.steepest * norm, shift)
        error = size(shifted(wide(g), -shift) - reference.gradient(G))
        unit = rounding.unit * (reference.size * reference.second + reference.steepest) * norm
        yield within("gradient", error, unit, known, GRADIENT)


def _differentiable(reference: FunctionReference) -> Tensor:
    """True if plain ``svd`` has a gradient: no two eigenvalues of the range are computed as equal."""
    w = eigh(reference.spectrum.A).eigenvalues
    inside = reference.support
    tied = (w.diff(dim=-1).abs() * (torch.finfo(w.dtype).max / 2**10) < 1) & inside[:, 1:] & inside[:, :-1]
    return ~tied.any(-1) & reference.decided


def _squares_back(S: Tensor, spectrum: Spectrum) -> Finding:
    """‖S² − A‖ in units of n·u‖A‖; valid whichever eigenvalues count towards the rank."""
    root = shifted(wide(S), -spectrum.exponent / 2)
    error = size(root @ root - spectrum.scaled)
    unit = spectrum.d * spectrum.rounding.unit * spectrum.size
    return within("S·S = A", error, unit, spectrum.size > 0, FORWARD)


def judge_projector(case: Case, spectrum: Spectrum, method: str) -> Iterator[Finding]:
    """Checks that the projector has rank k, commutes with A, keeps the largest eigenvalues, has a finite gradient."""
    A = case.matrices.clone().requires_grad_()
    d = spectrum.d
    k = case.number % (d + 1)
    P = spectral_projector(A, k)
    (g,) = gradients((P,), (A,), case)
    G, unit = case.cotangent(P), spectrum.rounding.unit
    value, everywhere = wide(P), torch.ones(len(A), dtype=torch.bool)
    trace = value.diagonal(dim1=-2, dim2=-1).real.sum(-1)
    flat = d * spectrum.rounding.eps / 2 * torch.ones_like(trace)
    yield within("P·P = P", size(value @ value - value), flat, everywhere, FORWARD)
    yield within("rank", (trace - k).abs(), flat * d, everywhere, FORWARD)
    caught = (value @ spectrum.scaled).diagonal(dim1=-2, dim2=-1).real.sum(-1)
    lost = (spectrum.w[:, d - k :].sum(-1) - caught).abs()
    yield within("leading eigenvalues", lost, d * d * unit * spectrum.size, everywhere, FORWARD)
    yield finite("gradient finite", g, vectors_differentiable(spectrum, G))
    yield hermitian_gradient(g, spectrum.rounding, _steepest_turn(G, spectrum, k))
    yield from _projector_gradient(g, G, spectrum, k)


def _steepest_turn(G: Tensor, spectrum: Spectrum, k: int) -> Tensor | None:
    """log₂ of ‖G‖ over the gap at the cut."""
    if not 0 < k < spectrum.d:
        return None
    gap = spectrum.w[:, spectrum.d - k] - spectrum.w[:, spectrum.d - k - 1]
    resolved = torch.maximum(gap, spectrum.rounding.eps * spectrum.size).clamp_min(1e-300)
    return spectrum.rounding.power(size(wide(G)) / resolved, -spectrum.exponent)


def _projector_gradient(g: Tensor, G: Tensor, spectrum: Spectrum, k: int) -> Iterator[Finding]:
    """Checks the gradient if the gap at the cut is wide: divided differences 1/(λᵢ − λⱼ) across it, zero elsewhere."""
    w, V, d = spectrum.w, spectrum.V, spectrum.d
    if not 0 < k < d:
        return
    gap = w[:, d - k] - w[:, d - k - 1]
    above = torch.arange(d) >= d - k
    across = above.unsqueeze(-1) ^ above.unsqueeze(-2)
    differences = torch.where(across, (w.unsqueeze(-1) - w.unsqueeze(-2)).abs(), 1)
    gamma = torch.where(across, 1 / differences, 0)
    norm = size(wide(G))
    wanted = (gap > 1e-3 * spectrum.size) & spectrum.rounding.holds(norm / gap, -spectrum.exponent)
    wanted &= spectrum.rounding.resolves(norm / gap, -spectrum.exponent)
    hermitian = (wide(G) + wide(G).mH) / 2
    error = size(shifted(wide(g), spectrum.exponent) - V @ (gamma * (V.mH @ hermitian @ V)) @ V.mH)
    unit = spectrum.rounding.unit * (spectrum.size / gap.square() + 1 / gap) * norm
    yield within("gradient", error, unit, wanted, GRADIENT)


def functional(f: Function, call: Call) -> Callable[[Case, Spectrum, str], Iterator[Finding]]:
    """The check of one matrix function."""
    return lambda case, spectrum, method: judge_function(case, spectrum, method, f, call)
