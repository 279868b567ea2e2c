"""How the thresholds are measured that are one number: the two ways between which each of them decides.

Both ways of a measurement compute the same; ``tests/test_tuning.py`` compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ...native import Kernel, kernel
from ...native.calls import UNCHECKED, Singular, Symmetric
from ...native.derivative_calls import Derivatives, SingularDerivatives
from ..kernel import feature_passes
from . import lapack, lapack_pool, polar_algorithms

_MANY, _SOME = 2**19, 2**14  # entries of a batch; of one for which the number of calls counts as well

Tensors = tuple[Tensor, ...]
Way = Callable[..., object]


class Measurement(NamedTuple):
    """A threshold, and what is timed to find it.

    Attributes:
        name: the entry of the table.
        meaning: the words before its value in the line that reports it.
        small, large: the ways below and above the threshold, functions of the tensors.
        tensors: returns the tensors of a size.
        sizes: the candidates, ascending.
        included: the threshold is the largest size of the way ``small``, not the smallest one of ``large``.
    """

    name: str
    meaning: str
    small: Way
    large: Way
    tensors: Callable[[int], Tensors]
    sizes: tuple[int, ...]
    included: bool = True

    def found(self, faster: Callable[[Way, Way, Callable[[], Tensors]], bool]) -> int:
        """Return the threshold; ``faster`` says whether the first of two ways takes less time on some tensors.

        If one way is always faster, it is half the smallest candidate, or twice the largest.
        """
        if self.included:
            last = last_of(self.sizes, lambda d: faster(self.small, self.large, lambda: self.tensors(d)))
            return self.sizes[0] // 2 if last is None else last
        first = last_of(reversed(self.sizes), lambda d: faster(self.large, self.small, lambda: self.tensors(d)))
        return 2 * self.sizes[-1] if first is None else first


def last_of(sizes: Iterable[int], wins: Callable[[int], bool]) -> int | None:
    """Return the last of the leading sizes for which ``wins`` is true, or None if it is not for the first."""
    found = None
    for size in sizes:
        if not wins(size):
            break
        found = size
    return found


def positive(batch: int, d: int, dtype: torch.dtype) -> Tensor:
    """Return random positive definite matrices."""
    X = torch.randn(batch, d, d, dtype=dtype)
    return X @ X.mH / d


def _native() -> Kernel:
    native = kernel()
    assert native is not None
    return native


def eigh(A: Tensor, lanes: bool = True) -> Tensors:
    """Decompose in the kernel: one matrix per SIMD lane, or one after another."""
    return Symmetric.of(_native(), A.shape, A.dtype, lanes).eigh(A)[0]


def svd(M: Tensor, lanes: bool = True) -> Tensors:
    """Return U, S and Vh from the kernel."""
    return Singular.of(_native(), M.shape, M.dtype, lanes).svd(M)[0]


# Roots and their derivatives.


def _root_by_kernel(A: Tensor) -> Tensor:
    (_, s, V), _ = Symmetric.of(_native(), A.shape, A.dtype, True).root(A, True, (0.0, 1.0, UNCHECKED))
    return Derivatives.of(_native(), A.shape, A.dtype).root(V, s, A, True)


def _root_by_products(A: Tensor) -> Tensor:
    w, V = eigh(A)
    s = w.clamp_min(torch.finfo(w.dtype).tiny).sqrt()
    _ = (V / s.unsqueeze(-2)) @ V.mT
    weights = -1 / ((s.unsqueeze(-1) + s.unsqueeze(-2)) * s.unsqueeze(-1) * s.unsqueeze(-2))
    return V @ (weights * (V.mT @ A @ V)) @ V.mT


# Gradients of singular value decompositions, and polar factors with theirs. Time does not depend on the values, so U
# and V need not be orthogonal.


def _factors(count: int, d: int) -> Tensors:
    """Return U, S and Vh with distinct singular values, cotangents of U and Vh, and the gap matrix."""
    U, Vh, gU, gVh = torch.randn(4, count, d, d) / d**0.5
    S = torch.linspace(2, 1, d).repeat(count, 1)
    gaps = S.unsqueeze(-1) - S.unsqueeze(-2)
    return U, S, Vh, gU, gVh, torch.where(gaps == 0, 0, 1 / gaps)


def _svd_gradient_by_kernel(U: Tensor, S: Tensor, Vh: Tensor, gU: Tensor, gVh: Tensor, K: Tensor) -> Tensor:
    plan = SingularDerivatives.of(_native(), U.shape, Vh.shape, U.dtype)
    return plan.factors((U, S, Vh), (gU, S, gVh), K, False, False)


def _svd_gradient_by_products(U: Tensor, S: Tensor, Vh: Tensor, gU: Tensor, gVh: Tensor, K: Tensor) -> Tensor:
    P, Q = U.mT @ gU, Vh @ gVh.mT
    joint, apart = P + Q, (P - Q) / (S.unsqueeze(-1) + S.unsqueeze(-2))
    return U @ (torch.diag_embed(S) + (apart - apart.mT - K * (joint - joint.mT)) / 2) @ Vh


def _polar_by_kernel(U: Tensor, S: Tensor, Vh: Tensor, G: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    plan = SingularDerivatives.of(_native(), U.shape, Vh.shape, U.dtype)
    Q = plan.composed(U, torch.ones_like(S), Vh)  # the product behind a decomposition
    return Q, plan.polar(G, Q, S, Vh)


def _polar_by_products(U: Tensor, S: Tensor, Vh: Tensor, G: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    Q, V = U @ Vh, Vh.mT
    W = Q @ V
    P = W.mT @ (G @ V)
    return Q, W @ ((P - P.mT) / (S.unsqueeze(-1) + S.unsqueeze(-2))) @ Vh


# Polar factors of tall matrices.


def _polar_by_svd(M: Tensor) -> Tensor:
    U, _, Vh = svd(M)
    return U @ Vh


def _polar_by_gram(M: Tensor) -> Tensor:
    wide = M.double()
    w, V = eigh(wide.mT @ wide)
    return M @ ((V / w.sqrt().unsqueeze(-2)) @ V.mT).float()


# Passes over features: the moments, and a map of every position.


def _features(d: int, positions: int) -> Tensors:
    """Return features of 16 samples with two groups of d channels, their mean, and matrices to multiply by."""
    return torch.randn(16, 2 * d, positions), torch.randn(2, d), torch.randn(2, d, d) / d**0.5


def _features_by_kernel(X: Tensor, mean: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    C, sums, out = torch.empty_like(A), torch.empty_like(mean), torch.empty_like(X)
    sizes = feature_passes.sizes(X, mean)
    _native().features("moments", sizes, X, mean, None, C, sums)
    _native().features("map", sizes, X, mean, A, None, None, None, None, out)
    return C, out


def _features_by_products(X: Tensor, mean: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    x = X.view(len(X), *mean.shape, -1) - mean.unsqueeze(-1)
    return (x @ x.mT).sum(0), (A @ x).view_as(X)


MEASUREMENTS = (
    Measurement(
        "pool",
        "pool of LAPACK calls from d =",
        lapack.eigh,
        lapack_pool.eigh,
        lambda d: (positive(8, d, torch.float64).to(torch.complex128),),
        (32, 48, 64, 96, 128, 192, 256),
        included=False,
    ),
    Measurement(
        "fused",
        "roots and derivatives inside the kernel up to d =",
        _root_by_kernel,
        _root_by_products,
        lambda d: (positive(max(2, _MANY // d**2), d, torch.float32) + torch.eye(d),),
        (8, 16, 32, 64, 128, 256, 512),
    ),
    Measurement(
        "svd_gradient",
        "gradients of svd inside the kernel up to d =",
        _svd_gradient_by_kernel,
        _svd_gradient_by_products,
        lambda d: _factors(max(2, _MANY // d**2), d),
        (16, 32, 64, 128, 256, 384, 512),
    ),
    Measurement(
        "polar",
        "products of polar factors inside the kernel up to d =",
        _polar_by_kernel,
        _polar_by_products,
        lambda d: _factors(max(1, _SOME // d**2), d),
        (8, 16, 32, 64, 128),
    ),
    Measurement(
        "tall",
        "polar factors of m×n matrices from the Gram matrix from m/n =",
        _polar_by_svd,
        _polar_by_gram,
        lambda ratio: (torch.randn(_MANY // (512 * ratio), 16 * ratio, 16),),
        (2, 3, 4, 6, 8),
        included=False,
    ),
    Measurement(
        "gram_blocks",
        "Gram matrix in blocks from n =",
        lambda M: M.mT @ M,
        polar_algorithms.in_blocks,
        lambda n: (torch.randn(2, 8 * n, n, dtype=torch.float64),),
        (96, 128, 192, 256, 384),
        included=False,
    ),
    Measurement(
        "few",
        "numbers looked at one by one up to",
        lambda w: max(map(abs, w.flatten().tolist())),
        lambda w: w.abs().amax().item(),
        lambda count: (torch.randn(count),),
        (8, 16, 32, 64, 128, 256),
    ),
    Measurement(
        "channels_from",
        "passes over features inside the kernel from channels",
        _features_by_products,
        _features_by_kernel,
        lambda d: _features(d, 256),
        (2, 3, 4, 6, 8, 12),
        included=False,
    ),
    Measurement(
        "channels_up_to",
        "passes over features inside the kernel up to channels",
        _features_by_kernel,
        _features_by_products,
        lambda d: _features(d, 256),
        (64, 128, 192, 256, 384, 512),
    ),
    Measurement(
        "positions",
        "passes over features inside the kernel from positions",
        _features_by_products,
        _features_by_kernel,
        lambda n: _features(32, n),
        (4, 8, 16, 32, 64),
        included=False,
    ),
)
