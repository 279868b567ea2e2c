r"""Gauge dependence: at a tie a loss may depend on the eigenspace, but not on the choice of eigenvectors within it.

Within an eigenspace the eigenvectors are defined only up to a rotation, the gauge. For a loss that does not depend on
this choice the coupling :math:`V^H\bar V` is Hermitian there; its skew part measures the dependence.

A matrix function composed by hand, :math:`S=V\,\mathrm{diag}f(\lambda)\,V^H`, does not depend on the choice either, but
still loses part of its gradient at a tie. With :math:`\tilde G=V^H\bar SV` Hermitian, its cotangents are

.. math:: C=V^H\bar V=2\tilde G\,\mathrm{diag}f(\lambda),\qquad \bar\lambda_i=f'(\lambda_i)\,\tilde G_{ii} .

Between tied eigenvectors C is Hermitian, so it contributes nothing under any gap rule, while the true gradient has the
entry :math:`f'(\lambda)\tilde G_{ij}` there. Only the diagonal arrives, through :math:`\bar\lambda`. This case can be
recognised because C and :math:`\bar\lambda` are both non-zero: a loss of the projector onto the whole eigenspace has
such a C but :math:`\bar\lambda=0`, and a loss of its eigenvalues alone has equal :math:`\bar\lambda` and C = 0. Neither
of these loses anything.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from ..precision import resolved
from .pairwise import differences, identity_mask, norm


class GaugeWarning(UserWarning):
    """The loss depends on the choice of vectors within an eigenspace, or loses part of its gradient there."""


watching = False  # set by diagnostics.gauge_warnings


def tied(w: Tensor) -> Tensor:
    r"""Return the mask (*, d, d) of pairs of eigenvalues closer than :math:`64\,\epsilon\|A\|`.

    The stored matrix does not determine their eigenvectors; :class:`spectralgrad.Pade` uses the same factor.
    """
    return differences(w).abs() <= 64 * torch.finfo(w.dtype).eps * norm(w)[..., None, None]


def column_norms(G: Tensor) -> Tensor:
    """Return the Euclidean norms (*, d) of the columns of a cotangent; their squares may overflow or underflow."""
    if 0 in G.shape[-2:]:
        return torch.linalg.vector_norm(G, dim=-2)
    size = resolved(G.abs().amax(-2, keepdim=True))
    return torch.linalg.vector_norm(G / size, dim=-2) * size.squeeze(-2)


def noise_level(sizes: Tensor, eps: float) -> Tensor:
    r"""Return :math:`8\epsilon\sqrt d(\|\bar v_i\|+\|\bar v_j\|)`, the level of rounding error in the skew coupling."""
    return 8 * eps * sizes.shape[-1] ** 0.5 * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2))


def watch(coupling: Tensor, sizes: Tensor, w: Tensor, slopes: Tensor | None) -> None:
    r"""Warn if the loss depends on single vectors within a tie and gauge warnings are on.

    :func:`spectralgrad.diagnostics.gauge_warnings` switches them on.

    Args:
        coupling: :math:`V^H\bar V` (*, d, d).
        sizes: norms of the cotangent's columns (*, d).
        w: eigenvalues or singular values (*, d).
        slopes: cotangent of ``w`` (*, d), or None.
    """
    if watching and not torch.compiler.is_compiling():
        _warn(coupling, sizes, slopes, tied(w) & ~identity_mask(w))


def drop_noise(coupling: Tensor, sizes: Tensor, w: Tensor) -> Tensor:
    r"""Remove skew couplings at rounding level between tied vectors from :math:`V^H\bar V`.

    They carry no information, and :math:`\hat K` would amplify them. Pairs that are not tied are left unchanged.

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
    r"""Return the maximum of :math:`|C_{ij}-\bar C_{ji}|/(\|\bar v_i\|+\|\bar v_j\|)\le1` over ``pairs`` (*,)."""
    skew = (coupling - coupling.mH).abs()
    scale = sizes.unsqueeze(-1) + sizes.unsqueeze(-2)
    share = torch.where(pairs & (scale > 0), skew / torch.where(scale > 0, scale, 1), 0)
    return share.amax((-2, -1)) if share.shape[-1] else share.sum((-2, -1))


def loses_gradient(coupling: Tensor, sizes: Tensor, slopes: Tensor, pairs: Tensor) -> Tensor:
    r"""Return the mask (*, d, d) of tied pairs between which a matrix function composed by hand loses gradient.

    Where :math:`\bar\lambda_i\ne\bar\lambda_j`, the gradient :math:`V\mathrm{diag}(\bar\lambda)V^H` depends on the
    choice of vectors, and part of it is lost unless this choice happens to make C diagonal. Where they are equal,
    :math:`f'\tilde G_{ii}=f'\tilde G_{jj}` implies :math:`C_{ii}=C_{jj}`, and an entry :math:`C_{ij}\ne0` is lost. All
    comparisons use the tolerance :math:`\sqrt\epsilon`, because eigenvalues that are tied only up to rounding have
    slightly different slopes.
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
    visible = sizes > 64 * eps * norm(sizes).unsqueeze(-1)  # the other columns are zero up to rounding
    skewed = pairs & (visible.unsqueeze(-1) | visible.unsqueeze(-2))
    share = sensitivity(coupling, sizes, skewed)
    try:
        worst = float(share.detach().max()) if share.numel() else 0.0
        lost = slopes is not None and bool(loses_gradient(coupling, sizes, slopes, pairs).any())
    except RuntimeError:  # under vmap tensors cannot be converted to Python numbers
        return
    if worst > 8 * eps * coupling.shape[-1] ** 0.5:
        warnings.warn(
            f"the loss depends on the choice of vectors within an eigenspace (sensitivity {worst:.2g} of at most 1): "
            "its gradient does not exist there, and a bounded replacement is returned. Let the loss depend on "
            "projectors or matrix functions, or break the tie.",
            GaugeWarning,
            stacklevel=2,
        )
    elif lost:
        warnings.warn(
            "the loss seems to use V f(λ) Vᴴ, a matrix function composed from a decomposition with tied eigenvalues: "
            "the part of its gradient between their eigenvectors is lost, whatever the method. "
            "Use matrix_sqrt, matrix_inv_sqrt, matrix_power, matrix_log, matrix_exp or matrix_function (for singular "
            "values polar or the matrix itself), which are exact at ties.",
            GaugeWarning,
            stacklevel=2,
        )
