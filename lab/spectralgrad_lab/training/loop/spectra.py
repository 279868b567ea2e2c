"""Quantities of the spectra that the papers draw over training: ratios, condition numbers, kept eigenvectors."""

from __future__ import annotations

import sys
from collections.abc import Collection

import torch
from torch import Tensor

from spectralgrad.nn import CovariancePooling, SpectralModule
from spectralgrad.rules import SVDPI

SAMPLE = 16  # matrices of a batch that are examined, evenly spaced
_EPSILON = sys.float_info.epsilon


def measure(layer: SpectralModule, matrices: Tensor, wanted: Collection[str]) -> dict[str, float]:
    r"""Measure up to 16 of the matrices that a layer decomposes; every value but the last two is a mean over them.

    * ``"ratios"``: ``first_ratio`` is :math:`\lambda_1/\lambda_2` (ICCV 2021, Fig. 3), ``neighbor_ratio`` the mean of
      :math:`\lambda_i/\lambda_{i-1}` over the positive eigenvalues, in descending order.
    * ``"conditions"``: ``condition_clamped`` is κ of the matrix with its eigenvalues raised to what the method clamps
      at, to ε, or to 2.2e-16 (ICCV 2021, Table 1). ``condition_bare`` is κ without the ε that the layer adds and
      without a clamp; where an eigenvalue is zero, rounding decides it.
    * ``"kept"``: ``kept`` is the number of eigenvectors that the stopping rules of SVD-PI keep (NeurIPS 2019,
      Algorithm 1), with the layer's ε, ``kept_share`` their share of the sum of the eigenvalues.
    * ``"gaps"``: eigenvalues as the layer computes them, in its own precision and clamped if its method clamps them.
      ``ties`` is the number of neighbors that are equal, ``smallest_gap`` the smallest
      :math:`(\lambda_{i-1}-\lambda_i)/\lambda_{i-1}`.

    Args:
        layer: the layer.
        matrices: (*, d, d), with ε if the layer has one.
        wanted: of these names; others are ignored.

    Returns:
        the values by name; empty if the matrices are not finite.

    Example:
        >>> from spectralgrad.nn import DecorrelatedBatchNorm2d
        >>> layer = DecorrelatedBatchNorm2d(3, eps=0.5, method="svd")
        >>> found = measure(layer, torch.diag(torch.tensor([8.5, 4.5, 1.5])), ("ratios", "conditions", "kept"))
        >>> round(found["first_ratio"], 3), round(found["condition_clamped"], 3), found["condition_bare"], found["kept"]
        (1.889, 5.667, 8.0, 2.0)
    """
    with torch.no_grad():
        flat = matrices.detach().reshape(-1, *matrices.shape[-2:])
        A = flat[:: max(1, -(-flat.shape[0] // SAMPLE))].double()
        if A.numel() == 0 or not bool(torch.isfinite(A).all()):
            return {}
        w, V = torch.linalg.eigh(A)
        found: dict[str, float] = {}
        if "ratios" in wanted:
            found |= _ratios(w)
        if "conditions" in wanted:
            found |= _conditions(layer, w)
        if "kept" in wanted:
            kept = _rule(layer).kept(A, w, V)
            assert kept is not None
            share = (w * kept).sum(-1) / w.sum(-1)
            found |= {"kept": float(kept.double().sum(-1).mean()), "kept_share": float(share.mean())}
        if "gaps" in wanted:
            found |= _gaps(layer, A.to(matrices.dtype))
        return found


def _ratios(w: Tensor) -> dict[str, float]:
    if w.shape[-1] < 2:
        return {}
    neighbors = w[..., :-1] / w[..., 1:]
    return {
        "first_ratio": float((w[..., -1] / w[..., -2]).mean()),
        "neighbor_ratio": float(neighbors[w[..., 1:] > _EPSILON].clamp(min=0).mean()),
    }


def _conditions(layer: SpectralModule, w: Tensor) -> dict[str, float]:
    eps = float(getattr(layer, "eps", 0.0))
    if isinstance(layer, CovariancePooling):  # the matrix of positions lacks zero eigenvalues of the channels' matrix
        missing = (layer.reduce_to or layer.in_channels) - w.shape[-1]
        w = torch.nn.functional.pad(w, (max(0, missing), 0))
    clamped = w.clamp(min=getattr(layer.method, "clamp", None) or eps or _EPSILON)
    bare = (w - eps).abs()
    return {
        "condition_clamped": float((clamped.amax(-1) / clamped.amin(-1)).mean()),
        "condition_bare": float((bare.amax(-1) / bare.amin(-1)).mean()),
    }


def _gaps(layer: SpectralModule, A: Tensor) -> dict[str, float]:
    if A.shape[-1] < 2:
        return {}
    w = torch.linalg.eigvalsh(A)
    if clamp := getattr(layer.method, "clamp", None):
        w = w.clamp(min=clamp)
    gaps = w[..., 1:] - w[..., :-1]
    relative = gaps.double() / w[..., 1:].abs().clamp(min=torch.finfo(w.dtype).tiny).double()
    return {"ties": float((gaps == 0).sum()), "smallest_gap": float(relative.min())}


def _rule(layer: SpectralModule) -> SVDPI:
    """SVD-PI with the parameters that the layer uses, or would use."""
    if isinstance(layer.method, SVDPI):
        return layer.method
    eps = float(getattr(layer, "eps", 0.0))
    return SVDPI(eps=eps) if eps else SVDPI()
