"""The calls of the Triton kernels, with the methods of the CPU kernel's plans: see :mod:`spectralgrad.native.calls`.

Where those return how many matrices failed, these return whether any is known to have failed. In an optimistic run
nothing is known: which matrices failed is recorded (:mod:`spectralgrad.dispatch.status`), and their results are NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...dispatch import status
from ...dispatch.torch_internals import is_fake
from ...native.calls import UNCHECKED
from . import launching, long_svd, small_eigh, small_polar, small_roots, small_svd
from .availability import state

LONGEST = 8192  # rows, which one program reads twice; where others are faster has not been measured


def symmetric(A: Tensor, entry: str) -> Symmetric | None:
    """Return the calls for symmetric matrices, or None if there is none of this name for such matrices."""
    fits = entry in ("eigh", "root") and A.dim() > 1 and 2 <= A.shape[-1] == A.shape[-2] <= launching.LARGEST_SIZE
    return Symmetric(launching.batched(A.shape), A.shape[-1]) if fits and _taken(A) else None


def singular(M: Tensor, entry: str) -> Singular | None:
    """Return the calls for rectangular matrices, or None if there is none of this name for such matrices."""
    if M.dim() < 2 or not _fits(M, entry) or not _taken(M):
        return None
    return Singular(launching.batched(M.shape))


def _fits(M: Tensor, entry: str) -> bool:
    m, n = M.shape[-2:]
    if entry == "polar":
        return m == n <= launching.IN_ONE_THREAD
    return entry == "svd" and min(m, n) <= launching.LARGEST_SIZE and max(m, n) <= LONGEST


def derivatives(V: Tensor, entry: str) -> Derivatives | None:
    """Return the calls for derivatives from eigenvectors (*, d, d), or None if there is none of this name."""
    fits = entry == "root" and 2 <= V.shape[-1] <= launching.LARGEST_SIZE
    return Derivatives() if fits and _taken(V) else None


def singular_derivatives(Q: Tensor, entry: str) -> SingularDerivatives | None:
    """Return the calls for derivatives of a factor (*, m, n), or None if there is none of this name."""
    return SingularDerivatives() if entry == "polar" and _fits(Q, entry) and _taken(Q) else None


def points(X: Tensor, *others: Tensor | None) -> bool:
    """True if the sums over points (*, n, k) and others of one type come from Triton kernels."""
    return X.shape[-1] <= launching.IN_ONE_THREAD and all(x is None or x.dtype == X.dtype for x in others) and _taken(X)


def _taken(A: Tensor) -> bool:
    known = A.dtype in (torch.float32, torch.float64) and A.numel() > 0
    return known and not is_fake(A) and not state(A.device)


class Symmetric(NamedTuple):
    """Decompositions and roots of matrices (*, d, d), 2 ≤ d ≤ 8."""

    batch: int
    d: int

    def eigh(self, A: Tensor, asymmetry: float = UNCHECKED) -> tuple[tuple[Tensor, Tensor], bool]:
        """Return ascending eigenvalues, eigenvectors, and whether a matrix has failed."""
        w, V, failed = small_eigh.eigh(A, asymmetry)
        return (w, V), status.suspected(failed)

    def eigvalsh(self, A: Tensor) -> tuple[Tensor, bool]:
        """Return ascending eigenvalues, and whether a matrix has failed."""
        (w, _), failed = self.eigh(A)
        return w, failed

    def root(
        self, A: Tensor, inverse: bool, limits: tuple[float, float, float]
    ) -> tuple[tuple[Tensor, Tensor, Tensor], bool]:
        """Return the (inverse) root, √λ, V, and whether a matrix has failed or has too negative an eigenvalue."""
        S, s, V, found = small_roots.root(A, inverse, *limits)
        return (S, s, V), status.suspected(found != 0)


class Singular(NamedTuple):
    """Singular value decompositions of matrices (*, m, n) with a side of up to 8, and small polar factors."""

    batch: int

    def svd(self, M: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], bool]:
        """Return U, descending S, Vh, and whether a matrix has failed."""
        run = small_svd.svd if max(M.shape[-2:]) <= launching.LARGEST_SIZE else long_svd.tall_svd
        U, S, Vh, failed = run(M)
        return (U, S, Vh), status.suspected(failed)

    def svdvals(self, M: Tensor) -> tuple[Tensor, bool]:
        """Return descending singular values, and whether a matrix has failed."""
        (_, S, _), failed = self.svd(M)
        return S, failed

    def polar(self, M: Tensor, special: bool, rtol: float) -> tuple[tuple[Tensor, Tensor, Tensor], bool]:
        """Return Q, h and Vh of M = Q V diag(h) Vh, and whether a matrix has failed."""
        Q, h, Vh, failed = small_polar.polar(M, special, rtol)
        return (Q, h, Vh), status.suspected(failed)


class Derivatives(NamedTuple):
    """Derivatives of roots."""

    def root(self, V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
        """Return the derivative of the (inverse) root in the direction sym(G); ``s`` is √λ, ``terms`` zero."""
        return small_roots.root_derivative(V, s, G, inverse)


class SingularDerivatives(NamedTuple):
    """Derivatives of polar factors."""

    def polar(self, G: Tensor, Q: Tensor, h: Tensor, Vh: Tensor) -> Tensor:
        """Return the derivative of the polar factor Q of M = Q V diag(h) Vh in the direction G."""
        return small_polar.polar_derivative(Q, h, Vh, G)
