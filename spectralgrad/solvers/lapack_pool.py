"""Decomposes a batch of large matrices by concurrent LAPACK calls; torch.linalg makes them one after another."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

from . import lapack


def eigh(A: Tensor) -> tuple[Tensor, ...]:
    """torch.linalg.eigh of a batch (*, d, d), distributed over as many threads as torch may use."""
    batch, threads = A.shape[:-2], torch.get_num_threads()
    parts = A.reshape(-1, *A.shape[-2:]).tensor_split(min(threads, batch.numel()))
    results = list(_workers(threads, os.getpid()).map(lapack.eigh, parts))
    torch.set_num_threads(threads)  # the workers' own setting must not become the default of later threads
    return tuple(torch.cat(part).reshape(*batch, *part[0].shape[1:]) for part in zip(*results, strict=True))


@lru_cache(maxsize=2)
def _workers(threads: int, process: int) -> ThreadPoolExecutor:
    """Return a pool of threads that use one core each; a forked child has another process id and gets its own pool."""
    return ThreadPoolExecutor(threads, "spectralgrad", initializer=lambda: torch.set_num_threads(1))
