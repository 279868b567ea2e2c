"""Read the state of an optimizer from a checkpoint, checked against the optimizer that will use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ... import untrusted_json
from .saved_state import reader_like

Moments = Mapping[str, Callable[[Tensor], untrusted_json.Reader]]


def _count(parameter: Tensor) -> untrusted_json.Reader:
    return reader_like(torch.zeros(()))


SGD_MOMENTS: Moments = {"momentum_buffer": reader_like}
ADAM_MOMENTS: Moments = {"step": _count, "exp_avg": reader_like, "exp_avg_sq": reader_like}


def optimizer_reader(optimizer: Optimizer, moments: Moments) -> untrusted_json.Reader:
    """A reader of the optimizer's ``state_dict()``.

    Args:
        optimizer: that the state must fit.
        moments: what it keeps for each parameter: readers by name, made from the parameter.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)])
        >>> read = optimizer_reader(optimizer, SGD_MOMENTS)
        >>> sorted(read(optimizer.state_dict(), "optimizer"))
        ['param_groups', 'state']
    """
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of_parameter = {
        str(i): untrusted_json.record({name: untrusted_json.optional(like(p)) for name, like in moments.items()})
        for i, p in enumerate(trained)
    }
    groups = reader_like(optimizer.state_dict()["param_groups"])
    return untrusted_json.record({"state": untrusted_json.record({}, of_parameter), "param_groups": groups})


def restore_optimizer(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Load a state that :func:`optimizer_reader` has read."""
    moments = {int(index): values for index, values in saved["state"].items()}
    optimizer.load_state_dict({**saved, "state": moments})
    # The process that saved has called optimizer.step(); without this flag a scheduler warns that it was not.
    optimizer._opt_called = True  # type: ignore[attr-defined]
