"""The optimal learning rate (OLR) as a treatment for any optimiser."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..dispatch.arguments import checked
from ..precision import widen, widest
from .nearest_gradient import NearestOrthogonalGradient
from .optimal_rates import rate_of
from .parameters import Chosen, Target
from .step_hook import ConditioningWarning, Treatment, treatments

__all__ = ["OptimalLearningRate"]

_ONE_ONLY = (
    "OptimalLearningRate: {have} orthogonal and {lack} not. Eq. 20 then follows the ratio ‖W‖/‖G‖ with one of the two "
    "norms fixed. ECCV 2022 finds that η* attenuates and reports a larger error than for OLR alone (Table 3: 19.77 % "
    "with NOG, 20.61 % with OW, compared with 19.50 %; 19.05 % with both). {advice}"
)
_ADVICE = {  # (the gradient is orthogonal, the weight is orthogonal) → the words of the warning
    (True, False): {
        "have": "the gradient is",
        "lack": "the weight is",
        "advice": "Use an orthogonal weight as well, and pass the layer, not its weight, so that it is recognised.",
    },
    (False, True): {
        "have": "the weight is",
        "lack": "the gradient is",
        "advice": "Add NearestOrthogonalGradient for the same parameter.",
    },
}

_GONE = {"lr": 0.0}  # stands for the group of a parameter that has been removed from the optimiser


class OptimalLearningRate(Treatment):
    r"""Use a learning rate for chosen parameters that is meant to keep the weight orthogonal (OLR).

    At every step a rate η* is computed for each parameter. If :math:`0<\eta^\star<\mathrm{lr}`, where lr is the
    learning rate of the parameter's group (as set by a scheduler), the parameter moves only part of the way to the
    value that the optimiser proposes:

    .. math:: W\leftarrow W+\frac{\eta^\star}{\mathrm{lr}}\,(W_{\text{proposed}}-W) .

    For every optimiser whose step is proportional to the rate (SGD, Adam, AdamW, NAdam, RMSprop, Adagrad, Muon, ...,
    with momentum and weight decay), this is a step with rate η*. For the others (Adafactor, ASGD, Rprop) it is a
    shorter step. Other parameters, the optimiser's state and its parameter groups do not change.

    Args:
        optimizer: any torch optimiser except LBFGS.
        parameters: a layer, a parameter, an iterable of these, or the result of :func:`pre_spectral_layers`. For a
            layer, its weight is treated; for a parametrised weight, the tensor from which it is computed.
        objective: ``"paper"`` for Eq. 20, or ``"exact"`` for the true minimiser of Eq. 18; see :func:`optimal_rate`.
        direction: what G is. ``"gradient"``: the gradient, as in the paper, regardless of the optimiser. ``"update"``:
            what the step subtracts divided by the rate, including momentum, weight decay and preconditioning.

    Attributes:
        rates: the rate of each parameter at the last step, in order; None before the first step.

    Raises:
        SpectralError: a parameter is not in the optimiser or is already treated, or the optimiser is not supported.
        ShapeError: a parameter has fewer than two dimensions.
        ArgumentError: ``objective`` or ``direction`` is unknown.

    Warns:
        ConditioningWarning: at the first step, if only one of weight and gradient is orthogonal.

    Example:
        >>> layer = torch.nn.Linear(3, 3, bias=False)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        >>> olr = OptimalLearningRate(optimizer, layer)
        >>> layer.weight.grad = 2 * layer.weight.detach()
        >>> before = layer.weight.detach().clone()
        >>> optimizer.step()
        >>> olr.rates                                        # 1/6: W becomes 2/3 W
        [0.16666666666666666]
        >>> torch.allclose(layer.weight, before * 2 / 3)
        True

    Reference: Song, Sebe and Wang, ECCV 2022, section 5.2 (Eq. 21 omits the condition η* > 0).
    """

    order: ClassVar[int] = 1

    @checked
    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Chosen,
        *,
        objective: Literal["paper", "exact"] = "paper",
        direction: Literal["gradient", "update"] = "gradient",
    ) -> None:
        self.objective, self.direction = objective, direction
        self._found: dict[int, Tensor] = {}
        self._before: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._warned = False
        super().__init__(optimizer, parameters)

    @property
    def rates(self) -> list[float | None]:
        return [float(self._found[i]) if i in self._found else None for i in range(len(self.targets))]

    def before(self, optimizer: Optimizer) -> None:
        """Store the weights, and compute the rates from the gradients that the optimiser is about to use."""
        if not self._warned:
            self._warned = True
            self._warn(optimizer)
        self._before.clear()
        for i, (target, group) in enumerate(self._grouped(optimizer)):
            W, G = target.parameter, target.parameter.grad
            if G is None:
                continue
            wanted = None
            if self.direction == "gradient":
                wanted = -G if group.get("maximize") else G
                scale = getattr(optimizer, "grad_scale", None)
                wanted = rate_of(W, wanted if scale is None else wanted / scale, self.objective, float(group["lr"]))
            self._before[i] = (W.clone(memory_format=torch.preserve_format), wanted)

    def after(self, optimizer: Optimizer) -> None:
        """Shorten the step to the rate η*."""
        for i, (target, group) in enumerate(self._grouped(optimizer)):
            old, rate = self._before.pop(i, (None, None))
            limit = float(group["lr"])
            if old is None or limit <= 0:
                continue
            W = target.parameter
            if rate is None:
                taken = (old.to(widest(old)) - W.to(widest(W))) / limit
                rate = rate_of(old, taken, self.objective, limit)
            self._found[i] = rate
            # On an accelerator the rate is not read, which would synchronise; at rate = limit lerp returns W.
            if rate.device.type != "cpu" or float(rate) < limit:
                W.copy_(torch.lerp(widen(old), widen(W), (rate / limit).to(widen(W).dtype)))

    def _grouped(self, optimizer: Optimizer) -> list[tuple[Target, dict[str, Any]]]:
        home = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        return [(target, home.get(id(target.parameter), _GONE)) for target in self.targets]

    def _warn(self, optimizer: Optimizer) -> None:
        others = [t for t in treatments(optimizer) if isinstance(t, NearestOrthogonalGradient)]
        treated = {id(target.parameter) for other in others for target in other.targets}
        orthogonal = {id(target.parameter) for t in (self, *others) for target in t.targets if target.orthogonal}
        kinds = {(id(t.parameter) in treated, id(t.parameter) in orthogonal) for t in self.targets}
        for kind, words in _ADVICE.items():
            if kind in kinds:
                warnings.warn(_ONE_ONLY.format(**words), ConditioningWarning, stacklevel=2)
