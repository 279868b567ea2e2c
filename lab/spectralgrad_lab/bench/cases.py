"""The benchmark cases: sizes, dtypes and spectra, and the matrices of each case."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

# Size d → batch B: the columns of the project's table of goals.
SIZES = {3: 4096, 4: 4096, 8: 2048, 16: 512, 32: 512, 64: 128, 128: 64, 256: 32}
QUICK = (3, 8, 32, 64)
SWEEP_SIZE, SWEEP = 32, (1, 4, 16, 64, 256)  # cost against B
POSITIONS = (49, 169, 196)  # 7², 13², 14²: what the last layers of the papers' networks have
CHANNELS, CHANNEL_BATCH = 256, 32
POLAR = (256, 2304)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Case:
    """One point of the grid.

    Args:
        batch: B.
        size: d, the side of a square matrix or the rows of a rectangular one.
        dtype: float32 or float64.
        spectrum: a key of ``SPECTRA``, or ``"gaussian"`` for rectangular matrices.
        columns: of a rectangular matrix; 0 if it is square.

    Example:
        >>> Case(512, 32, torch.float32, "graded").label
        'd=32 (512)'
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
        """float32 or float64."""
        return str(self.dtype).removeprefix("torch.")


def grid(
    dtypes: Iterable[str] = ("float32",), spectra: Iterable[str] = ("wishart",), sizes: Iterable[int] = tuple(SIZES)
) -> list[Case]:
    """Square matrices: every size with its batch, every dtype, every spectrum.

    Example:
        >>> len(grid(["float32", "float64"], ["wishart", "graded"]))
        32
    """
    sizes = tuple(sizes)
    return [Case(SIZES[d], d, DTYPES[name], spectrum) for spectrum in spectra for name in dtypes for d in sizes]


def sweep(dtype: str = "float32", spectrum: str = "wishart") -> list[Case]:
    """Square matrices of one size in batches of growing size."""
    return [Case(batch, SWEEP_SIZE, DTYPES[dtype], spectrum) for batch in SWEEP]


def features(positions: Iterable[int] = POSITIONS) -> list[Case]:
    """Features (B, channels, positions) for the square root of their covariance."""
    return [Case(CHANNEL_BATCH, CHANNELS, torch.float32, "gaussian", n) for n in positions]


def wide() -> list[Case]:
    """The matrix for the polar factor: the weight of a convolution."""
    return [Case(1, POLAR[0], torch.float32, "gaussian", POLAR[1])]


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
    if case.columns:
        shape = (case.batch, case.size, case.columns)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(case.dtype)
    A = SPECTRA[case.spectrum](case.batch, case.size, generator)
    if definite and case.spectrum in ("graded", "rank-deficient"):
        ridge = torch.finfo(case.dtype).eps ** 0.5 * torch.linalg.eigvalsh(A)[:, -1:, None]
        A = A + ridge * torch.eye(case.size, dtype=A.dtype)
    return ((A + A.mT) / 2).to(case.dtype)


def _gram(batch: int, d: int, samples: int, generator: torch.Generator) -> Tensor:
    X = torch.randn(batch, d, samples, generator=generator, dtype=torch.float64)
    return X @ X.mT / samples


def _rotated(w: Tensor, batch: int, generator: torch.Generator) -> Tensor:
    Q = torch.linalg.qr(torch.randn(batch, len(w), len(w), generator=generator, dtype=torch.float64)).Q
    return (Q * w) @ Q.mT


def _graded(batch: int, d: int, generator: torch.Generator) -> Tensor:
    return _rotated(torch.logspace(0, -12, d, dtype=torch.float64), batch, generator)


def _clustered(batch: int, d: int, generator: torch.Generator) -> Tensor:
    centers = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)[torch.arange(d) % 3]
    return _rotated(centers * (1 + 1e-6 * torch.linspace(0, 1, d, dtype=torch.float64)), batch, generator)


SPECTRA: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "wishart": lambda batch, d, generator: _gram(batch, d, 2 * d, generator),
    "graded": _graded,
    "clustered": _clustered,
    "rank-deficient": lambda batch, d, generator: _gram(batch, d, max(1, d // 2), generator),
}
