"""Compute results in advance in threads, and yield them in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(make: Callable[[int], T], steps: Iterable[int], workers: int) -> Iterator[T]:
    """Like ``map(make, steps)``, with up to ``workers`` results computed in advance.

    Threads are enough, since decoding and tensor operations release the GIL.

    Example:
        >>> list(prefetched(lambda step: step**2, range(5), workers=2))
        [0, 1, 4, 9, 16]
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="batches") as pool:
        ahead: deque[Future[T]] = deque()
        try:
            for step in steps:
                ahead.append(pool.submit(make, step))
                if len(ahead) > workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
