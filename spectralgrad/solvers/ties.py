r"""The basis in which a perturbation is diagonal within each group of tied eigenvalues or singular values.

To first order a perturbation Z splits a multiple eigenvalue into the eigenvalues of its block of :math:`V^HZV`, and the
eigenvectors of the block are the first-order eigenvectors. Groups are found for each matrix separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import torch
from torch import Tensor

from ..precision import rank_tolerance
from .decompose.operators import operator
from .symmetry import hermitian


class Ties(Enum):
    """Which values belong to one group: neighbours in a chain with steps of at most a tolerance."""

    NONE = "none"
    """Every value is a group of its own."""

    ROUNDING = "rounding"
    r"""The tolerance is :math:`\epsilon\max(64,24\sqrt d)\|A\|`, eight times the error of an eigensolver. Rounding
    does not separate equal eigenvalues by more, and the stored matrix does not determine the eigenvectors of closer
    ones.
    """

    NEAR = "near"
    r"""The tolerance is :math:`\sqrt\epsilon\|A\|/4`, where a difference quotient and a derivative are equally
    accurate. A chain that is longer than four steps is divided by the other tolerance.
    """


def groups(w: Tensor, ties: Ties, d: int | None = None) -> Tensor:
    """Return the number of the group (*, k) of each of the sorted values; d is the size of the matrix, default k."""
    k = w.shape[-1]
    if ties is Ties.NONE or k == 0:
        return torch.arange(k, device=w.device).expand(w.shape)
    size = w.abs().amax(-1, keepdim=True)
    fine = _chains(w, 8 * rank_tolerance(d or k, w.dtype) * size)
    if ties is Ties.ROUNDING:
        return fine
    step = torch.finfo(w.dtype).eps ** 0.5 / 4 * size
    coarse = _chains(w, step)
    same = coarse.unsqueeze(-1) == coarse.unsqueeze(-2)
    spread = torch.where(same, (w.unsqueeze(-1) - w.unsqueeze(-2)).abs(), 0).amax(-1)
    width = torch.where(same, spread.unsqueeze(-2), 0).amax(-1)
    return coarse * k + torch.where(width <= 4 * step, 0, fine)


def singular_groups(S: Tensor, ties: Ties, d: int) -> Tensor:
    """Return the number of the group of each of the descending singular values; −1 for zero up to rounding error."""
    numbers = groups(S, ties, d)
    if ties is Ties.NONE or S.shape[-1] == 0:
        return numbers
    fine = groups(S, Ties.ROUNDING, d)
    vanishing = 2 * S[..., -1:] <= 8 * rank_tolerance(d, S.dtype) * S[..., :1]  # tied with its own negative
    return torch.where(vanishing & (fine == fine[..., -1:]), -1, numbers)


def _chains(w: Tensor, step: Tensor) -> Tensor:
    return torch.nn.functional.pad((w.diff(dim=-1).abs() > step).long().cumsum(-1), (1, 0))


@operator("(d),(d,d)->(d),(d,d)")
def split_eigenvalues(numbers: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives of the eigenvalues and the basis of each group.

    Args:
        numbers: of the :func:`groups` of the eigenvalues (*, d).
        inner: the perturbation in the eigenbasis (*, d, d), Hermitian.

    Returns:
        the derivatives (*, d), ascending within each group, and the block-diagonal unitary matrix (*, d, d).
    """
    d = inner.shape[-1]
    values = _copy(inner.diagonal(dim1=-2, dim2=-1).real)
    R = _copy(torch.eye(d, dtype=inner.dtype, device=inner.device).expand(inner.shape))
    if not inner.numel():
        return values, R
    flat_values, flat_R, flat = values.view(-1, d), R.view(-1, d, d), inner.reshape(-1, d, d)
    for rows, _, block in _blocks(numbers.reshape(-1, d), flat):
        split, Q = torch.linalg.eigh(hermitian(flat[rows][:, block, block]))
        flat_values[rows, block] = split
        flat_R[rows, block, block] = Q
    return values, R


@operator("(k),(m,k),(k,n),(m,n)->(m,k),(k),(k,n)")
def split_singular_values(numbers: Tensor, U: Tensor, Vh: Tensor, dM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives of the singular values and the vectors turned within each group.

    Args:
        numbers: of the :func:`singular_groups` (*, k).
        U, Vh: the singular vectors, (*, m, k) and (*, k, n), by descending values.
        dM: the perturbation (*, m, n).

    Returns:
        left vectors (*, m, k), the derivatives (*, k), right vectors (*, k, n). The vectors of vanishing singular
        values are the singular vectors of the part of dM outside the others.
    """
    m, k, n = *U.shape[-2:], Vh.shape[-1]
    if not dM.numel():
        return _copy(U), U.new_zeros(numbers.shape, dtype=U.dtype.to_real()), _copy(Vh)
    P = (U.mH @ dM @ Vh.mH).reshape(-1, k, k)
    values, U, Vh = _copy(P.diagonal(dim1=-2, dim2=-1).real).view(numbers.shape), _copy(U), _copy(Vh)
    flat_U, flat_values, flat_Vh, flat = U.view(-1, m, k), values.view(-1, k), Vh.view(-1, k, n), dM.reshape(-1, m, n)
    for rows, number, block in _blocks(numbers.reshape(-1, k), P):
        left, right = flat_U[rows], flat_Vh[rows]
        if number < 0:
            before, size = block.start, k - block.start
            X, split, Yh = _outside(flat[rows], left[..., :before], right[:, :before])
            X, split, Yh = X[..., :size], split[..., :size], Yh[:, :size]
        else:
            split, Q = (x.flip(-1) for x in torch.linalg.eigh(hermitian(P[rows][:, block, block])))
            X, Yh = left[..., block] @ Q, Q.mH @ right[:, block]
        flat_U[rows, :, block], flat_values[rows, block], flat_Vh[rows, block] = X, split, Yh
    return U, values, Vh


def _copy(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _outside(Z: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the singular value decomposition of the part of Z outside the given left and right vectors."""
    Z = Z - left @ (left.mH @ Z)
    Z = Z - (Z @ right.mH) @ right
    return torch.linalg.svd(Z, full_matrices=False)


def _blocks(numbers: Tensor, inner: Tensor) -> Iterator[tuple[Tensor, int, slice]]:
    """Yield the rows of the batch that have a group in common, its number, and its place, for groups to be turned.

    Matrices with a perturbation that is not finite have none.
    """
    finite = torch.isfinite(inner).flatten(1).all(-1)
    tied = (numbers.diff(dim=-1) == 0).any(-1) | (numbers == -1).any(-1)
    rows = (finite & tied).nonzero().squeeze(-1)
    if not len(rows):
        return
    patterns, which = torch.unique(numbers[rows], dim=0, return_inverse=True)
    for i, pattern in enumerate(patterns.tolist()):
        start = 0
        while start < len(pattern):
            stop = start + pattern.count(pattern[start])
            if stop - start > 1 or pattern[start] == -1:
                yield rows[which == i], pattern[start], slice(start, stop)
            start = stop
