"""Elementwise helpers for eigenvalues and pairs of them: differences, safe quotients, what a type can hold."""

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


def reciprocal(x: Tensor, where: Tensor) -> Tensor:
    """``1/x`` where ``where`` holds and 0 elsewhere, without a gradient there; saturated for denormal x."""
    return saturated(quotient(1, x, where))


def quotient(x: Tensor | float, y: Tensor, where: Tensor) -> Tensor:
    """``x/y`` where ``where`` holds and 0 elsewhere, without a gradient there.

    Unlike x times 1/y it is finite for denormal y if the result is.
    """
    return torch.where(where, x / torch.where(where, y, 1), 0)


def saturated(x: Tensor, share: float = 1.0) -> Tensor:
    """``x`` with its real and imaginary part kept within the largest finite numbers, or a share of them."""
    if x.dtype.is_complex:
        return torch.complex(saturated(x.real, share), saturated(x.imag, share))
    limit = torch.finfo(x.dtype).max * share
    return x.clamp(-limit, limit)


def resolution(dtype: torch.dtype) -> float:
    """Machine epsilon of the real type that goes with ``dtype``."""
    return torch.finfo(dtype).eps
