"""The benchmark cases: sizes, dtypes and spectra, and the matrices of each case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "complex64", "complex128")}
GAUSSIAN = "gaussian"  # the spectrum of matrices that need not be symmetric
_DISTINCT = 2**22  # entries that are drawn; a larger batch repeats them


@dataclass(frozen=True)
class Case:
    """One point of the grid.

    Args:
        batch: B.
        size: d, the side of a square matrix or the rows of a rectangular one.
        dtype: float32, float64, complex64 or complex128.
        spectrum: a key of ``SPECTRA``, or ``"gaussian"`` for matrices that need not be symmetric.
        columns: of a Gaussian matrix; 0 for a symmetric one.

    Example:
        >>> Case(512, 32, torch.float32, "graded").label, Case(128, 64, torch.float32, "gaussian", 32).label
        ('d=32 (512)', '64×32 (128)')
    """

    batch: int
    size: int
    dtype: torch.dtype
    spectrum: str = "wishart"
    columns: int = 0

    @property
    def label(self) -> str:
        """How a table names the row."""
        return f"{self.size}×{self.columns} ({self.batch})" if self.columns else f"d={self.size} ({self.batch})"

    @property
    def precision(self) -> str:
        """The name of the dtype."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a matrix."""
        return self.size, self.columns or self.size

    @property
    def work(self) -> int:
        """What a decomposition of the batch costs, up to a factor."""
        return self.batch * self.shape[0] * self.shape[1] * min(self.shape)

    @property
    def distinct(self) -> int:
        """How many different matrices are drawn, and how many results are checked; less than B only for large ones.

        Example:
            >>> Case(4096, 32, torch.float32).distinct, Case(4096, 256, torch.float32).distinct
            (4096, 64)
        """
        return min(self.batch, max(1, _DISTINCT // (self.shape[0] * self.shape[1])))


def matrices(case: Case, *, definite: bool = False, seed: int = 0) -> Tensor:
    """Draw the matrices (B, d, d) or (B, d, columns) of a case.

    Args:
        case: the point of the grid.
        definite: add √ε times the largest eigenvalue to the diagonal of a graded or rank-deficient matrix, so that its
        inverse root is accurate to some digits in this precision.
        seed: of the draw.

    Example:
        >>> w = torch.linalg.eigvalsh(matrices(Case(2, 8, torch.float64, "rank-deficient")))
        >>> (w > 1e-12).sum(-1)
        tensor([4, 4])
    """
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if case.dtype.is_complex else torch.float64
    drawn = (
        _gaussian((case.distinct, *case.shape), generator, wide) if case.columns else _hermitian(case, generator, wide)
    )
    if definite and case.spectrum in ("graded", "rank-deficient"):
        ridge = torch.finfo(case.dtype).eps ** 0.5 * torch.linalg.eigvalsh(drawn)[:, -1:, None]
        drawn = drawn + ridge * torch.eye(case.size, dtype=wide)
    times = -(-case.batch // case.distinct)
    return drawn.to(case.dtype).repeat(times, 1, 1)[: case.batch]


def _hermitian(case: Case, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    A = SPECTRA[case.spectrum](case.distinct, case.size, generator, dtype)
    return (A + A.mH) / 2


def _gaussian(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=dtype)


def _gram(batch: int, d: int, samples: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    X = _gaussian((batch, d, samples), generator, dtype)
    return X @ X.mH / samples


def _rotated(w: Tensor, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    Q = torch.linalg.qr(_gaussian((batch, len(w), len(w)), generator, dtype)).Q
    return (Q * w) @ Q.mH


def _wishart(batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return _gram(batch, d, 2 * d, generator, dtype)


def _graded(batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return _rotated(torch.logspace(0, -12, d, dtype=torch.float64), batch, generator, dtype)


def _clustered(batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    centers = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)[torch.arange(d) % 3]
    return _rotated(centers * (1 + 1e-6 * torch.linspace(0, 1, d, dtype=torch.float64)), batch, generator, dtype)


def _deficient(batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return _gram(batch, d, max(1, d // 2), generator, dtype)


SPECTRA: dict[str, Callable[[int, int, torch.Generator, torch.dtype], Tensor]] = {
    "wishart": _wishart,
    "graded": _graded,
    "clustered": _clustered,
    "rank-deficient": _deficient,
}
