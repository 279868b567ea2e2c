"""The times of two kernels in one process, alternating: is the kernel of a wheel as fast as the one of GCC?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from spectralgrad.native import Kernel
from spectralgrad.native.calls import Singular, Symmetric
from spectralgrad.native.derivative_calls import Derivatives, SingularDerivatives

Call = Callable[[Kernel], object]
_SQUARE = ((2048, 2), (4096, 3), (2048, 4), (1024, 8), (256, 16), (128, 32), (16, 64), (8, 128), (1, 16), (1, 200))
_OTHER = (
    (2048, 2, 2),
    (2048, 3, 3),
    (1024, 5, 5),
    (512, 9, 9),
    (256, 16, 16),
    (32, 64, 32),
    (4, 128, 128),
    (1, 64, 64),
)


def compared(paths: tuple[Path, Path], seconds: float) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each cell, the best time of the first kernel in s, and the second's divided by the first's."""
    kernels = [Kernel(path) for path in paths]
    torch.set_num_threads(1)
    for name, call in _cells():
        best, turn = [math.inf, math.inf], 0
        for kernel in kernels:
            call(kernel)
        end = time.process_time() + seconds
        while time.process_time() < end or turn < 6:
            turn += 1
            for k in (turn % 2, 1 - turn % 2):
                start = time.perf_counter()
                call(kernels[k])
                best[k] = min(best[k], time.perf_counter() - start)
        yield name, best[0], best[1] / best[0]


def _cells() -> Iterator[tuple[str, Call]]:
    random = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        kind = str(dtype).removeprefix("torch.")
        for batch, d in _SQUARE:
            X = torch.randn(batch, d, 2 * d, generator=random, dtype=dtype)
            for name, call in _of_symmetric((X @ X.mH / d).contiguous()):
                yield f"{name} {kind} {batch}×{d}", call
        for batch, m, n in _OTHER:
            for name, call in _of_rectangular(torch.randn(batch, m, n, generator=random, dtype=dtype)):
                yield f"{name} {kind} {batch}×{m}×{n}", call


def _of_symmetric(A: Tensor) -> Iterator[tuple[str, Call]]:
    several = len(A) > 1
    yield "eigh", lambda k: Symmetric.of(k, A.shape, A.dtype, several).eigh(A)
    if A.is_complex() or not several:
        return
    w, V = torch.linalg.eigh(A)
    V, r, G = V.contiguous(), w.abs().sqrt(), torch.randn_like(A)
    yield "root", lambda k: Symmetric.of(k, A.shape, A.dtype, True).root(A, True, (1e-6, 1e-3, -1.0))
    yield "root's gradient", lambda k: Derivatives.of(k, A.shape, A.dtype).root(V, r, G, True, 0)
    yield "eigh's gradient", lambda k: Derivatives.of(k, A.shape, A.dtype).eigenpairs((w, V), (w, G), 1e-4, True, True)


def _of_rectangular(M: Tensor) -> Iterator[tuple[str, Call]]:
    several = len(M) > 1
    yield "svd", lambda k: Singular.of(k, M.shape, M.dtype, several).svd(M)
    if M.is_complex() or not several:
        return
    U, S, Vh = (x.contiguous() for x in torch.linalg.svd(M, full_matrices=False))
    given = torch.randn_like(U), S, torch.randn_like(Vh)
    yield (
        "svd's gradient",
        lambda k: SingularDerivatives.of(k, U.shape, Vh.shape, U.dtype).factors((U, S, Vh), given, 1e-4, True, True),
    )
