"""Random states as tensors, so that checkpoints can store them without pickle."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NONE = float("nan")  # Python's generator has no second Gaussian in stock


def capture() -> dict[str, Tensor]:
    """The random states of torch, Python and numpy in this process, and of the current CUDA device if there is one.

    Example:
        >>> state = capture()
        >>> before = torch.rand(1), random.random()
        >>> restore(state)
        >>> (torch.rand(1), random.random()) == before
        True
    """
    _, numbers, kept = random.getstate()
    of_numpy: Any = np.random.get_state()  # noqa: NPY002
    state = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(numbers, dtype=torch.int64),
        "numpy": torch.tensor([*of_numpy[1].tolist(), of_numpy[2], of_numpy[3]], dtype=torch.int64),
        "kept": torch.tensor([_NONE if kept is None else kept, of_numpy[4]], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: dict[str, Tensor]) -> None:
    """Restore a state returned by :func:`capture`."""
    kept = state["kept"].tolist()
    numpy_numbers = state["numpy"].tolist()
    torch.set_rng_state(state["torch"])
    random.setstate((3, tuple(state["python"].tolist()), None if kept[0] != kept[0] else kept[0]))
    keys = np.array(numpy_numbers[:-2], dtype=np.uint32)
    np.random.set_state(("MT19937", keys, numpy_numbers[-2], numpy_numbers[-1], kept[1]))  # noqa: NPY002
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def seed(number: int) -> None:
    """Seed all generators.

    Example:
        >>> seed(3)
        >>> first = torch.rand(1), random.random(), np.random.rand()
        >>> seed(3)
        >>> (torch.rand(1), random.random(), np.random.rand()) == first
        True
    """
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
