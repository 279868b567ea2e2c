"""Find out why a run cannot continue, and which layer caused it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from spectralgrad.errors import IndefiniteError, NonFiniteError, SolverError
from spectralgrad.nn import SpectralModule, spectral_layers

from ..storage.records import Epoch

NUMERICAL = (NonFiniteError, IndefiniteError, SolverError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]
_CHANCE = 0.99  # a training loss below this share of ln(classes) counts as progress
_MINIMUM_STEPS = 100  # in fewer steps than this, few networks have learned anything


class DivergedError(Exception):
    """A training step failed: the reason, the layer, and the eigenvalues there."""

    def __init__(self, reason: str, layer: str | None = None, spectrum: tuple[float, ...] = ()) -> None:
        self.reason, self.layer, self.spectrum = reason, layer, spectrum
        super().__init__(reason)


class FailureWatch:
    """Remember which matrices the spectral layers decomposed last, and which layer is running.

    A step costs two references per layer; eigenvalues are computed only after a failure.

    Example:
        >>> from spectralgrad.nn import DecorrelatedBatchNorm2d
        >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), DecorrelatedBatchNorm2d(4, method="svd"))
        >>> watch = FailureWatch(net)
        >>> _ = nn.init.zeros_(net[0].weight)                             # every eigenvalue is ε: ties
        >>> (net(torch.randn(8, 1, 5, 5)) * torch.randn(8, 4, 5, 5)).sum().backward()
        >>> print(watch.explain_gradient())
        the gradient is not finite
        >>> watch.explain_gradient().layer
        '1'
    """

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self._at_work: list[str] = []
        self._seen: dict[str, list[Tensor]] = {}
        self._gradients: dict[str, Tensor] = {}
        for name, layer in spectral_layers(net).items():
            layer.register_spectral_hook(self._remember(name))
            layer.register_forward_pre_hook(lambda *_, name=name: self._at_work.append(name))
            layer.register_forward_hook(lambda *_: self._leave())

    def _remember(self, name: str) -> Callable[[SpectralModule, Tensor], Callable[[Tensor], None]]:
        def see(_: SpectralModule, matrices: Tensor) -> Callable[[Tensor], None]:
            self._seen[name] = [*self._seen.get(name, [])[-1:], matrices]
            self._gradients.pop(name, None)
            return lambda gradient: self._gradients.__setitem__(name, gradient)

        return see

    def _leave(self) -> None:
        self._at_work.pop()

    def explain_error(self, problem: BaseException) -> DivergedError:
        """The failure that an error raised in a layer amounts to."""
        layer = self._at_work[0] if self._at_work else None
        self._at_work.clear()
        first = str(problem).strip().splitlines()[0]
        if isinstance(problem, SolverError) and bool(torch.isfinite(problem.matrix).all()):
            return DivergedError(first, layer, _eigenvalues(problem.matrix))
        return DivergedError(first, layer, self.spectrum(layer))

    def explain_loss(self, run: Callable[[], Any]) -> DivergedError:
        """Run the same batch again to find the first layer whose output is not finite."""
        guilty: list[str] = []

        def look(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, _: Any, output: Any) -> None:
                if isinstance(output, Tensor) and not guilty and not bool(torch.isfinite(output).all()):
                    guilty.append(name)

            return hook

        leaves = [(name, m) for name, m in self._net.named_modules() if not any(m.children())]
        handles = [module.register_forward_hook(look(name)) for name, module in leaves]
        try:
            with torch.no_grad():
                run()
        except NUMERICAL as problem:
            return self.explain_error(problem)
        finally:
            for handle in handles:
                handle.remove()
        layer = guilty[0] if guilty else None
        return DivergedError("the loss is not finite", layer, self.spectrum(layer))

    def explain_gradient(self) -> DivergedError:
        """Find the layer closest to the loss whose gradient is not finite.

        A spectral layer is the cause if the gradient of its matrices is not finite but the gradients of all parameters
        after it are.
        """
        order = {name: i for i, (name, _) in enumerate(self._net.named_modules())}
        bad = [name.rpartition(".")[0] for name, p in self._net.named_parameters() if not _is_finite(p.grad)]
        spectral = [name for name, gradient in self._gradients.items() if not _is_finite(gradient)]
        layer = max([*bad, *spectral], key=lambda name: order.get(name, -1), default=None)
        return DivergedError("the gradient is not finite", layer, self.spectrum(layer))

    def spectrum(self, layer: str | None) -> tuple[float, ...]:
        """Eigenvalues of a layer's latest finite matrix: the one whose gradient is not finite, or the worst one."""
        newest = True
        for matrices in reversed(self._seen.get(layer or "", [])):
            flat = matrices.reshape(-1, *matrices.shape[-2:])
            finite = torch.isfinite(flat).all(-1).all(-1)
            if bool(finite.any()):
                gradient = self._gradients.get(layer or "") if newest else None
                return _eigenvalues(flat[_matrix_to_show(flat, finite, gradient)])
            newest = False
        return ()


class Patience:
    """Stopping rule: a run has failed if its training loss stays no better than guessing.

    Args:
        classes: number of classes; guessing has loss ln(classes).
        epochs: number of latest epochs that must all be no better; 0 disables the rule.

    Example:
        >>> rule = Patience(10, 2)
        >>> epochs = [Epoch(i, 0.1, 2.31, 90.0, 2.3, 90.0, 1.0, 1.0, 1.0) for i in range(2)]
        >>> rule.exhausted(epochs, steps=200)
        True
        >>> rule.exhausted(epochs[:1], steps=200)
        False
    """

    def __init__(self, classes: int, epochs: int) -> None:
        self.limit, self.epochs = _CHANCE * math.log(max(classes, 2)), epochs

    def exhausted(self, epochs: list[Epoch], steps: int) -> bool:
        """True if the run has failed."""
        latest = epochs[-self.epochs :] if self.epochs else []
        enough = 0 < self.epochs == len(latest) and steps >= _MINIMUM_STEPS
        return enough and all(epoch.train_loss >= self.limit for epoch in latest)

    @property
    def reason(self) -> str:
        """The reason to record."""
        return f"the loss does not fall: {self.epochs} epochs at or above {self.limit:.3f}, 99 % of a guess's loss"


def total_norm(tensors: Iterable[Tensor | None]) -> Tensor:
    """The norm of all tensors together; finite exactly if all of them are."""
    return torch.nn.utils.get_total_norm([t for t in tensors if t is not None])


def _is_finite(tensor: Tensor | None) -> bool:
    return tensor is None or bool(torch.isfinite(tensor).all())


def _matrix_to_show(flat: Tensor, finite: Tensor, gradient: Tensor | None) -> int:
    if gradient is not None and gradient.shape[-2:] == flat.shape[-2:]:
        lost = ~torch.isfinite(gradient.reshape(flat.shape)).all(-1).all(-1) & finite
        if bool(lost.any()):
            return int(lost.nonzero()[0])
    candidates = finite.nonzero()[:, 0]
    w = torch.linalg.eigvalsh(flat[candidates].double())
    condition = w.abs().amax(-1) / w.abs().amin(-1)
    return int(candidates[condition.nan_to_num(nan=0.0).argmax()])


def _eigenvalues(matrix: Tensor) -> tuple[float, ...]:
    return tuple(torch.linalg.eigvalsh(matrix.detach().cpu().double()).tolist())
