"""What a forward and a backward pass through one decomposition say about its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...autograd import existence, gauge
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

    ``flaws`` are the derivatives that do not exist; ``between_ties`` is the largest entry of the cotangent between tied
    vectors, relative to the cotangent; ``error`` estimates the relative error of the gradient.
    """

    finite_before: bool
    finite_after: bool
    finite_values: bool  # the cotangent of the eigenvalues
    between_ties: float = 0.0
    error: float = 0.0
    flaws: tuple[existence.Flaw, ...] = ()


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


class Setting(NamedTuple):
    """What is known about a call before its backward pass."""

    sample: int  # number of matrices of a batch that are examined beyond being finite
    ours: bool  # a function of this library: it bounds unresolved pairs, and judges itself which derivatives exist
    singular: bool  # the values are singular values
    composed: bool  # a function of the matrix was composed from the factors


class Received(NamedTuple):
    """The cotangents that reached a call.

    ``cotangents`` has the cotangent of each factor, by name; absent ones are zero. ``scalings`` is the sum of
    :math:`L^H\\bar W` (*, d, d) over the places where vectors L were scaled, W = L f(λ); None if there are none.
    """

    cotangents: Factors
    scalings: Tensor | None = None


def backward(factors: Factors, received: Received, gradient: Tensor, setting: Setting) -> Backward:
    """Measure the cotangents that reached a decomposition and the gradient that left it.

    Args:
        factors: ``w``, and ``V``, or ``U`` and ``V`` for singular values, whose vectors are columns; empty for other
            operations.
        received: the cotangents.
        gradient: with respect to the matrix.
        setting: the circumstances.
    """
    with torch.no_grad(), full_precision(gradient):
        cotangents = received.cotangents
        values = bool(cotangents["w"].isfinite().all()) if "w" in cotangents else True
        before = all(bool(g.isfinite().all()) for g in cotangents.values())
        after = bool(gradient.isfinite().all())
        if not (before and "w" in factors and factors["w"].numel()):
            return Backward(before, after, values)
        chosen = {name: _sampled(name, x, setting.sample) for name, x in factors.items()}
        given = {name: _sampled(name, g, setting.sample) for name, g in cotangents.items() if name in factors}
        scalings = None if received.scalings is None else _sampled("A", received.scalings, setting.sample)
        delivered = _sampled("A", gradient, setting.sample)
        return Backward(before, after, values, *_coupled(chosen, Received(given, scalings), delivered, setting))


def _coupled(
    f: Factors, received: Received, gradient: Tensor, setting: Setting
) -> tuple[float, float, tuple[existence.Flaw, ...]]:
    w, g = f["w"], received.cotangents
    names = [name for name in ("U", "V") if name in g]
    coupling = sum((f[name].mH @ g[name] for name in names), torch.zeros_like(differences(w))) / (1 + ("U" in f))
    sizes = sum((gauge.column_norms(g[name]) for name in names), torch.zeros_like(w))
    pairs = gauge.tied(w) & ~identity_mask(w)
    between = ratio(torch.where(pairs, coupling.abs(), 0).amax((-2, -1)), torch.linalg.vector_norm(sizes, dim=-1))
    longer = max(gradient.shape[-2:]) if setting.singular else None
    flaws = () if setting.ours else tuple(existence.of_pairs(w, coupling, sizes, g.get("w"), longer))
    error = _error(w, coupling, sizes, gradient, setting.ours)
    if "w" in g and (setting.composed or any(flaw.kind == "lost" for flaw in flaws)):
        scalings = coupling if received.scalings is None else received.scalings
        error = max(error, _lost(scalings, g["w"], gradient, pairs))
    return float(between.max()), error, flaws


def _lost(scalings: Tensor, slopes: Tensor, gradient: Tensor, pairs: Tensor) -> float:
    r"""Estimate the relative error of the gradient from what a composed function loses between tied vectors.

    Where vectors L are scaled to :math:`W=Lf(\lambda)`, the Hermitian part H of :math:`L^H\bar W` has the diagonal
    :math:`\bar\lambda_i/f'(\lambda_i)`, and the gradient should have the entries :math:`f'H_{ij}` as well. So
    :math:`f'` of a pair is found from its diagonal entries. VᴴV̄ is proportional to H where f is not zero.
    """
    size = torch.linalg.vector_norm(scalings, ord=torch.inf, dim=(-2, -1), keepdim=True)
    H = (scalings + scalings.mH) / (2 * torch.where(size > 0, size, 1))
    diagonal = H.diagonal(dim1=-2, dim2=-1).real
    products, squares = slopes * diagonal, diagonal.square()
    weight = squares.unsqueeze(-1) + squares.unsqueeze(-2)
    slope = ratio(products.unsqueeze(-1) + products.unsqueeze(-2), weight)
    missing = torch.linalg.vector_norm(torch.where(pairs, slope * H, 0), dim=(-2, -1))
    whole = torch.hypot(missing, torch.linalg.vector_norm(gradient, dim=(-2, -1)))
    return float(ratio(missing, whole).nan_to_num(nan=0.0).max())


def _error(w: Tensor, coupling: Tensor, sizes: Tensor, gradient: Tensor, ours: bool) -> float:
    r"""Estimate the relative error of the gradient from rounding.

    With :math:`K=1/(\lambda_i-\lambda_j)`, an error :math:`\epsilon\|A\|` in the eigenvalues changes the gradient by
    :math:`\epsilon\|A\|K^2\circ C`, and one of :math:`\epsilon` in the skew part of C by :math:`\epsilon K\circ|C|`.
    """
    eps = torch.finfo(w.dtype).eps
    gap = differences(w).abs()
    size = w.abs().amax(-1)[..., None, None]
    usable = (gap > 0) & ~(gauge.tied(w) & ours)
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
