"""What every spectral layer shares: a method that can be changed while it lives, and a place to watch it from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..dispatch.overrides import refuse_script
from ..errors import ArgumentError, SpectralError
from ..rules import Method, resolve
from .functional.whitening_matrices import check_finite

GradientWatcher = Callable[[Tensor], None]
Watcher = Callable[["SpectralModule", Tensor], GradientWatcher | None]


class SpectralModule(nn.Module):
    """Base of the layers that decompose a matrix, and of your own.

    A layer of your own says which ``operation`` its method must serve, passes the matrices it decomposes through
    :meth:`watched`, and passes :attr:`method` on. Then :class:`spectralgrad.diagnostics.Monitor` records it,
    :class:`spectralgrad.training.HybridSwitch` switches its method, and errors name it.

    Args:
        method: a name or a :class:`Method` that serves the layer's ``operation``.

    Attributes:
        operation: what the method must serve, one of the words of ``methods(operation)``.
        name: where the layer stands in its network, if known; errors name it.
        method: the method in use; assigning a name or an object changes it on the live layer.

    Example:
        >>> import spectralgrad as sg
        >>> class Whitening(sg.nn.SpectralModule):
        ...     operation = "inv_sqrt"
        ...     def __init__(self, features, eps=1e-3, method="exact"):
        ...         super().__init__(method)
        ...         self.features, self.eps = features, eps
        ...     def forward(self, x):                                       # (N, features)
        ...         if x.shape[-1] != self.features:
        ...             raise sg.ShapeError(f"{self.where}: expected {self.features} features, got {x.shape[-1]}")
        ...         C = self.watched(sg.covariance(x.mT, eps=self.eps))     # what is decomposed
        ...         return (x - x.mean(0)) @ sg.matrix_inv_sqrt(C, method=self.method)
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 4), Whitening(4), torch.nn.Linear(4, 2))
        >>> with sg.diagnostics.Monitor(net, every=1) as monitor:
        ...     net(torch.randn(32, 8)).square().sum().backward()
        >>> monitor.records[0].layer, monitor.records[0].rank
        ('1', 4)
        >>> switch = sg.training.HybridSwitch(net, method="svd-pade", decay_epoch=5)
        >>> net[1].method.name
        'newton-schulz'
        >>> net[1].name = "whitening"
        >>> net[1].where
        "Whitening 'whitening'"
    """

    operation: str = "inv_sqrt"
    compute_dtype: torch.dtype | None = None

    def __init__(self, method: str | Method = "exact") -> None:
        super().__init__()
        self.name: str | None = None
        self._method = self._resolved(method)
        self._watchers: OrderedDict[int, Watcher] = OrderedDict()

    @property
    def method(self) -> Method:
        return self._method

    @method.setter
    def method(self, method: str | Method) -> None:
        self._method = self._resolved(method)
        self._settings_changed()

    def __prepare_scriptable__(self) -> None:
        refuse_script(type(self).__name__)

    def _resolved(self, method: str | Method) -> Method:
        """The method object, if it serves this layer."""
        return resolve(method, self.operation)

    def _settings_changed(self) -> None:
        """For layers that keep something made by the method."""

    @property
    def where(self) -> str:
        """The layer as errors name it: its kind and, if known, its :attr:`name`."""
        kind = type(self).__name__
        return f"{kind} '{self.name}'" if self.name else kind

    def _check_compute_dtype(self) -> None:
        kind = self.compute_dtype
        if kind not in (None, torch.float32, torch.float64):
            raise ArgumentError(f"{self.where}: expected compute_dtype torch.float32 or torch.float64, got {kind}")

    def watched(self, matrices: Tensor) -> Tensor:
        """The matrices (*, d, d) that a forward pass decomposes, shown to the hooks if this is a training step.

        Call it once in each forward pass and decompose what it returns.

        Raises:
            NonFiniteError: they hold NaN or infinity; the message names the layer.
        """
        matrices = self._shown(matrices, [])
        check_finite(matrices, self.where)
        return matrices

    def _shown(self, matrices: Tensor, told: list[GradientWatcher | None]) -> Tensor:
        """The matrices, shown to the hooks if this is a training step and ``told`` is still empty.

        ``told`` belongs to one step: a backward pass that computes the matrices again does not show them again.
        """
        if self.training and self._watchers:
            if not told:
                told.append(self._hooks_called(matrices))
            if told[0] is not None and matrices.requires_grad:
                matrices.register_hook(told[0])
        return matrices

    def register_spectral_hook(self, hook: Watcher) -> RemovableHandle:
        """Call ``hook(layer, matrices)`` with the detached matrices (*, d, d) that each training step decomposes.

        If the hook returns a function, the backward pass calls it with the gradient of those matrices. Hooks are
        not copied or saved with the layer.
        """
        handle = RemovableHandle(self._watchers)
        self._watchers[handle.id] = hook
        return handle

    def _hooks_called(self, matrices: Tensor) -> GradientWatcher | None:
        """Show the matrices to the hooks; what to call with their gradient, if anybody wants it."""
        wanted = [f for hook in tuple(self._watchers.values()) if (f := hook(self, matrices.detach())) is not None]
        if not wanted:
            return None

        def tell(gradient: Tensor) -> None:
            for f in wanted:
                f(gradient.detach())

        return tell

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watchers": OrderedDict()}


def spectral_layers(model: nn.Module, *, required_by: str | None = None) -> dict[str, SpectralModule]:
    """The spectral layers of a model by name, in the order of ``model.named_modules()``.

    A layer that is used in several places is listed once, with the first of its names.

    Args:
        model: any module; a spectral layer itself is listed with the empty name.
        required_by: who asks, for the error message if there are none; without it the result may be empty.

    Returns:
        name → layer.

    Raises:
        SpectralError: ``required_by`` is given and the model has no spectral layer.

    Example:
        >>> import spectralgrad as sg
        >>> white, pool = sg.nn.DecorrelatedBatchNorm2d(8), sg.nn.CovariancePooling(8)
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), white, pool)
        >>> {name: type(layer).__name__ for name, layer in sg.nn.spectral_layers(net).items()}
        {'1': 'DecorrelatedBatchNorm2d', '2': 'CovariancePooling'}
    """
    found = {name: module for name, module in model.named_modules() if isinstance(module, SpectralModule)}
    if required_by is not None and not found:
        raise SpectralError(f"{required_by}: {type(model).__name__} holds no spectral layer")
    return found
