"""Records the conditioning of a model's spectral layers during training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .. import solvers
from ..dispatch.arguments import check_count, checked
from ..dispatch.torch_internals import in_backward_pass, in_transform
from ..errors import ArgumentError, SpectralError
from ..nn.base import SpectralModule, spectral_layers
from .records import Record, look
from .sinks import CSV, Sink, TensorBoard, leading_process
from .smoothness import effective_smoothness
from .table import number, render

__all__ = ["Monitor"]

_SHOWN = ("condition", "rank", "gap", "ties", "cut", "gradient_norm", "fallbacks")
# Records of one layer that may wait for their gradient. Beyond it the oldest is written without: its backward pass may
# never happen.
_WAITING = 8


class Monitor:
    """Record the conditioning and the gradient norm of every spectral layer, every n training passes.

    A pass that is not recorded only increments a counter. A recorded pass computes the eigenvalues of at most
    ``sample`` matrices per layer. Layers are found once, when the monitor is created. Copies of the model are not
    monitored, and nothing of the monitor is saved with the model. In a distributed run every process keeps its own
    records, and only rank 0 writes to ``csv`` and ``tensorboard``.

    Args:
        model: a model with at least one :class:`SpectralModule`.
        every: n; passes 0, n, 2n, ... of each layer in training mode are recorded.
        sample: maximum number of matrices of a batch to examine, evenly spaced.
        csv: file to which rows are appended (default: none).
        tensorboard: a ``torch.utils.tensorboard.SummaryWriter``, or any object with ``add_scalar`` (default: none).
        scaler: the GradScaler in use, by whose scale ``gradient_norm`` is divided.
        start: number of the first pass, for a resumed run.

    Attributes:
        records: list of :class:`Record`.
        smoothness_records: list of (step, β) from :meth:`smoothness`.

    Raises:
        SpectralError: the model has no spectral layer, or ``every`` or ``sample`` is not positive.

    Example:
        >>> import spectralgrad as sg
        >>> class Whiten(sg.nn.SpectralModule):
        ...     def forward(self, x):
        ...         C = self.watched(sg.covariance(x.T, eps=1e-3))
        ...         return x @ sg.matrix_inv_sqrt(C, method=self.method)
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), Whiten())
        >>> with Monitor(model, every=2) as monitor:
        ...     for _ in range(3):
        ...         model(torch.randn(32, 4)).relu().sum().backward()
        >>> [(r.step, r.layer, r.rank, r.condition > 1, r.gradient_norm > 0) for r in monitor.records]
        [(0, '1', 4, True, True), (2, '1', 4, True, True)]

    Reference: Song, Sebe and Wang, ICCV 2021, Table 1 and Figs 2–4; ECCV 2022, Figs 1–5.
    """

    every: int
    sample: int

    @checked
    def __init__(
        self,
        model: nn.Module,
        every: int = 100,
        *,
        sample: int = 16,
        csv: str | Path | None = None,
        tensorboard: Any = None,
        scaler: torch.amp.GradScaler | None = None,
        start: int = 0,
    ) -> None:
        check_count(every, "every", "Monitor")
        check_count(sample, "sample", "Monitor")
        check_count(start, "start", "Monitor", 0)
        layers = spectral_layers(model, required_by="Monitor")
        self.every, self.sample = every, sample
        self.records: list[Record] = []
        self.smoothness_records: list[tuple[int, float]] = []
        self._model, self._scaler = model, scaler
        self._sinks = _sinks(csv, tensorboard)
        self._lock, self._paused = threading.RLock(), False
        self._passes = dict.fromkeys(layers, start)
        self._open: dict[str, list[Record]] = {name: [] for name in layers}
        self._heard: set[str] = set()  # layers that have received a gradient since their newest record
        self._solved = dict.fromkeys(layers, solvers.report())
        self._handles: list[RemovableHandle] = [
            layer.register_spectral_hook(self._hook(name)) for name, layer in layers.items()
        ]

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the hooks and write the remaining records; ``records`` is kept. Calling it again has no effect."""
        for handle in self._handles:
            handle.remove()
        with self._lock:
            self._handles = []
            for name in self._open:
                self._finish(name, 0)
            self._sinks = []

    remove = close

    def series(self, quantity: str = "condition", layer: str | None = None) -> tuple[list[int], list[float]]:
        """Steps and values of one quantity for one layer.

        Args:
            quantity: an attribute of :class:`Record`.
            layer: name of the layer (default: the first one).

        Raises:
            SpectralError: there is no layer of that name.
        """
        name = next(iter(self._passes)) if layer is None else layer
        if name not in self._passes:
            known = ", ".join(map(repr, self._passes))
            raise SpectralError(f"Monitor: expected the name of a monitored layer ({known}), got {name!r}")
        chosen = [r for r in self.records if r.layer == name]
        return [r.step for r in chosen], [float(getattr(r, quantity)) for r in chosen]

    def smoothness(
        self, loss: Callable[[], Tensor], parameters: nn.Module | Iterable[Tensor] | None = None, **options: Any
    ) -> float:
        """Measure the effective β-smoothness at the current weights; these passes are not recorded.

        Args:
            loss, options: as in :func:`effective_smoothness`.
            parameters: a module or parameters (default: the model's parameters).
        """
        self._paused = True
        try:
            wanted = self._model.parameters() if parameters is None else parameters
            beta = effective_smoothness(loss, wanted, module=self._model, **options)
        finally:
            self._paused = False
        self.smoothness_records.append((max(self._passes.values()), beta))
        return beta

    def plot(self, path: str | Path | None = None) -> Any:
        """Plot condition number, rank, smallest gap and gradient norm over the steps; needs matplotlib.

        Args:
            path: file to write (png, svg or pdf; default: none).

        Returns:
            the matplotlib figure.
        """
        from .monitor_plot import draw

        return draw(self, path)

    def __repr__(self) -> str:
        last = {record.layer: record for record in self.records}
        rows = [
            [r.layer, str(r.step), r.method, *(number(float(getattr(r, q))) for q in _SHOWN)] for r in last.values()
        ]
        title = f"Monitor: {len(self._passes)} layers, every {self.every}, {len(self.records)} records"
        return (
            f"{title}\n{render(['layer', 'step', 'method', *(q.replace('_', ' ') for q in _SHOWN)], rows)}"
            if rows
            else title
        )

    def _hook(self, name: str) -> Callable[[SpectralModule, Tensor], Callable[[Tensor], None] | None]:
        def watch(layer: SpectralModule, matrices: Tensor) -> Callable[[Tensor], None] | None:
            record = self._due(name, layer, matrices)
            return None if record is None else lambda gradient: self._arrived(name, record, gradient)

        return torch.compiler.disable(watch)

    def _due(self, name: str, layer: SpectralModule, matrices: Tensor) -> Record | None:
        """The record of this pass, or None if it is not to be recorded.

        A forward pass inside a backward pass is the recomputation of a checkpoint; it belongs to the newest open
        record. Under torch.func there are no values to examine.
        """
        with self._lock:
            if self._paused or in_transform():
                return None
            if in_backward_pass():
                return next(reversed(self._open[name]), None)
            step = self._passes[name]
            self._passes[name] += 1
            if step % self.every:
                return None
            self._finish(name, 0 if name in self._heard else _WAITING - 1)
            self._heard.discard(name)
            count = matrices.shape[:-2].numel()
            record = Record(step, name, str(layer.method), count, matrices.shape[-1])
            self._count_rescues(record)
            self._open[name].append(record)
            self.records.append(record)
        look(record, matrices, layer.method, self.sample, float(getattr(layer, "eps", 0.0)))
        return record

    def _count_rescues(self, record: Record) -> None:
        now, before = solvers.report(), self._solved[record.layer]
        record.fallbacks = max(0, sum(now.fallbacks.values()) - sum(before.fallbacks.values()))
        record.failures = max(0, now.failures - before.failures)
        self._solved[record.layer] = now

    def _arrived(self, name: str, record: Record, gradient: Tensor) -> None:
        size = float(torch.linalg.vector_norm(gradient.detach().abs().double()))
        if self._scaler is not None:
            size /= self._scaler.get_scale()
        with self._lock:
            record.gradient_norm = size
            self._heard.add(name)
            if any(waiting is record for waiting in self._open[name]):
                self._open[name] = [waiting for waiting in self._open[name] if waiting is not record]
                self._write(record)

    def _finish(self, name: str, left: int) -> None:
        """Write the oldest open records of a layer until ``left`` remain; one pass may use a layer several times."""
        while len(self._open[name]) > left:
            self._write(self._open[name].pop(0))

    def _write(self, record: Record) -> None:
        for sink in self._sinks:
            sink.write(record)


def _sinks(csv: str | Path | None, tensorboard: Any) -> list[Sink]:
    if not leading_process():
        return []
    sinks: list[Sink] = []
    if csv is not None:
        sinks.append(CSV(csv))
    if tensorboard is not None:
        if not hasattr(tensorboard, "add_scalar"):
            raise ArgumentError(
                f"Monitor: expected tensorboard to be a SummaryWriter or an object with add_scalar, "
                f"got {type(tensorboard).__name__}"
            )
        sinks.append(TensorBoard(tensorboard))
    return sinks
