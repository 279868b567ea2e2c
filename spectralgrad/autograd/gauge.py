r"""What a loss may depend on at a tie: eigenspaces yes, the choice of vectors in them no.

Within an eigenspace the vectors are defined up to a rotation (the gauge). A loss that ignores the choice has
a cotangent whose coupling :math:`V^H\bar V` is Hermitian there; the skew part measures how far it is not.

A function of the matrix put together by hand, :math:`S=V\,\mathrm{diag}f(\lambda)\,V^H`, ignores the choice too and
still loses gradient at a tie. With :math:`\tilde G=V^H\bar SV` Hermitian, its cotangents are

.. math:: C=V^H\bar V=2\tilde G\,\mathrm{diag}f(\lambda),\qquad \bar\lambda_i=f'(\lambda_i)\,\tilde G_{ii} .

Between tied vectors C is Hermitian, so no rule for the gaps finds anything in it, while the true gradient has the
entry :math:`f'(\lambda)\tilde G_{ij}` there. Only its diagonal arrives, through :math:`\bar\lambda`. What gives it away
is that :math:`\bar\lambda` moves with C. A loss of the projector on the whole eigenspace has such a C but
:math:`\bar\lambda=0`; a loss of its eigenvalues alone has equal :math:`\bar\lambda` and C = 0; neither loses anything.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from .pairwise import differences, identity_mask, norm


class GaugeWarning(UserWarning):
    """The loss depends on the choice of vectors within an eigenspace, or loses part of its gradient there."""


watching = False  # switched by diagnostics.gauge_warnings


def tied(w: Tensor) -> Tensor:
    r"""Boolean (*, d, d): pairs closer than :math:`64\,\epsilon\|A\|`, whose vectors the matrix does not determine."""
    return differences(w).abs() <= 64 * torch.finfo(w.dtype).eps * norm(w)[..., None, None]


def column_norms(G: Tensor) -> Tensor:
    """Euclidean norms of the columns (*, d) of a cotangent."""
    return torch.linalg.vector_norm(G, dim=-2)


def noise_level(sizes: Tensor, eps: float) -> Tensor:
    r"""The skew coupling :math:`8\epsilon\sqrt d(\|\bar v_i\|+\|\bar v_j\|)` that rounding alone explains."""
    return 8 * eps * sizes.shape[-1] ** 0.5 * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2))


def watch(coupling: Tensor, sizes: Tensor, w: Tensor, slopes: Tensor | None) -> None:
    r"""Warn if :func:`spectralgrad.diagnostics.gauge_warnings` is on and the loss depends on vectors within a tie.

    Args:
        coupling: :math:`V^H\bar V` (*, d, d).
        sizes: norms of the cotangent's columns (*, d).
        w: eigenvalues or singular values (*, d).
        slopes: their cotangent (*, d).
    """
    if watching and not torch.compiler.is_compiling():
        _warn(coupling, sizes, slopes, tied(w) & ~identity_mask(w))


def drop_noise(coupling: Tensor, sizes: Tensor, w: Tensor) -> Tensor:
    r"""Remove from :math:`V^H\bar V` what rounding alone explains between tied vectors.

    :math:`\hat K` would blow it up, and it carries no information. Pairs that are resolved are not touched.

    Args:
        coupling: :math:`V^H\bar V` (*, d, d).
        sizes: norms of the cotangent's columns (*, d).
        w: eigenvalues or singular values (*, d).
    """
    skew = (coupling - coupling.mH) / 2
    unresolved = tied(w)
    noise = noise_level(sizes, torch.finfo(w.dtype).eps)
    return torch.where(unresolved & (skew.abs() <= noise), coupling - skew, coupling)


def sensitivity(coupling: Tensor, sizes: Tensor, pairs: Tensor) -> Tensor:
    r"""The largest :math:`|C_{ij}-\bar C_{ji}|/(\|\bar v_i\|+\|\bar v_j\|)` over the pairs (*,), for the coupling C."""
    skew = (coupling - coupling.mH).abs()
    scale = sizes.unsqueeze(-1) + sizes.unsqueeze(-2)
    share = torch.where(pairs & (scale > 0), skew / torch.where(scale > 0, scale, 1), 0)
    return share.amax((-2, -1)) if share.shape[-1] else share.sum((-2, -1))


def loses_gradient(coupling: Tensor, sizes: Tensor, slopes: Tensor, pairs: Tensor) -> Tensor:
    r"""The pairs (*, d, d) of tied vectors between which a function of the matrix put together by hand loses gradient.

    Where :math:`\bar\lambda_i\ne\bar\lambda_j`, the gradient :math:`V\mathrm{diag}(\bar\lambda)V^H` depends on the
    choice of vectors: something is lost unless this choice happens to make C diagonal. Where they are equal, C decides:
    :math:`f'\tilde G_{ii}=f'\tilde G_{jj}` needs :math:`C_{ii}=C_{jj}`, and :math:`C_{ij}\ne0` is then lost. All
    comparisons are to :math:`\sqrt\epsilon`: slopes of eigenvalues that are tied by rounding only differ a little.
    """
    close = torch.finfo(slopes.dtype).eps ** 0.5
    level = close * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2))
    diagonal = coupling.diagonal(dim1=-2, dim2=-1).real
    couples = (coupling + coupling.mH).abs() / 2 > level
    uneven = differences(diagonal).abs() > level
    present = diagonal.abs().unsqueeze(-1) + diagonal.abs().unsqueeze(-2) > level
    least = close * norm(slopes)[..., None, None]
    apart = differences(slopes).abs() > least
    alive = slopes.abs().unsqueeze(-1) + slopes.abs().unsqueeze(-2) > least
    lost = torch.where(apart, couples | ~present, alive & couples & ~uneven)
    return pairs & lost & (norm(sizes) > 0)[..., None, None]


def _warn(coupling: Tensor, sizes: Tensor, slopes: Tensor | None, pairs: Tensor) -> None:
    eps = torch.finfo(sizes.dtype).eps
    visible = sizes > 64 * eps * norm(sizes).unsqueeze(-1)  # the other columns are rounding errors of a zero
    skewed = pairs & (visible.unsqueeze(-1) | visible.unsqueeze(-2))
    share = sensitivity(coupling, sizes, skewed)
    try:
        worst = float(share.detach().max()) if share.numel() else 0.0
        lost = slopes is not None and bool(loses_gradient(coupling, sizes, slopes, pairs).any())
    except RuntimeError:  # under vmap there is no single value to look at
        return
    if worst > 8 * eps * coupling.shape[-1] ** 0.5:
        warnings.warn(
            f"the loss depends on the choice of vectors within an eigenspace (sensitivity {worst:.2g} of at most 1): "
            "its gradient does not exist there and a bounded stand-in is returned. Let the loss depend on "
            "projectors or matrix functions, or break the tie.",
            GaugeWarning,
            stacklevel=2,
        )
    elif lost:
        warnings.warn(
            "the loss seems to use V f(λ) Vᴴ, a function of the matrix put together from its decomposition, and "
            "eigenvalues are tied: the part of its gradient between their vectors is lost, which no method can supply. "
            "Use matrix_sqrt, matrix_inv_sqrt, matrix_power, matrix_log, matrix_exp or matrix_function (for singular "
            "values polar or the matrix itself), which are exact at ties.",
            GaugeWarning,
            stacklevel=2,
        )
