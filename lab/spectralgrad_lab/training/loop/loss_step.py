"""One step down a loss, over all processes; a loss or gradient that is not finite is explained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer

from ..processes.agreed_sums import agreed_sums
from ..processes.process_group import Group
from .failures import NUMERICAL, FailureWatch, total_norm


def descend(
    loss: Tensor,
    optimizer: Optimizer,
    trained: Sequence[Parameter],
    watch: FailureWatch,
    *,
    group: Group | None = None,
    clip: float | None = None,
    timing: AbstractContextManager[None] | None = None,
) -> None:
    """Backward pass and optimizer step.

    Args:
        loss: a scalar.
        optimizer: of the parameters.
        trained: the parameters whose gradients are averaged, checked and clipped.
        watch: attached to the network.
        group: average the gradients over these processes (default: DistributedDataParallel does it, or there is one).
        clip: largest norm of the gradient (default: any).
        timing: context of the backward pass.

    Raises:
        DivergedError: the gradient is not finite, or a layer cannot compute it.
    """
    optimizer.zero_grad(set_to_none=True)
    try:
        with timing or nullcontext():
            loss.backward()  # type: ignore[no-untyped-call]
    except NUMERICAL as problem:
        raise watch.explain_error(problem) from None
    if group is not None:
        average_gradients(trained, group)
    norm = total_norm(p.grad for p in trained)
    if not bool(torch.isfinite(norm)):
        raise watch.explain_gradient()
    if clip is not None:
        torch.nn.utils.clip_grads_with_norm_(trained, clip, norm)
    optimizer.step()


def average_gradients(trained: Sequence[Parameter], group: Group) -> None:
    """Replace gradients by their means over all processes, in one exchange.

    Example:
        >>> weight = Parameter(torch.ones(2))
        >>> weight.grad = torch.ones(2)
        >>> average_gradients([weight], Group())
        >>> weight.grad
        tensor([1., 1.])
    """
    gradients = [p.grad for p in trained if p.grad is not None]
    if group.world == 1 or not gradients:
        return
    together = parameters_to_vector(gradients)
    dist.all_reduce(together, group=group.process_group)
    vector_to_parameters(together / group.world, gradients)


class Learner:
    """Minimizes a weighted sum of losses, over all processes.

    Every process computes the losses of its share of a batch; shares must have equal sizes, so that the mean over the
    processes equals the mean over the whole batch in one process. There is no DistributedDataParallel, so a step may
    run parts of the network in any order and any number of times.

    Args:
        net: the network; only parameters that require gradients when this is created are trained.
        optimizer: of its parameters.
        weights: the names of the losses and their weights.
        group: the processes that train together.
        watch: attached to a larger network that ``net`` is part of (default: attached to ``net``).

    Example:
        >>> net = nn.Linear(1, 1)
        >>> learner = Learner(net, torch.optim.SGD(net.parameters(), 0.1), {"error": 1.0, "size": 0.1})
        >>> x = torch.ones(4, 1)
        >>> def losses():
        ...     return {"error": (net(x) - 3).square().mean(), "size": net.weight.square().sum()}
        >>> before = learner(losses)
        >>> learner(losses)["error"] < before["error"]
        True
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Optimizer,
        weights: Mapping[str, float],
        group: Group | None = None,
        watch: FailureWatch | None = None,
    ) -> None:
        self.optimizer, self.weights, self.group = optimizer, dict(weights), group or Group()
        self.watch = watch or FailureWatch(net)
        self._trained = [p for p in net.parameters() if p.requires_grad]

    def __call__(self, losses: Callable[[], Mapping[str, Tensor]]) -> dict[str, float]:
        """Take one step.

        Args:
            losses: computes the losses of this process's share: scalars with the names of ``weights``.

        Returns:
            the losses before the step, averaged over all processes.

        Raises:
            DivergedError: the step failed in this process; other processes may still be in it.
        """
        trouble = None
        found: Mapping[str, Tensor] = {}
        try:
            found = losses()
        except NUMERICAL as problem:
            trouble = self.watch.explain_error(problem)
        here = [float(found[name].detach()) if found else math.nan for name in self.weights]
        means = [value / self.group.world for value in agreed_sums(self.group, trouble, here)]
        if not all(map(math.isfinite, means)):
            raise self.watch.explain_loss(losses)
        total = torch.stack([weight * found[name] for name, weight in self.weights.items()]).sum()
        descend(total, self.optimizer, self._trained, self.watch, group=self.group)
        return dict(zip(self.weights, means, strict=True))
