r"""Which derivatives do not exist, judged by the cotangents that reach a decomposition.

All diagnostics use these judgements, on the functions of this library and on torch's. Between tied eigenvalues

* eigenvectors have a derivative only in losses whose coupling :math:`C=V^H\bar V` is Hermitian (:mod:`.gauge`);
* eigenvalues have one only in losses that treat them alike, :math:`\bar\lambda_i=\bar\lambda_j`: the sum of two equal
  ones is smooth, while one of them is the smaller or the larger of two branches that cross;
* a function that is cut there, as a projector onto leading eigenvectors, has none in the part
  :math:`(V^H\bar PV)_{ij}` of the cotangent across the cut.

A singular value has a kink at zero, :math:`\sigma=|x|`, and a derivative only in losses with :math:`\bar\sigma=0`.

A matrix function composed by hand, :math:`S=V\,\mathrm{diag}f(\lambda)\,V^H`, has a derivative and loses a part of it
at a tie. With :math:`\tilde G=V^H\bar SV` Hermitian, its cotangents are

.. math:: C=2\tilde G\,\mathrm{diag}f(\lambda),\qquad \bar\lambda_i=f'(\lambda_i)\,\tilde G_{ii} .

Between tied eigenvectors C is Hermitian, so it contributes nothing under any gap rule, while the true gradient has the
entry :math:`f'(\lambda)\tilde G_{ij}` there. Only the diagonal arrives, through :math:`\bar\lambda`. This case can be
recognised because C and :math:`\bar\lambda` are both non-zero: a loss of the projector onto the whole eigenspace has
such a C but :math:`\bar\lambda=0`, and a loss of its eigenvalues alone has equal :math:`\bar\lambda` and C = 0. Neither
of these loses anything.

Cotangents of eigenvalues are compared with the tolerance :math:`\sqrt\epsilon`, because eigenvalues that are tied only
up to rounding have slightly different slopes. Where all slopes are rounding errors, as at the minimum of
:math:`\sum(\lambda-1)^2`, they are not compared: :math:`\lVert\bar\lambda\rVert\lVert A\rVert\le4d\epsilon`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..precision import rank_tolerance
from . import gauge
from .pairwise import differences, identity_mask, norm

# What can be wrong, from the worst on.
KINDS = {
    "gauge": "the loss depends on the choice of vectors within a tie, so its gradient does not exist there",
    "cut": "the result is cut between tied values, where it is not unique, so its gradient does not exist there",
    "values": "the loss treats tied eigenvalues or singular values differently, so its gradient does not exist there",
    "kink": "a singular value lies on a kink, at zero or where it is cut off, so its gradient does not exist there",
    "lost": "a function composed from the factors loses the part of its gradient between tied vectors, or distorts it",
}


REMEDIES = {
    "gauge": "Let the loss depend on projectors (sg.spectral_projector) or functions of the matrix, or break the tie.",
    "cut": "Cut where there is a gap, or break the tie.",
    "values": "Let the loss treat them alike, as their sum or another symmetric function does, or break the tie.",
    "kink": "The result is one of the subgradients; use a smooth function if that is not enough.",
    "lost": "Use matrix_sqrt, matrix_inv_sqrt, matrix_power, matrix_log, matrix_exp or matrix_function (for singular "
    "values polar, singular_value_function or the matrix itself), which are exact at ties.",
}


class Flaw(NamedTuple):
    """A derivative that does not exist or, for ``lost``, arrives in part; ``share`` is 0 to 1, of the cotangent."""

    kind: str  # one of KINDS
    share: float


def of_eigenpairs(w: Tensor, V: Tensor, gw: Tensor | None, gV: Tensor | None) -> list[Flaw]:
    """Judge the cotangents of eigenvalues (*, d) and eigenvectors (*, ·, d)."""
    if gV is None:
        return [] if gw is None else of_values(w, gw)
    return of_pairs(w, V.mH @ gV, gauge.column_norms(gV), gw)


def of_triplets(
    factors: tuple[Tensor, Tensor, Tensor], cotangents: tuple[Tensor | None, Tensor | None, Tensor | None]
) -> list[Flaw]:
    """Judge the cotangents of singular values (*, k) and vectors (*, m, k) and (*, k, n)."""
    (U, S, Vh), (gU, gS, gVh) = factors, cotangents
    if gU is None and gVh is None:
        return [] if gS is None else of_values(S, gS, longer=max(U.shape[-2], Vh.shape[-1]))
    gU, gV = torch.zeros_like(U) if gU is None else gU, torch.zeros_like(Vh).mH if gVh is None else gVh.mH
    sizes = gauge.column_norms(gU) + gauge.column_norms(gV)
    return of_pairs(S, (U.mH @ gU + Vh @ gV) / 2, sizes, gS, longer=max(U.shape[-2], Vh.shape[-1]))


def of_pairs(
    w: Tensor, coupling: Tensor, sizes: Tensor, slopes: Tensor | None, longer: int | None = None
) -> list[Flaw]:
    r"""Judge a loss of vectors, and possibly of values.

    Args:
        w: eigenvalues or singular values (*, d).
        coupling: :math:`V^H\bar V` (*, d, d).
        sizes: norms of the cotangent's columns (*, d).
        slopes: cotangent of ``w`` (*, d), or None.
        longer: the longer side of the matrices, if ``w`` are singular values.
    """
    if not bool((sizes > 0).any()):
        return [] if slopes is None else of_values(w, slopes, longer)
    pairs = gauge.tied(w) & ~identity_mask(w)
    eps = torch.finfo(sizes.dtype).eps
    visible = sizes > 64 * eps * norm(sizes).unsqueeze(-1)  # the other columns are zero up to rounding
    share = gauge.sensitivity(coupling, sizes, pairs & (visible.unsqueeze(-1) | visible.unsqueeze(-2)))
    worst = float(share.max()) if share.numel() else 0.0
    if worst > 8 * eps * coupling.shape[-1] ** 0.5:
        return [Flaw("gauge", worst)]
    if slopes is None:
        return []
    lost, uneven = _incomplete(w, coupling, sizes, slopes, pairs)
    return [Flaw(kind, 1.0) for kind, mask in (("values", uneven), ("lost", lost)) if bool(mask.any())]


def of_values(w: Tensor, slopes: Tensor, longer: int | None = None) -> list[Flaw]:
    """Judge a loss of eigenvalues or, with the ``longer`` side of the matrices, of singular values."""
    size = norm(slopes)
    apart = gauge.tied(w) & _distinguished(w, slopes)
    flaws = _worst("values", torch.where(apart, differences(slopes).abs(), 0).flatten(-2), 2 * size)
    if longer is None:
        return flaws
    zero = w <= rank_tolerance(longer, w.dtype) * norm(w).unsqueeze(-1)
    steep = slopes.abs() > torch.finfo(w.dtype).eps ** 0.5 * size.unsqueeze(-1)
    clear = (w == 0) | (_floor(w) < size).unsqueeze(-1)
    return flaws + _worst("kink", torch.where(zero & steep & clear, slopes.abs(), 0), size)


def of_cut(w: Tensor, values: Tensor, gamma: Tensor, inner: Tensor) -> list[Flaw]:
    r"""Judge a function V f(λ) Vᴴ whose derivative has bounded weights in place of an infinite quotient.

    Args:
        w: eigenvalues or singular values (*, d).
        values: f(λ) (*, d).
        gamma: the weights of the derivative (*, d, d); elsewhere they are :math:`(f_i-f_j)/(\lambda_i-\lambda_j)`.
        inner: :math:`V^H\bar SV` (*, d, d), or what corresponds to it for singular values.
    """
    close = torch.finfo(w.dtype).eps ** 0.5
    missing = (gamma * differences(w) - differences(values)).abs() > close * norm(values)[..., None, None]
    coupled = (inner + inner.mH).abs() / 2
    size = norm(coupled.flatten(-2))
    noise = 8 * torch.finfo(w.dtype).eps * w.shape[-1] ** 0.5 * size[..., None, None]
    flawed = gauge.tied(w) & missing & ~identity_mask(w) & (coupled > noise)
    return _worst("cut", torch.where(flawed, coupled, 0).flatten(-2), size)


def of_kinks(kinks: Tensor, inner: Tensor) -> list[Flaw]:
    """Judge a function of singular values with ``kinks`` (*, k) by the cotangent ``inner`` (*, k, k) or (*, 1)."""
    touched = inner.abs() if inner.shape[-1] == 1 else inner.abs().amax(-1).maximum(inner.abs().amax(-2))
    size = norm(touched)
    noise = 8 * torch.finfo(touched.dtype).eps * kinks.shape[-1] ** 0.5 * size.unsqueeze(-1)
    return _worst("kink", torch.where(kinks & (touched > noise), touched, 0), size)


def _incomplete(w: Tensor, coupling: Tensor, sizes: Tensor, slopes: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the masks (*, d, d) of tied pairs between which gradient is lost, and of values treated differently.

    Where :math:`\bar\lambda_i\ne\bar\lambda_j`, the gradient :math:`V\mathrm{diag}(\bar\lambda)V^H` depends on the
    choice of vectors, and part of it is lost unless this choice happens to make C diagonal. Where they are equal,
    :math:`f'\tilde G_{ii}=f'\tilde G_{jj}` implies :math:`C_{ii}=C_{jj}`, and an entry :math:`C_{ij}\ne0` is lost.
    """
    close = torch.finfo(slopes.dtype).eps ** 0.5
    level = close * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2))
    diagonal = coupling.diagonal(dim1=-2, dim2=-1).real
    couples = (coupling + coupling.mH).abs() / 2 > level
    even = differences(diagonal).abs() <= level
    present = diagonal.abs().unsqueeze(-1) + diagonal.abs().unsqueeze(-2) > level
    alive = slopes.abs().unsqueeze(-1) + slopes.abs().unsqueeze(-2) > close * norm(slopes)[..., None, None]
    apart = _distinguished(w, slopes)
    used = pairs & (norm(sizes) > 0)[..., None, None]
    return used & couples & (apart | (alive & even)), pairs & apart & ~couples & ~present


def _distinguished(w: Tensor, slopes: Tensor) -> Tensor:
    """Return the mask (*, d, d) of pairs whose slopes differ by more than rounding errors of the values explain."""
    size = norm(slopes)
    apart = differences(slopes).abs() > torch.finfo(w.dtype).eps ** 0.5 * size[..., None, None]
    return apart & ((differences(w) == 0) | (_floor(w) < size)[..., None, None])


def _floor(w: Tensor) -> Tensor:
    """Return the norm (*,) of slopes that may be rounding errors of a loss of order one."""
    size = norm(w)
    return torch.where(size > 0, 4 * w.shape[-1] * torch.finfo(w.dtype).eps / torch.where(size > 0, size, 1), 0)


def _worst(kind: str, parts: Tensor, whole: Tensor) -> list[Flaw]:
    """Return the flaw with its largest share, or nothing if all ``parts`` (*, ·) are zero."""
    share = norm(parts) / torch.where(whole > 0, whole, 1)
    worst = float(share.max()) if share.numel() else 0.0
    return [Flaw(kind, worst)] if worst > 0 else []
