"""Helper functions of eigenvalues and of pairs of eigenvalues."""

from __future__ import annotations

import torch
from torch import Tensor


def differences(w: Tensor) -> Tensor:
    """Return the matrix of differences ``w_i - w_j`` (*, d, d)."""
    return w.unsqueeze(-1) - w.unsqueeze(-2)


def leading(w: Tensor) -> Tensor:
    r"""Return the larger modulus of each pair, :math:`\max(|\lambda_i|,|\lambda_j|)` (*, d, d)."""
    size = w.abs()
    return torch.maximum(size.unsqueeze(-1), size.unsqueeze(-2))


def norm(w: Tensor) -> Tensor:
    r"""Return the spectral norm :math:`\max_i|\lambda_i|` (*,) without gradient; zero for empty matrices."""
    if w.shape[-1] == 0:
        return w.new_zeros(w.shape[:-1])
    return w.detach().abs().amax(-1)


def floored(w: Tensor) -> Tensor:
    """Return the larger modulus of each pair, but at least eps times the norm, the resolution of an eigensolver."""
    return torch.maximum(leading(w), resolution(w.dtype) * norm(w)[..., None, None])


def identity_mask(w: Tensor) -> Tensor:
    """Return the boolean identity matrix (d, d) on the device of ``w``."""
    return torch.eye(w.shape[-1], dtype=torch.bool, device=w.device)


def resolution(dtype: torch.dtype) -> float:
    """Return the machine epsilon of ``dtype``; for a complex dtype, of its real part."""
    return torch.finfo(dtype).eps
