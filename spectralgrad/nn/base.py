"""What every spectral layer shares: a method that can be changed while it lives, and a place to watch it from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..dispatch.overrides import refuse_script
from ..errors import ShapeError
from ..rules import Method, resolve

GradientWatcher = Callable[[Tensor], None]
Watcher = Callable[["SpectralModule", Tensor], GradientWatcher | None]


class SpectralModule(nn.Module):
    """Base of the layers that decompose a matrix.

    Args:
        method: a name or a :class:`Method` that serves the layer's ``operation``.

    Attributes:
        operation: what the method must serve, one of the words of ``methods(operation)``.
        name: where the layer stands in its network, if known; errors name it.
        method: the method in use; assigning a name or an object changes it on the live layer.

    Example:
        >>> layer = SpectralModule("exact")
        >>> layer.method = "newton-schulz"
        >>> layer.method.name
        'newton-schulz'
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
    def _where(self) -> str:
        """The layer as errors name it."""
        kind = type(self).__name__
        return f"{kind} '{self.name}'" if self.name else kind

    def _check_compute_dtype(self) -> None:
        kind = self.compute_dtype
        if kind not in (None, torch.float32, torch.float64):
            raise ShapeError(f"{self._where}: expected compute_dtype torch.float32 or torch.float64, got {kind}")

    def _shown(self, matrices: Tensor, told: list[GradientWatcher | None]) -> Tensor:
        """The matrices, shown to the hooks if this is a training step and ``told`` is still empty.

        ``told`` belongs to one step: a backward pass that computes the matrices again does not show them again.
        """
        if self.training and self._watchers:
            if not told:
                told.append(self._watched(matrices))
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

    def _watched(self, matrices: Tensor) -> GradientWatcher | None:
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
