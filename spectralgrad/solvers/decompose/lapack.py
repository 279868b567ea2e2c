"""The LAPACK drivers. Each is a function from matrices to the factors of a decomposition.

They call torch's own functions, also where :class:`spectralgrad.override_linalg` replaces these.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...dispatch import status
from ...dispatch.torch_internals import unintercepted
from ..acceptance import THRESHOLD, orthonormality
from ..symmetry import mirrored

Factors = tuple[Tensor, ...]
_BATCHED = 32  # rows and columns up to which cuSOLVER decomposes all matrices of a batch together


@unintercepted
def eigh(A: Tensor) -> Factors:
    """torch.linalg.eigh: ascending eigenvalues (*, d) and eigenvectors (*, d, d)."""
    return tuple(torch.linalg.eigh(A))


@unintercepted
def eigvalsh(A: Tensor) -> tuple[Tensor, bool]:
    """torch.linalg.eigvalsh: ascending eigenvalues (*, d), and whether one of them is not finite."""
    return _with_failures(torch.linalg.eigvalsh(A))


@unintercepted
def eigvalsh_separately(A: Tensor) -> tuple[Tensor, bool]:
    """torch.linalg.eigvalsh, called for each matrix by itself: see :func:`separately`."""
    return _with_failures(*separately(lambda M: (torch.linalg.eigvalsh(M),), A))


def _with_failures(w: Tensor) -> tuple[Tensor, bool]:
    return w, status.suspected((~torch.isfinite(w)).any(-1))


def separately(driver: Callable[[Tensor], Factors], A: Tensor) -> Factors:
    """Call a driver for each matrix (m, n) of a batch by itself.

    Torch does the same, but in one piece of memory, and what BLAS rounds depends on where in it a matrix starts.
    """
    if not A.numel():
        return driver(A)
    results = [driver(M) for M in A.reshape(-1, *A.shape[-2:])]
    return tuple(torch.stack(part).reshape(*A.shape[:-2], *part[0].shape) for part in zip(*results, strict=True))


def eigh_numpy(A: Tensor) -> Factors:
    """numpy's LAPACK, a different build from torch's."""
    w, V = np.linalg.eigh(A.cpu().numpy())
    return torch.from_numpy(w).to(A.device), torch.from_numpy(V).to(A.device)


@unintercepted
def eigh_by_svd(A: Tensor) -> Factors:
    """Eigenvectors as left singular vectors of the positive definite A + cI, eigenvalues as Rayleigh quotients."""
    # c = 2‖A‖ makes A + cI positive definite, so that its left singular vectors are eigenvectors of A.
    A = mirrored(A)
    shift = 2 * torch.linalg.matrix_norm(A)
    U = torch.linalg.svd(A + shift * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device))[0]
    w, order = (U.mH @ A @ U).diagonal(dim1=-2, dim2=-1).real.sort(dim=-1)
    return w, torch.take_along_dim(U, order.unsqueeze(-2), dim=-1)


def eigh_verified(A: Tensor) -> Factors:
    """:func:`eigh`, with NaN for the matrices (*,) whose eigenvectors are not orthonormal.

    cuSOLVER's batched driver has returned such vectors of complex64 matrices (pytorch issue 192483).
    """
    w, V = eigh(A)
    wrong = ~(orthonormality(V) < THRESHOLD)
    return w.masked_fill(wrong.unsqueeze(-1), torch.nan), V.masked_fill(wrong[..., None, None], torch.nan)


@unintercepted
def svd(M: Tensor) -> Factors:
    """torch.linalg.svd, reduced: U (*, m, k), S (*, k), Vh (*, k, n)."""
    return tuple(torch.linalg.svd(M, full_matrices=False))


@unintercepted
def svd_of_smaller(M: Tensor) -> Factors:
    """:func:`svd` for accelerators, where tall and wide matrices are reduced to square ones by a QR decomposition.

    cuSOLVER's batched driver takes up to 32 rows and columns; other matrices are decomposed one after another.
    """
    m, n = M.shape[-2:]
    if max(m, n) <= _BATCHED or max(m, n) < 2 * min(m, n):
        return svd(M)
    if m < n:
        U, S, Vh = svd_of_smaller(M.mH)
        return Vh.mH, S, U.mH
    Q, R = torch.linalg.qr(M)
    U, S, Vh = svd(R)
    return Q @ U, S, Vh


def svd_numpy(M: Tensor) -> Factors:
    """numpy's LAPACK, a different build from torch's."""
    U, S, Vh = np.linalg.svd(M.cpu().numpy(), full_matrices=False)
    return tuple(torch.from_numpy(np.ascontiguousarray(x)).to(M.device) for x in (U, S, Vh))


@unintercepted
def svd_by_eigh(M: Tensor) -> Factors:
    """Singular values from the eigenvalues of [[0, M], [Mᴴ, 0]], whose positive half belongs to (U, V)/√2."""
    m, n = M.shape[-2:]
    k = min(m, n)
    dilation = M.new_zeros(m + n, m + n)
    dilation[:m, m:] = M
    dilation[m:, :m] = M.mH
    w, W = torch.linalg.eigh(dilation)
    top = W[:, -k:].flip(-1)
    U, _ = torch.linalg.qr(top[:m])
    V, _ = torch.linalg.qr(top[m:])
    core = (U.mH @ M @ V).diagonal()
    size = core.abs()
    phase = torch.where(size > 0, core / torch.where(size > 0, size, 1), torch.ones_like(core))
    S, order = size.to(w.dtype).sort(descending=True)
    return (U * phase)[:, order], S, V[:, order].mH
