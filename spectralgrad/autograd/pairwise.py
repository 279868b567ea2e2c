"""Helpers for eigenvalues and pairs of them."""

from __future__ import annotations

import torch
from torch import Tensor


def differences(w: Tensor) -> Tensor:
    """The matrix of differences ``w_i - w_j`` (*, d, d)."""
    return w.unsqueeze(-1) - w.unsqueeze(-2)


def leading(w: Tensor) -> Tensor:
    r"""The larger modulus of each pair, :math:`\max(|\lambda_i|,|\lambda_j|)` (*, d, d)."""
    size = w.abs()
    return torch.maximum(size.unsqueeze(-1), size.unsqueeze(-2))


def norm(w: Tensor) -> Tensor:
    r"""The spectral norm :math:`\max_i|\lambda_i|` (*,) without gradient; zero for empty matrices."""
    if w.shape[-1] == 0:
        return w.new_zeros(w.shape[:-1])
    return w.detach().abs().amax(-1)


def floored(w: Tensor) -> Tensor:
    """The leading modulus of each pair, no smaller than the eigensolver's resolution of the whole matrix."""
    return torch.maximum(leading(w), resolution(w.dtype) * norm(w)[..., None, None])


def identity_mask(w: Tensor) -> Tensor:
    """Boolean identity (d, d) on the device of ``w``."""
    return torch.eye(w.shape[-1], dtype=torch.bool, device=w.device)


def resolution(dtype: torch.dtype) -> float:
    """Machine epsilon of the real type that goes with ``dtype``."""
    return torch.finfo(dtype).eps
