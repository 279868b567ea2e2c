"""The processes that train one network together, and the connections between them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from spectralgrad.errors import SpectralError

from ..config.run_config import ConfigError

_CPU = torch.device("cpu")
_failed_before: list[bool] = []  # not empty once a run with several processes has failed in this process
_TIMEOUT = timedelta(minutes=10)
_LONGEST_TEXT = 1 << 16  # bytes that `gather_texts` exchanges
# Words in torch's messages when a connection is lost; torch has no error class of its own for it.
_LOST_WORDS = ("gloo", "connection", "peer", "nccl", "timed out", "timeout", "socket")


class WorkerLostError(SpectralError, RuntimeError):
    """Another process of the run has died or does not respond."""

    def __init__(self, rank: int, world: int, said: BaseException) -> None:
        first = str(said).strip().splitlines()[0] if str(said).strip() else type(said).__name__
        super().__init__(
            f"process {rank} of {world} lost another process of this run, which was killed, ran out of memory, or is "
            f"unreachable. Message from torch: {first[:200]}"
        )


@dataclass(frozen=True)
class Group:
    """The processes of a run, as seen from one of them.

    On a CPU there are two sets of connections. Training uses a process group that belongs to this run alone. A process
    that fails closes it, which unblocks the other processes wherever they are waiting; the default process group
    remains usable, and all processes use it to agree on the reason.

    Attributes:
        rank: number of this process.
        world: number of processes.
        device: on which this process computes.
        run_groups: holds the process group of this run alone; empty if there is none.

    Example:
        >>> Group().is_leader, Group().total([2.0, 3.0])
        (True, [2.0, 3.0])
    """

    rank: int = 0
    world: int = 1
    device: torch.device = _CPU
    run_groups: list[Any] = field(default_factory=list)

    @property
    def process_group(self) -> Any:
        """The process group that training uses; None for the default one."""
        return self.run_groups[0] if self.run_groups else None

    def leave(self, failed: bool = False) -> None:
        """Close the connections of this run. They close once nothing refers to them: see :func:`release`."""
        if failed and self.world > 1:
            _failed_before.append(True)
        if self.run_groups:
            dist.destroy_process_group(self.run_groups.pop())
            gc.collect()  # a model in a reference cycle would keep the connections open

    @property
    def is_leader(self) -> bool:
        """True in the process that writes files and prints."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Sum each number over all processes."""
        return self._reduced(values, dist.ReduceOp.SUM) if self.world > 1 else list(values)

    def maximum(self, values: Sequence[float]) -> list[float]:
        """The maximum of each number over all processes."""
        return self._reduced(values, dist.ReduceOp.MAX) if self.world > 1 else list(values)

    def _reduced(self, values: Sequence[float], how: Any) -> list[float]:
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, how, group=self.process_group)
        return list(numbers.tolist())

    def gather(self, value: Tensor) -> list[Tensor]:
        """The tensors of all processes; they must have the same shape."""
        if self.world == 1:
            return [value]
        here = value.to(self.device).contiguous()
        found = [torch.empty_like(here) for _ in range(self.world)]
        dist.all_gather(found, here, group=self.process_group)
        return [tensor.cpu() for tensor in found]

    def gather_texts(self, text: str) -> list[str]:
        """The texts of all processes."""
        raw = text.encode("utf-8")[:_LONGEST_TEXT]
        page = torch.zeros(_LONGEST_TEXT, dtype=torch.uint8)
        page[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
        return [bytes(p.tolist()).rstrip(b"\0").decode("utf-8", "ignore") for p in self.gather(page)]

    def barrier(self) -> None:
        """Wait for all processes."""
        self.total([0.0])

    def is_lost_worker(self, problem: BaseException) -> bool:
        """True if an error means that another process has died."""
        if self.world == 1 or not isinstance(problem, RuntimeError) or isinstance(problem, SpectralError):
            return False
        return isinstance(problem, dist.DistError) or any(sign in str(problem).lower() for sign in _LOST_WORDS)


@contextmanager
def processes(device: str = "auto") -> Iterator[Group]:
    """The group of processes: from torchrun's environment variables, or the caller's group, else one process.

    Raises:
        WorkerLostError: another process died inside the block.
        SpectralError: an earlier run in the caller's process group failed; its messages may still be in transit.

    Example:
        >>> with processes("cpu") as group:
        ...     group.world
        1
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    begun = dist.is_available() and dist.is_initialized()
    if begun and _failed_before:
        raise SpectralError("an earlier run of these processes failed; start new processes for another run")
    place = _device(device)
    if world > 1 and not begun:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_TIMEOUT)
    many = world > 1 or begun
    group = _joined(place) if many else Group(device=place)
    try:
        yield group
    except RuntimeError as problem:
        if group.is_lost_worker(problem):
            raise WorkerLostError(group.rank, group.world, problem) from None
        raise
    finally:
        group.leave()
        if many and not begun:
            dist.destroy_process_group()


def _joined(device: torch.device) -> Group:
    group = Group(dist.get_rank(), dist.get_world_size(), device)
    if group.world > 1 and device.type == "cpu":
        group.run_groups.append(dist.new_group(backend="gloo"))
    return group


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.ones(1, device=device).item()  # "meta" has tensors, but no numbers
    except (RuntimeError, AssertionError) as problem:
        first = str(problem).strip().splitlines()[0].partition(". ")[0]
        raise ConfigError(f"device: expected auto, cpu, or a GPU that torch can use, got {name!r}: {first}") from None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device
