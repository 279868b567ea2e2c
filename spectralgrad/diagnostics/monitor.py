"""Watch the spectral layers of a model while it trains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .. import solvers
from ..dispatch.torch_internals import in_backward_pass, in_transform
from ..errors import SpectralError
from ..nn.base import SpectralModule, spectral_layers
from .records import Record, look
from .sinks import CSV, Sink, TensorBoard, leading_process
from .smoothness import effective_smoothness
from .table import number, render

_SHOWN = ("condition", "rank", "gap", "ties", "cut", "gradient_norm", "fallbacks")
_WAITING = 8  # records of one layer that wait for a gradient before the oldest is written without


class Monitor:
    """Record, every n training passes, the conditioning of every spectral layer and what its gradient met.

    A pass that is not recorded costs a counter. A recorded one costs the eigenvalues of at most ``sample`` matrices
    a layer. Layers are found once, when the monitor is made. Copies of the model are not watched; nothing of the
    monitor is saved with it. In a distributed run every process keeps its own list and only rank 0 writes.

    Args:
        model: holds at least one :class:`SpectralModule`.
        every: record a layer's passes 0, n, 2n, ... in training mode.
        sample: look at no more than this many matrices of a batch, evenly chosen.
        csv: a file to append rows to.
        tensorboard: a ``torch.utils.tensorboard.SummaryWriter``, or anything with ``add_scalar``.
        scaler: the GradScaler in use, so that ``gradient_norm`` can be divided by its scale.
        start: the number of the first pass, for a run that goes on where another stopped.

    Attributes:
        records: the list of :class:`Record`.
        smoothness_records: (step, β) from :meth:`smoothness`.

    Raises:
        SpectralError: the model holds no spectral layer, or ``every`` or ``sample`` is not positive.

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

    Reference: ICCV 2021, Table 1 and Figs 2–4; ECCV 2022, Figs 1–5.
    """

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
        if every < 1 or sample < 1:
            raise SpectralError(f"Monitor: expected every ≥ 1 and sample ≥ 1, got {every} and {sample}")
        layers = spectral_layers(model, required_by="Monitor")
        self.every, self.sample = every, sample
        self.records: list[Record] = []
        self.smoothness_records: list[tuple[int, float]] = []
        self._model, self._scaler = model, scaler
        self._sinks = _sinks(csv, tensorboard)
        self._lock, self._paused = threading.RLock(), False
        self._passes = dict.fromkeys(layers, start)
        self._open: dict[str, list[Record]] = {name: [] for name in layers}
        self._heard: set[str] = set()  # layers whose gradients have come since their newest record
        self._solved = dict.fromkeys(layers, solvers.report())
        self._handles: list[RemovableHandle] = [
            layer.register_spectral_hook(self._hook(name)) for name, layer in layers.items()
        ]

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the hooks off and write out what is unfinished; the records stay. Calling it again does nothing."""
        for handle in self._handles:
            handle.remove()
        with self._lock:
            self._handles = []
            for name in self._open:
                self._finish(name, 0)
            self._sinks = []

    remove = close

    def series(self, quantity: str = "condition", layer: str | None = None) -> tuple[list[int], list[float]]:
        """Steps and values of one quantity of a :class:`Record`, for one layer (the first if none is named)."""
        name = next(iter(self._passes)) if layer is None else layer
        if name not in self._passes:
            raise SpectralError(f"Monitor: no layer {name!r}; the layers are {', '.join(map(repr, self._passes))}")
        chosen = [r for r in self.records if r.layer == name]
        return [r.step for r in chosen], [float(getattr(r, quantity)) for r in chosen]

    def smoothness(
        self, loss: Callable[[], Tensor], parameters: nn.Module | Iterable[Tensor] | None = None, **options: Any
    ) -> float:
        """Measure the effective β-smoothness now, unwatched; see :func:`effective_smoothness`."""
        self._paused = True
        try:
            wanted = self._model.parameters() if parameters is None else parameters
            beta = effective_smoothness(loss, wanted, module=self._model, **options)
        finally:
            self._paused = False
        self.smoothness_records.append((max(self._passes.values()), beta))
        return beta

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw condition number, rank, smallest gap and gradient norm over the steps; needs matplotlib.

        Args:
            path: where to write the picture (png, svg, pdf), if anywhere.

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
        """The record of this pass, if one is wanted.

        A pass within a backward pass is a checkpoint's second run. Under torch.func there are no values to look at.
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
        look(record, matrices, layer.method, self.sample)
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
        """Write the oldest open records of a layer until so many are left: a layer may be used often in one pass."""
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
        sinks.append(TensorBoard(tensorboard))
    return sinks
