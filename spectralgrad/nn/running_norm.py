r"""Base of the whitening and denoising layers: running statistics, and :math:`y=\gamma\circ W(C)(x-\mu)+\beta`.

In training μ and C are computed from the batch. In evaluation they are the running averages, and W is computed once,
when the layer is switched to evaluation or loads a state, and kept. It is not a buffer, so the state dict is the same
in training and in evaluation.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ..dispatch import function, status
from ..dispatch.arguments import check_count, check_range
from ..errors import ArgumentError, ShapeError, SpectralError, check_features
from ..precision import working_dtype
from ..rules import Defaults, Method
from .base import SpectralModule, Watch
from .distributed import Reduce, reducer
from .functional.affine_map import apply_matrix
from .functional.normalization import Normalized, normalize
from .functional.whitening_matrices import positive_part

if TYPE_CHECKING:
    from typing_extensions import Self

Statistics = Literal["covariance", "whitening"]
AVERAGED = {"covariance": "running_cov", "whitening": "running_whitening", "projector": "running_projector"}
"""The buffers of averaged matrices, by what is averaged."""


class RunningNorm(SpectralModule):
    """Base of the layers that normalise a batch by a matrix; subclasses define :meth:`matrix` and the input shapes."""

    num_features: int
    momentum: float | None
    affine: bool
    track_running_stats: bool
    groups: int
    statistics: str
    init: str
    sync: bool
    process_group: Any
    compute_dtype: torch.dtype | None

    _dims: tuple[int, ...] = ()

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor | None
    running_cov: Tensor | None
    running_whitening: Tensor | None
    running_projector: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _kept_for: Tensor | None
    _kept: Tensor | None
    _kept_eps: float

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        *,
        bias: bool,
        groups: int,
        method: str | Method,
        statistics: str,
        init: str,
        compute_dtype: torch.dtype | None,
        sync: bool,
        process_group: Any,
    ) -> None:
        self.eps = eps  # the method may take it
        super().__init__(method)
        self.num_features, self.momentum = num_features, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.groups, self.statistics, self.init = groups, statistics, init
        self.sync, self.process_group, self.compute_dtype = sync, process_group, compute_dtype
        self._check_settings()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, nn.Parameter(torch.empty(num_features, **factory)) if wanted else None)
        self._register_statistics(factory)
        self.reset_parameters()

    def method_defaults(self) -> Defaults:
        """Algorithm 1 of the papers has a single ε: power iteration stops at the one that the layer adds."""
        return {name: {"eps": self.eps} for name in ("svd-pi", "pi")}

    def _check_settings(self) -> None:
        check_count(self.num_features, "num_features", self.where)
        check_count(self.groups, "groups", self.where)
        if self.num_features % self.groups:
            raise ArgumentError(
                f"{self.where}: expected a number of groups that divides the {self.num_features} channels, "
                f"got groups={self.groups}"
            )
        check_range(self.eps, "eps", self.where, 0)
        check_range(self.momentum, "momentum", self.where, 0, 1, ends="[]")
        self._check_compute_dtype()

    def _register_statistics(self, factory: dict[str, Any]) -> None:
        """Register the buffers. Those that are None come last, because torch.export counts them as inputs."""
        shapes = self._shapes() if self.track_running_stats else {}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.empty(shape, **factory))
        if shapes:
            self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long, device=factory["device"]))
        for name in ("running_mean", *AVERAGED.values(), "running_var", "num_batches_tracked"):
            if name not in self._buffers:
                self.register_buffer(name, None)
        self._kept = self._kept_for = None

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the averaged statistics, by the name of their buffers."""
        d = self.num_features // self.groups
        return {"running_mean": (self.num_features,), AVERAGED[self.statistics]: (self.groups, d, d)}

    def reset_running_stats(self) -> None:
        """Reset mean and batch counter to zero, and the covariance (or whitening matrix) to the identity."""
        if self.running_mean is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.num_batches_tracked.zero_()
            averaged = self._averaged
            averaged.copy_(torch.eye(averaged.shape[-1], dtype=averaged.dtype, device=averaged.device))
            self._settings_changed()

    def reset_parameters(self) -> None:
        """Reset the statistics; set the bias to zero and the weight to one, or to uniform values in [0, 1]."""
        self.reset_running_stats()
        if self.weight is not None:
            nn.init.ones_(self.weight) if self.init == "ones" else nn.init.uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def _averaged(self) -> Tensor:
        averaged = getattr(self, AVERAGED[self.statistics])
        assert isinstance(averaged, Tensor)
        return averaged

    def matrix(self, C: Tensor, watch: Watch | None = None, eps: float | Tensor | None = None) -> Tensor:
        """W (G, d, d) as a differentiable function of covariances (G, d, d); ``watch`` sees what is decomposed.

        ``eps`` (G, 1, 1) replaces the layer's ε for features that were divided by a power of two.
        """
        raise NotImplementedError

    def forward(self, X: Tensor) -> Tensor:
        reduce = reducer(self.sync and self.training, self.process_group)
        self._check_input(X, alone=reduce is None)
        if self.training or self.running_mean is None:
            return self._by_batch(X, reduce)
        return apply_matrix(X, self.running_mean, self.evaluation_matrix(), self.weight, self.bias, self.compute_dtype)

    def _by_batch(self, X: Tensor, reduce: Reduce | None) -> Tensor:
        watch, options = Watch(self), {"groups": self.groups, "dtype": self.compute_dtype, "reduce": reduce}

        def matrix_of(C: Tensor, eps: Tensor | None = None) -> Tensor:
            return self.matrix(C, watch, eps)

        eps = None if self.method.unscaled else self.eps
        result = normalize(X, matrix_of, self.weight, self.bias, eps=eps, **options)  # type: ignore[arg-type]
        if self.training and self.track_running_stats:
            self._update(result)
        return result.output

    @torch.no_grad()
    def _update(self, batch: Normalized) -> None:
        """Update the running statistics."""
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        rate = 1 / self.num_batches_tracked.to(batch.mean.dtype) if self.momentum is None else self.momentum
        for name, new in self._contribution(batch, batch.size / (batch.size - 1).clamp_min(1)).items():
            running = getattr(self, name)
            running.copy_((1 - rate) * running.to(new.dtype) + rate * new)

    def _contribution(self, batch: Normalized, unbiased: Tensor) -> dict[str, Tensor]:
        """What a batch contributes to each buffer; times ``unbiased``, the covariance is like torch's running variance.

        ``unbiased`` is n/(n − 1).
        """
        matrix = batch.matrix if self.statistics == "whitening" else batch.covariance * unbiased
        return {"running_mean": batch.mean, AVERAGED[self.statistics]: matrix}

    def evaluation_matrix(self) -> Tensor:
        """The matrix W (G, d, d) that evaluation applies."""
        if self.running_whitening is not None:
            return self.running_whitening
        if self.running_cov is None:
            raise ArgumentError(
                f"{self.where}: expected running statistics, got a layer with track_running_stats=False"
            )
        return self._kept if self._kept is not None and self._is_fresh() else self._from_running()

    def _is_fresh(self) -> bool:
        assert self._kept_for is not None
        assert self.running_cov is not None
        if self.eps != self._kept_eps or self._kept_for.device != self.running_cov.device:
            return False
        unread = not status.checking() and status.accelerated(self.running_cov)
        return (
            torch.compiler.is_compiling()
            or unread
            or (not function.transformed() and torch.equal(self._kept_for, self.running_cov))
        )

    def _from_running(self) -> Tensor:
        assert self.running_cov is not None
        C = self.running_cov.detach()
        if function.eager(C) and bool(C.diagonal(dim1=-2, dim2=-1).isinf().any()):
            raise SpectralError(
                f"{self.where}: expected a finite running covariance, got one that overflowed {C.dtype}: the features "
                "in training were too large for their squares. Scale them down, pass statistics='whitening', or keep "
                "the layer in float64; reset_running_stats() starts again."
            )
        half = C.dtype != working_dtype(C.dtype)
        C = C.to(self.compute_dtype or working_dtype(C.dtype))
        return self.matrix(positive_part(C) if half else C)

    def _settings_changed(self) -> None:
        """Recompute W for evaluation. If that fails, the error is raised when the layer is next used."""
        if "_kept" not in self.__dict__:
            return
        self._kept = self._kept_for = None
        self._kept_eps = self.eps
        if self.training or self.running_cov is None or self.running_cov.is_meta or function.transformed():
            return
        with contextlib.suppress(SpectralError), torch.inference_mode(False), torch.no_grad():
            self._kept = self._from_running()
            self._kept_for = self.running_cov.clone()

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode, as in torch; switching to evaluation computes W."""
        super().train(mode)
        self._settings_changed()
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._settings_changed()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._settings_changed()

    def extra_repr(self) -> str:
        """The settings, beginning with the settings of torch's BatchNorm."""
        words = ("eps", "momentum", "affine", "track_running_stats")
        common = ", ".join(f"{word}={getattr(self, word)}" for word in words)
        return f"{self.num_features}, {common}, method={self._method_text()!r}"

    def _check_input(self, X: Tensor, alone: bool) -> None:
        check_features(X, self.where)
        if X.dim() not in self._dims:
            wanted = " or ".join(f"{n}D" for n in self._dims)
            raise ShapeError(f"{self.where}: expected {wanted} input, got shape {tuple(X.shape)}")
        if X.shape[1] != self.num_features:
            raise ShapeError(f"{self.where}: expected {self.num_features} channels, got shape {tuple(X.shape)}")
        if self.training and alone and X.shape[0] * X.shape[2:].numel() < 2:
            raise ShapeError(
                f"{self.where}: expected more than one value per channel in training, got shape {tuple(X.shape)}"
            )
