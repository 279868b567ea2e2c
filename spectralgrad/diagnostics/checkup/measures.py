"""What a forward and a backward pass through one decomposition say about its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...autograd import gauge
from ...autograd.pairwise import differences, identity_mask
from ...precision import full_precision, widen
from ..spectrum import ratio, spectrum

Factors = dict[str, Tensor]


class Forward(NamedTuple):
    """The worst values over the matrices of a call."""

    ties: int
    relative_gap: float
    rank: int
    condition: float


class Backward(NamedTuple):
    """What the backward pass of a call delivered, the worst over its matrices.

    ``gauge`` is the share of the cotangent that depends on the choice of vectors within ties, from 0 to 1;
    ``between_ties`` the largest entry of the cotangent between tied vectors, relative to the cotangent; ``lost`` is
    True if a function composed by hand loses gradient at a tie; ``error`` estimates the relative error of the gradient.
    """

    finite_before: bool
    finite_after: bool
    finite_values: bool  # the cotangent of the eigenvalues
    gauge: float = 0.0
    between_ties: float = 0.0
    lost: bool = False
    error: float = 0.0


def forward(w: Tensor) -> Forward | None:
    """Measure eigenvalues or singular values (*, d); None if there are none or they are not finite."""
    with torch.no_grad():
        w = widen(w.detach())
        if not w.numel() or not bool(w.isfinite().all()):
            return None
        found = spectrum(w)
        return Forward(
            int(found.ties.max()),
            float(found.relative_gap.min()) if w.shape[-1] > 1 else float("inf"),
            int(found.rank.min()),
            float(torch.where(found.condition.isnan(), torch.inf, found.condition).max()),  # 0/0 for the zero matrix
        )


def backward(factors: Factors, cotangents: Factors, gradient: Tensor, sample: int, resolved_only: bool) -> Backward:
    """Measure the cotangents that reached a decomposition and the gradient that left it.

    Args:
        factors: ``w`` and ``V``, or ``U``, ``w`` and ``V`` for singular values, whose vectors are columns; empty for
            other operations.
        cotangents: of the factors, under the same names; those that are absent are zero.
        gradient: with respect to the matrix.
        sample: number of matrices of a batch that are examined beyond being finite.
        resolved_only: leave out unresolved pairs in the estimate of the error, because the method bounds them.
    """
    with torch.no_grad(), full_precision(gradient):
        values = bool(cotangents["w"].isfinite().all()) if "w" in cotangents else True
        before = all(bool(g.isfinite().all()) for g in cotangents.values())
        after = bool(gradient.isfinite().all())
        vectors = [name for name in ("U", "V") if name in cotangents and name in factors]
        if not (before and vectors and factors["w"].numel()):
            return Backward(before, after, values)
        chosen = {name: _sampled(name, x, sample) for name, x in factors.items()}
        given = {name: _sampled(name, g, sample) for name, g in cotangents.items() if name in factors}
        delivered = _sampled("A", gradient, sample)
        return Backward(before, after, values, *_coupled(chosen, given, delivered, resolved_only))


def _coupled(f: Factors, g: Factors, gradient: Tensor, resolved_only: bool) -> tuple[float, float, bool, float]:
    w = f["w"]
    names = [name for name in ("U", "V") if name in g]
    coupling = sum((f[name].mH @ g[name] for name in names), torch.zeros((), dtype=w.dtype)) / (1 + ("U" in f))
    sizes = sum((gauge.column_norms(g[name]) for name in names), torch.zeros_like(w))
    pairs = gauge.tied(w) & ~identity_mask(w)
    total = torch.linalg.vector_norm(sizes, dim=-1)
    eps = torch.finfo(w.dtype).eps
    visible = sizes > 64 * eps * sizes.amax(-1, keepdim=True)  # the other columns are zero up to rounding
    share = gauge.sensitivity(coupling, sizes, pairs & (visible.unsqueeze(-1) | visible.unsqueeze(-2)))
    noise = 8 * eps * w.shape[-1] ** 0.5
    between = ratio(torch.where(pairs, coupling.abs(), 0).amax((-2, -1)), total)
    lost = "w" in g and bool(gauge.loses_gradient(coupling, sizes, g["w"], pairs).any())
    error = _error(w, coupling, sizes, gradient, resolved_only)
    return float(torch.where(share > noise, share, 0).max()), float(between.max()), lost, error


def _error(w: Tensor, coupling: Tensor, sizes: Tensor, gradient: Tensor, resolved_only: bool) -> float:
    r"""Estimate the relative error of the gradient from rounding.

    With :math:`K=1/(\lambda_i-\lambda_j)`, an error :math:`\epsilon\|A\|` in the eigenvalues changes the gradient by
    :math:`\epsilon\|A\|K^2\circ C`, and one of :math:`\epsilon` in the skew part of C by :math:`\epsilon K\circ|C|`.
    """
    eps = torch.finfo(w.dtype).eps
    gap = differences(w).abs()
    size = w.abs().amax(-1)[..., None, None]
    usable = (gap > 0) & ~(gauge.tied(w) & resolved_only)
    K = torch.where(usable, 1 / torch.where(usable, gap, 1), 0)
    skew = (coupling - coupling.mH).abs() / 2
    rounding = eps * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2)) * K
    change = torch.linalg.vector_norm(rounding + eps * size * K.square() * skew, dim=(-2, -1))
    relative = ratio(change, torch.linalg.vector_norm(gradient, dim=(-2, -1)))
    return float(relative.nan_to_num(nan=0.0).max())


def _sampled(name: str, x: Tensor, sample: int) -> Tensor:
    """At most ``sample`` evenly spaced entries of the batch, in one batch dimension and working precision."""
    flat = x.detach().reshape(-1, *x.shape[-1 if name == "w" else -2 :])
    return widen(flat[:: max(1, -(-flat.shape[0] // sample))])
