"""One process or many: who writes, and what all have to agree on."""

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

from spectralgrad.dispatch.torch_internals import connections
from spectralgrad.errors import SpectralError

from .config import ConfigError

_CPU = torch.device("cpu")
_broken: list[bool] = []  # whether a run of this process and others has failed
_PATIENCE = timedelta(minutes=10)
_NOTE = 1 << 16  # bytes of a note that processes show one another
_SIGNS = ("gloo", "connection", "peer", "nccl", "timed out", "timeout", "socket")


class WorkerLostError(SpectralError, RuntimeError):
    """Another process of the run has gone, or does not answer."""

    def __init__(self, rank: int, world: int, said: BaseException) -> None:
        first = str(said).strip().splitlines()[0] if str(said).strip() else type(said).__name__
        super().__init__(
            f"process {rank} of {world} lost another process of this run: it was killed, ran out of memory, or its "
            f"machine is away. What torch said: {first[:200]}"
        )


@dataclass(frozen=True)
class Group:
    """The processes of a run, seen from one of them.

    On a CPU they are connected twice. All that a run does goes over connections of its own. A process that fails leaves
    them, which ends the others' waiting wherever they are; the first connections are still there to agree on why.

    Attributes:
        rank: of this process.
        world: how many there are.
        device: where it computes.
        own: the process group of this run alone, or nothing.

    Example:
        >>> Group().leads, Group().total([2.0, 3.0])
        (True, [2.0, 3.0])
    """

    rank: int = 0
    world: int = 1
    device: torch.device = _CPU
    own: list[Any] = field(default_factory=list)

    @property
    def line(self) -> Any:
        """The process group over which the run goes; None for that of all processes."""
        return self.own[0] if self.own else None

    def leave(self, failed: bool = False) -> None:
        """Close the connections of this run. They are closed when nothing refers to them: see :func:`release`."""
        if failed and self.world > 1:
            _broken.append(True)
        if self.own:
            last = connections(self.own[0])
            dist.destroy_process_group(self.own.pop())
            gc.collect()
            del last  # not sooner: let go of by a model, the connections close with Python's lock held, or never

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Each number summed over all processes."""
        return self._reduced(values, dist.ReduceOp.SUM) if self.world > 1 else list(values)

    def most(self, values: Sequence[float]) -> list[float]:
        """Of each number the largest of all processes."""
        return self._reduced(values, dist.ReduceOp.MAX) if self.world > 1 else list(values)

    def _reduced(self, values: Sequence[float], how: Any) -> list[float]:
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, how, group=self.line)
        return list(numbers.tolist())

    def gather(self, value: Tensor) -> list[Tensor]:
        """The tensors of all processes, of the same shape."""
        if self.world == 1:
            return [value]
        here = value.to(self.device).contiguous()
        found = [torch.empty_like(here) for _ in range(self.world)]
        dist.all_gather(found, here, group=self.line)
        return [tensor.cpu() for tensor in found]

    def notes(self, text: str) -> list[str]:
        """What every process has to say."""
        raw = text.encode("utf-8")[:_NOTE]
        page = torch.zeros(_NOTE, dtype=torch.uint8)
        page[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
        return [bytes(p.tolist()).rstrip(b"\0").decode("utf-8", "ignore") for p in self.gather(page)]

    def wait(self) -> None:
        """Until all are here."""
        self.total([0.0])

    def lost(self, problem: BaseException) -> bool:
        """Whether an error means that another process has gone."""
        if self.world == 1 or not isinstance(problem, RuntimeError) or isinstance(problem, SpectralError):
            return False
        return isinstance(problem, dist.DistError) or any(sign in str(problem).lower() for sign in _SIGNS)


@contextmanager
def processes(device: str = "auto") -> Iterator[Group]:
    """The group that torchrun's environment variables or the caller's process group describe; else this process alone.

    Raises:
        WorkerLostError: another process went away inside the block.
        SpectralError: a run in the caller's process group has failed before: messages of it may still be on the way.

    Example:
        >>> with processes("cpu") as group:
        ...     group.world
        1
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    begun = dist.is_available() and dist.is_initialized()
    if begun and _broken:
        raise SpectralError("a run of these processes has failed; start new processes for another one")
    place = _device(device)
    if world > 1 and not begun:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_PATIENCE)
    many = world > 1 or begun
    group = _joined(place) if many else Group(device=place)
    try:
        yield group
    except RuntimeError as problem:
        if group.lost(problem):
            raise WorkerLostError(group.rank, group.world, problem) from None
        raise
    finally:
        group.leave()
        if many and not begun:
            dist.destroy_process_group()


def _joined(device: torch.device) -> Group:
    group = Group(dist.get_rank(), dist.get_world_size(), device)
    if group.world > 1 and device.type == "cpu":
        group.own.append(dist.new_group(backend="gloo"))
    return group


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        first = str(problem).strip().splitlines()[0].partition(". ")[0]
        raise ConfigError(f"device: expected auto, cpu, or a GPU that torch can use, got {name!r}: {first}") from None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device
