"""Base class of the spectral layers: a gradient method that can be changed at any time, and hooks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..dispatch.arguments import checked
from ..dispatch.finite import check_finite
from ..dispatch.overrides import refuse_script
from ..errors import ArgumentError, SpectralError
from ..rules import Defaults, Method, resolve

__all__ = ["SpectralModule", "spectral_layers"]

GradientWatcher = Callable[[Tensor], None]
Watcher = Callable[["SpectralModule", Tensor], GradientWatcher | None]


class Watch:
    """Passes matrices through and shows them to the spectral hooks of a training layer, once in a forward pass.

    Make one for each forward pass. A backward pass that computes the matrices again calls the same object, which then
    only attaches the gradient hooks to the new tensor.
    """

    def __init__(self, layer: SpectralModule) -> None:
        self._layer = layer
        self._shown = False
        self._gradient_watcher: GradientWatcher | None = None

    def __call__(self, matrices: Tensor) -> Tensor:
        if self._layer.training and self._layer.has_spectral_hooks:
            if not self._shown:
                self._shown, self._gradient_watcher = True, self._layer._call_hooks(matrices)
            if self._gradient_watcher is not None and matrices.requires_grad:
                matrices.register_hook(self._gradient_watcher)
        return matrices


class SpectralModule(nn.Module):
    """Base class of layers that decompose a matrix, including your own.

    Subclass it, set ``operation`` to what the layer computes, pass the matrices it decomposes through :meth:`watched`
    and use :attr:`method` in the call that decomposes them. :class:`spectralgrad.diagnostics.Monitor` then records the
    layer, :class:`spectralgrad.training.HybridSwitch` switches its method, and errors contain its name.

    Args:
        method: a name or a :class:`Method` that supports the layer's ``operation``.

    Attributes:
        operation: the operation the method must support, as in ``methods(operation)``.
        name: the layer's name within its network, if known; used in errors.
        method: the current method. Assign a name or an object to change it.

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
        ...         C = self.watched(sg.covariance(x.mT, eps=self.eps))     # the matrix to decompose
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

    @checked
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
        """The method object; raises an error if it does not support this layer's operation."""
        return resolve(method, self.operation, self.method_defaults())

    def method_defaults(self) -> Defaults:
        """Parameters that a method given by name takes from this layer, by the method's name."""
        return {}

    def _method_text(self) -> str:
        """The method as a string that gives the same method when passed to this layer."""
        return self._method.spelled(self.method_defaults().get(self._method.name))

    def _settings_changed(self) -> None:
        """Called when the method changes; layers that cache a result override it."""

    @property
    def where(self) -> str:
        """The layer's class and, if known, its :attr:`name`, for use in error messages."""
        kind = type(self).__name__
        return f"{kind} '{self.name}'" if self.name else kind

    def _check_compute_dtype(self) -> None:
        kind = self.compute_dtype
        if kind not in (None, torch.float32, torch.float64):
            raise ArgumentError(f"{self.where}: expected compute_dtype torch.float32 or torch.float64, got {kind}")

    def shown(self, matrices: Tensor) -> Tensor:
        """Show the matrices (*, d, d) to the registered hooks if the layer is training, and return them.

        It is the ``watch`` of functions that also take ``where``, whose errors name the layer.
        """
        return Watch(self)(matrices)

    def watched(self, matrices: Tensor) -> Tensor:
        """Show the matrices (*, d, d) to the registered hooks if the layer is training, check and return them.

        Call it once in each forward pass and decompose the result, with any function: not all of them refuse NaN.

        Raises:
            NonFiniteError: the matrices contain NaN or infinity; the message names the layer.
        """
        matrices = self.shown(matrices)
        check_finite(matrices, self.where)
        return matrices

    @property
    def has_spectral_hooks(self) -> bool:
        """Whether any hook is registered."""
        return bool(self._watchers)

    def register_spectral_hook(self, hook: Watcher) -> RemovableHandle:
        """Register ``hook(layer, matrices)``, called with the detached matrices (*, d, d) of every training step.

        If the hook returns a function, the backward pass calls that function with the gradient of the matrices. Hooks
        are not copied or saved with the layer.
        """
        if not callable(hook):
            raise ArgumentError(f"{self.where}: expected hook to be a function, got {hook!r}")
        handle = RemovableHandle(self._watchers)
        self._watchers[handle.id] = hook
        return handle

    def _call_hooks(self, matrices: Tensor) -> GradientWatcher | None:
        """Call every hook; return the function to call with the gradient, or None if no hook asked for it."""
        wanted = [f for hook in tuple(self._watchers.values()) if (f := hook(self, matrices.detach())) is not None]
        if not wanted:
            return None

        def tell(gradient: Tensor) -> None:
            for f in wanted:
                f(gradient.detach())

        return tell

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watchers": OrderedDict()}


@checked
def spectral_layers(model: nn.Module, *, required_by: str | None = None) -> dict[str, SpectralModule]:
    """The spectral layers of a model by name, in the order of ``model.named_modules()``.

    A layer that is used in several places is listed once, with the first of its names.

    Args:
        model: any module; a spectral layer itself is listed with the empty name.
        required_by: name used in the error message if there are none; if None, the result may be empty.

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
        raise SpectralError(
            f"{required_by}: expected a model with a spectral layer (SpectralModule), got {type(model).__name__} "
            "without one"
        )
    return found
