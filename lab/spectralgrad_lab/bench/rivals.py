"""Other approaches in plain torch, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def newton_schulz(A: Tensor, steps: int, *, inverse: bool = False) -> Tensor:
    r"""Matrix root by the coupled Newton–Schulz iteration with trace normalization, as used in networks.

    Products with the identity in the first step, and unneeded products in the last one, are skipped.

    Args:
        A: positive definite matrices (*, d, d).
        steps: iterations, at least 2.
        inverse: :math:`A^{-1/2}` instead of :math:`A^{1/2}`.

    Example:
        >>> root = newton_schulz(torch.diag(torch.tensor([1.0, 4.0])), 10)
        >>> torch.allclose(root, torch.diag(torch.tensor([1.0, 2.0])))
        True

    Reference: Li et al., Towards Faster Training of Global Covariance Pooling Networks, CVPR 2018.
    """
    identity3 = 3 * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    trace = A.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    Y = A / trace
    Z = (identity3 - Y) / 2
    Y = Y @ Z
    for _ in range(steps - 2):
        T = (identity3 - Z @ Y) / 2
        Y, Z = Y @ T, T @ Z
    T = (identity3 - Z @ Y) / 2
    return T @ Z / trace.sqrt() if inverse else Y @ T * trace.sqrt()


def plain_covariance(X: Tensor) -> Tensor:
    """The covariance (*, d, d) of features (*, d, N)."""
    centered = X - X.mean(-1, keepdim=True)
    return centered @ centered.mT / X.shape[-1]


def new_in_torch() -> dict[str, Callable[[Tensor], Tensor]]:
    """Functions that torch has since 2.15, by the name of the contest; none in older versions."""
    root, polar = (getattr(torch.linalg, name, None) for name in ("matrix_sqrth", "polar"))
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    if root is not None:
        found["inv_sqrt"] = lambda A: torch.linalg.inv(root(A))
    if polar is not None:  # defined for tall matrices only
        found["polar"] = lambda M: polar(M)[0] if M.shape[-2] >= M.shape[-1] else polar(M.mH)[0].mH
    return found
