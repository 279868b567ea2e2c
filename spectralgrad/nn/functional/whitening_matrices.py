"""Whitening matrices and projectors, as differentiable functions of a covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ...dispatch import function, status
from ...dispatch.arguments import check_range, checked, is_integer
from ...dispatch.finite import check_finite
from ...dispatch.host import on_host_without_double
from ...errors import ArgumentError, SpectralError, check_features, check_square, raised_by
from ...linalg.decompositions import eigh
from ...linalg.matrix_functions import matrix_inv_sqrt
from ...precision import rank_tolerance
from ...rules import Method
from ...solvers.products import composed

__all__ = ["principal_projector", "whitening_matrix"]

Whitening = Literal["zca", "pca", "cholesky"]
OPERATION = {"zca": "inv_sqrt", "pca": "eigh", "cholesky": "inv_sqrt"}  # the operation that a method must support
DEFAULT = {"zca": "exact", "pca": "svd-pade", "cholesky": "exact"}


@checked
def whitening_matrix(M: Tensor, whitening: Whitening, method: Method, where: str = "whitening_matrix") -> Tensor:
    r"""A matrix W with :math:`WMW^\top=I` on the range of M.

    ``"zca"`` is :math:`M^{-1/2}`, the symmetric choice; ``"pca"`` is :math:`\Lambda^{-1/2}V^\top`, with rows ordered by
    decreasing variance and the largest entry of each eigenvector positive; ``"cholesky"`` is :math:`L^{-1}` with
    :math:`M=LL^\top`, lower triangular.

    Args:
        M: positive semi-definite matrices (*, d, d); positive definite for ``"cholesky"``.
        whitening: ``"zca"``, ``"pca"`` or ``"cholesky"``.
        method: how the gradient is computed; it must support ``"inv_sqrt"``, or ``"eigh"`` for ``"pca"``.
        where: name of the caller, used in errors.

    Returns:
        W (*, d, d).

    Example:
        >>> import spectralgrad as sg
        >>> M = torch.diag(torch.tensor([4.0, 9.0]))
        >>> whitening_matrix(M, "zca", sg.Exact())
        tensor([[0.5000, 0.0000],
                [0.0000, 0.3333]])

    Reference: Kessy, Lewin and Strimmer, Optimal Whitening and Decorrelation, 2018.
    """
    check_features(M, where)
    check_square(M, where)
    if whitening == "cholesky":
        return _cholesky(M, where)
    with raised_by(where):
        if whitening == "pca":
            return _principal(M, method)
        if not method.exact:
            return matrix_inv_sqrt(M, method=method)
        if not M.is_cpu and status.assumed(M):  # the root sees for itself whether its derivative is representable
            return matrix_inv_sqrt(M)
        size = scale(M)
        return matrix_inv_sqrt(M / size.square()) / size


def scale(M: Tensor) -> Tensor:
    r"""A power of two near :math:`\sqrt{\max_iM_{ii}}` (*, 1, 1), without gradient.

    The derivative of :math:`M^{-1/2}` has the magnitude of :math:`M^{-3/2}`, which overflows or underflows long before
    M does. Dividing M by the square of this scale avoids both, and a power of two makes the division exact.
    """
    largest = M.detach().diagonal(dim1=-2, dim2=-1).amax(-1)
    return torch.where(largest > 0, largest, 1).log2().mul(0.5).round().exp2()[..., None, None]


@checked
def principal_projector(
    C: Tensor, keep: int | float, eps: float, method: Method, watch: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    r"""Standardisation followed by projection on the leading principal components.

    .. math:: W=P\,D,\qquad D=\mathrm{diag}(C_{ii}+\epsilon)^{-1/2} .

    Args:
        C: covariances (*, d, d).
        keep: number of leading eigenvectors of :math:`DCD` to keep, or, as a float, the share of its trace to retain.
        eps: added to the variances.
        method: how the gradient of the eigenvectors is computed.
        watch: if given, called with :math:`DCD`; its result is decomposed instead.

    Example:
        >>> import spectralgrad as sg
        >>> C = torch.diag(torch.tensor([4.0, 9.0]))
        >>> principal_projector(C, 1.0, 0.0, sg.Exact())
        tensor([[0.5000, 0.0000],
                [0.0000, 0.3333]])

    Reference: Wang et al., NeurIPS 2019, section 3.2.
    """
    check_features(C, "principal_projector")
    check_square(C, "principal_projector")
    check_range(eps, "eps", "principal_projector", 0)
    check_keep(keep, C.shape[-1], "principal_projector")
    negative = (C.diagonal(dim1=-2, dim2=-1) + eps < 0).any(-1)
    if (function.eager(C) or status.observed(C)) and status.suspected(negative):
        raise ArgumentError("principal_projector: expected a covariance C, got one with a negative variance")
    return standardized_projector(C, keep, eps, method, watch, "principal_projector")


def standardized_projector(
    C: Tensor,
    keep: int | float,
    eps: float | Tensor,
    method: Method,
    watch: Callable[[Tensor], Tensor] | None,
    where: str,
) -> Tensor:
    """Compute :func:`principal_projector` with fewer checks, for layers.

    ``eps`` may be a tensor that broadcasts to (*, 1, 1); ``where`` is the name of the caller, used in errors.
    """
    variance = C.diagonal(dim1=-2, dim2=-1) + (eps[..., 0] if isinstance(eps, Tensor) else eps)
    inverse = _inverse_root(variance, variance > 0)
    if (isinstance(keep, float) and keep == 1) or keep == C.shape[-1]:
        check_finite(C, where)  # nothing is decomposed
        return torch.diag_embed(inverse)
    R = inverse.unsqueeze(-1) * C * inverse.unsqueeze(-2)
    with raised_by(where):
        w, V = eigh(R if watch is None else watch(R), method=method)
    return composed(V, leading(w, keep), V.mT) * inverse.unsqueeze(-2)


def check_keep(keep: int | float, d: int, where: str) -> None:
    """Raise :class:`ArgumentError` unless ``keep`` is a number of components up to d, or a share of the variance."""
    whole = is_integer(keep) and 1 <= keep <= d
    if not whole and not (isinstance(keep, float) and 0 < keep <= 1):
        raise ArgumentError(
            f"{where}: expected keep to be an integer from 1 to {d} or a float 0 < keep ≤ 1.0 "
            f"(a share of the variance), got {keep!r}"
        )


def leading(w: Tensor, keep: int | float) -> Tensor:
    """A mask of the ascending eigenvalues (*, d) to keep: the ``keep`` largest, or the fewest with that share.

    Example:
        >>> leading(torch.tensor([0.1, 0.2, 0.7]), 0.8)
        tensor([False,  True,  True])
        >>> leading(torch.tensor([0.1, 0.2, 0.7]), 1)
        tensor([False, False,  True])
    """
    w = w.detach().clamp_min(0)
    if isinstance(keep, int):
        d = w.shape[-1]
        return (torch.arange(d, device=w.device) >= d - keep).expand(w.shape)
    held = w.flip(-1).cumsum(-1).flip(-1) - w  # sum of the eigenvalues larger than this one
    return held < keep * w.sum(-1, keepdim=True)


def positive_part(C: Tensor) -> Tensor:
    """The nearest positive semi-definite matrix; rounding to float16 or bfloat16 can make eigenvalues negative."""
    w, V = eigh(C)
    return composed(V, w.clamp_min(0), V.mT)


def _principal(M: Tensor, method: Method) -> Tensor:
    w, V = eigh(M, method=method)
    w, V = w.flip(-1), V.flip(-1)
    sign = V.detach().gather(-2, V.detach().abs().argmax(-2, keepdim=True)).sign()
    kept = w > rank_tolerance(w.shape[-1], w.dtype) * w.detach()[..., :1]
    size = scale(M)[..., 0]
    inverse = _inverse_root(w / size.square(), kept) / size
    return (inverse.unsqueeze(-2) * (V * sign)).mT


def _inverse_root(x: Tensor, where: Tensor) -> Tensor:
    """1/√x where ``where`` is true and 0 elsewhere, with a finite gradient everywhere."""
    return torch.where(where, torch.where(where, x, 1).rsqrt(), 0)


@on_host_without_double
def _cholesky(M: Tensor, where: str) -> Tensor:
    check_finite(M, where)  # torch's factorisation does not make this check
    try:
        if status.optimistic(M) and status.observed(M):  # without torch's check, which would be read
            L, info = torch.linalg.cholesky_ex(M)
            status.suspected(info != 0)
        else:
            L = torch.linalg.cholesky(M)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise SpectralError(
            f"{where}: expected positive definite covariances for whitening='cholesky', got a singular one. "
            "Raise eps, or take whitening='zca', which works on the range."
        ) from error
    return torch.linalg.solve_triangular(L, torch.eye(M.shape[-1], dtype=M.dtype, device=M.device), upper=False)
