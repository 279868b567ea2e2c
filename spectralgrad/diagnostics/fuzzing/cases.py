"""A case: one batch from one family with one type, size and scale, determined by seed and number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .families import FAMILIES, Kind

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SCALES = ("one", "any", "denormal", "tiny", "huge", "edge")
LARGEST = 40
ENTRIES = 2**15  # matrix entries in a batch, so that a case takes milliseconds


class Case(NamedTuple):
    """Matrices (batch, d, d) or features (batch, d, N), and how they were drawn.

    ``address`` contains the arguments of :func:`draw`: seed, number, largest, batch (0 for the default).
    """

    address: tuple[int, int, int, int]
    family: str
    kind: Kind
    scale: str
    matrices: Tensor

    def __str__(self) -> str:
        shape = "×".join(map(str, self.matrices.shape[1:]))
        dtype = str(self.matrices.dtype).removeprefix("torch.")
        return f"{self.family} {shape} {dtype} scale {self.scale}"

    @property
    def number(self) -> int:
        """The number of the case in the campaign."""
        return self.address[1]

    def cotangent(self, x: Tensor, which: int = 0) -> Tensor:
        """Standard normal numbers with the shape and type of ``x``, the same at each call."""
        random = np.random.default_rng([*self.address[:2], 1, which])
        values = random.standard_normal(x.shape)
        if x.dtype.is_complex:
            values = values + 1j * random.standard_normal(x.shape)
        return torch.from_numpy(values).to(x.dtype)


def draw(seed: int, number: int, largest: int = LARGEST, batch: int = 0) -> Case:
    """The case with this seed and number.

    The family is determined by the number; type, size and scale are random. In every 50th case the matrices are three
    times as large.

    Args:
        seed: seed of the campaign.
        number: number of the case, from 0.
        largest: size of the largest matrices, except in every 50th case.
        batch: number of matrices in the case; 0 for as many as have 2¹⁵ entries, from 2 to 512.

    Example:
        >>> case = draw(0, 3, batch=2)
        >>> case.family, len(case.matrices)
        ('repeated', 2)
    """
    random = np.random.default_rng([seed, number])
    name = list(FAMILIES)[number % len(FAMILIES)]
    family, dtype = FAMILIES[name], DTYPES[random.integers(len(DTYPES))]
    d = _size(random, largest)
    if number % 50 == 49:
        d *= 3
    count = batch or int(min(512, max(2, ENTRIES // d**2)))
    scale = "one" if random.random() < 0.5 else str(random.choice(SCALES))
    A = family.make(random, count, d, dtype.is_complex)
    matrices = _scaled(A, _exponent(random, scale, A, dtype), dtype)
    return Case((seed, number, largest, batch), name, family.kind, scale, matrices)


def _size(random: np.random.Generator, largest: int) -> int:
    """A size from the square of a uniform number, so that half of all sizes are below a quarter of the largest."""
    return 1 + int((largest - 1) * random.random() ** 2 + 0.5)


def _exponent(random: np.random.Generator, scale: str, A: np.ndarray, dtype: torch.dtype) -> int:
    """The power of two that brings the largest entry to the scale."""
    info = torch.finfo(dtype)
    least, most = int(np.log2(info.tiny)), int(np.log2(info.max)) - 2 - int(np.log2(A.shape[-2]))
    bits = -int(np.log2(info.eps))
    wanted = {
        "one": 0,
        "any": int(random.integers(least - bits, most)),
        "denormal": int(random.integers(least - bits + 1, least + 1)),
        "tiny": least // 2,
        "huge": most // 2,
        "edge": most,
    }[scale]
    largest = np.abs(A).max(initial=0)
    return wanted if scale == "one" or largest == 0 else wanted - int(np.ceil(np.log2(largest)))


def _scaled(A: np.ndarray, exponent: int, dtype: torch.dtype) -> Tensor:
    with np.errstate(under="ignore"):
        if np.iscomplexobj(A):
            A = np.ldexp(A.real, exponent) + 1j * np.ldexp(A.imag, exponent)
        else:
            A = np.ldexp(A, exponent)
    return torch.from_numpy(A).to(dtype)
