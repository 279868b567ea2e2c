r"""What a loss may depend on at a tie: eigenspaces yes, the choice of vectors in them no.

Within an eigenspace the vectors are defined up to a rotation (the gauge). A loss that ignores the choice has
a cotangent whose coupling :math:`V^H\bar V` is Hermitian there; the skew part measures how far it is not.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from .methods.base import differences, identity_mask, norm


class GaugeWarning(UserWarning):
    """The loss depends on the choice of vectors within an eigenspace, where no gradient exists."""


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
    if watching and not torch.compiler.is_compiling():
        _warn(skew, sizes, unresolved & ~identity_mask(w))
    noise = noise_level(sizes, torch.finfo(w.dtype).eps)
    return torch.where(unresolved & (skew.abs() <= noise), coupling - skew, coupling)


def sensitivity(coupling: Tensor, sizes: Tensor, pairs: Tensor) -> Tensor:
    r"""The largest :math:`|C_{ij}-\bar C_{ji}|/(\|\bar v_i\|+\|\bar v_j\|)` over the pairs (*,), for the coupling C."""
    skew = (coupling - coupling.mH).abs()
    scale = sizes.unsqueeze(-1) + sizes.unsqueeze(-2)
    share = torch.where(pairs & (scale > 0), skew / torch.where(scale > 0, scale, 1), 0)
    return share.amax((-2, -1)) if share.shape[-1] else share.sum((-2, -1))


def _warn(skew: Tensor, sizes: Tensor, pairs: Tensor) -> None:
    share = sensitivity(skew, sizes, pairs)
    try:
        worst = float(share.detach().max()) if share.numel() else 0.0
    except RuntimeError:  # under vmap there is no single value to look at
        return
    if worst > 8 * torch.finfo(share.dtype).eps * skew.shape[-1] ** 0.5:
        warnings.warn(
            f"the loss depends on the choice of vectors within an eigenspace (sensitivity {worst:.2g} of at most 1): "
            "its gradient does not exist there and a bounded stand-in is returned. Let the loss depend on "
            "projectors or matrix functions, or break the tie.",
            GaugeWarning,
            stacklevel=2,
        )
