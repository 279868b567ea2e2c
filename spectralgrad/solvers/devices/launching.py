"""How a kernel is launched: how matrices are divided among threads, and constants of the type."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

LARGEST_SIZE = 8
IN_ONE_THREAD = 4  # rows and columns of matrices that fit into the registers of one thread, in double precision too
_TINY = {torch.float32: 2.0**-100, torch.float64: 2.0**-400}


def options(rocm: bool) -> dict[str, Any]:
    """Return how kernels are compiled.

    Products and sums are not contracted to fused operations: see kernels/language.py. NVIDIA's assembler may use all
    registers of a thread; left to itself, it spills some for the sake of more threads.
    """
    return {"enable_fp_fusion": False, **({} if rocm else {"maxnreg": 255})}


def rows(n: int) -> int:
    """Return the number of threads, a power of two, that share a matrix with ``n`` columns."""
    return 1 if n <= IN_ONE_THREAD else LARGEST_SIZE


@lru_cache
def warp() -> int:
    """Return the number of threads that run in step."""
    return 64 if torch.version.hip else 32


def limits(dtype: torch.dtype) -> dict[str, float]:
    """Return the square of what is negligible, and the largest number, of a real type."""
    return {"TINY": _TINY[dtype], "LARGEST": torch.finfo(dtype).max}


def square(n: int, threads: int) -> dict[str, int]:
    """Return the size of n × n matrices, how many a warp of so many threads takes, and how many threads share one."""
    return {"N": n, "M": threads // rows(n), "ROWS": rows(n)}


def batched(shape: torch.Size) -> int:
    """Return the number of matrices in a batch of this shape."""
    return math.prod(shape[:-2])


def run(kernel: str, programs: int, *args: Any, **known: Any) -> None:
    """Launch ``module.name`` of the folder ``kernels``, one warp per program unless ``known`` says otherwise."""
    if not programs:
        return
    module, name = kernel.split(".")
    function = getattr(import_module(f".kernels.{module}", __package__), name)
    device = args[0].device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():  # Triton launches on the current one
        function[(programs,)](*args, **{"num_warps": 1, **options(bool(torch.version.hip)), **known})


def flags(A: Tensor) -> Tensor:
    """Return new integers, one per matrix, for the kernel to write."""
    return torch.empty(A.shape[:-2], dtype=torch.int8, device=A.device)
