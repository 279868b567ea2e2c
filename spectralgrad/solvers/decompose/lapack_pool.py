"""Decomposes a batch of large matrices by concurrent LAPACK calls; torch.linalg makes them one after another."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

from . import lapack


def eigh(A: Tensor) -> tuple[Tensor, ...]:
    """torch.linalg.eigh of a batch (*, d, d), distributed over as many threads as torch may use.

    A thread that the program starts during the call, and that first uses torch before its end, gets a single torch
    thread, because torch has one number for MKL and for new threads, which the workers set to 1. Such a thread should
    call ``torch.set_num_threads`` itself.
    """
    batch, threads = A.shape[:-2], torch.get_num_threads()
    parts = A.reshape(-1, *A.shape[-2:]).tensor_split(min(threads, batch.numel()))
    try:
        results = list(_workers(threads, os.getpid()).map(_on_one_core, parts))
    finally:
        torch.set_num_threads(threads)  # for MKL, and for threads that start later, the workers' setting holds as well
    return tuple(torch.cat(part).reshape(*batch, *part[0].shape[1:]) for part in zip(*results, strict=True))


def _on_one_core(A: Tensor) -> tuple[Tensor, ...]:
    """torch.linalg.eigh with a single thread: the bits of a result depend on the number of threads MKL happens to get.

    The number is set for each call, because the last one has reset it.
    """
    torch.set_num_threads(1)
    return lapack.eigh(A)


@lru_cache(maxsize=2)
def _workers(threads: int, process: int) -> ThreadPoolExecutor:
    """Return a pool of threads; a forked child has another process id and gets its own pool."""
    return ThreadPoolExecutor(threads, "spectralgrad")
