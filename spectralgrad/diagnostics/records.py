"""What a monitor records about the matrices of one spectral layer at one step."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from .. import solvers
from ..autograd import gauge
from ..autograd.pairwise import differences, identity_mask, norm
from ..precision import full_precision, rank_tolerance, widen
from ..rules import Method

__all__ = ["Record"]

NAN = float("nan")


@dataclass
class Record:
    """The state of one layer at one step. Values are the worst over the examined matrices unless stated otherwise.

    Attributes:
        step: number of training passes of the layer before this one.
        layer: name of the layer in the model.
        method: name of the method in use.
        matrices: number of matrices decomposed.
        size: size d of the matrices.
        condition: largest condition number; infinite for a singular matrix.
        condition_median: median condition number.
        condition_bare: largest condition number without the ε that the layer adds, as ECCV 2022 reports it; rounding
            limits it to about the inverse of the precision.
        rank: smallest numerical rank.
        gap: smallest relative gap between neighbouring eigenvalues.
        ties: largest number of pairs of eigenvalues that cannot be distinguished in the precision.
        cut: mean share of an off-diagonal gradient entry that the method discards; 0 for ``exact``, NaN for iterative
            methods, which have no gap rule.
        cut_most: the largest such share.
        gradient_norm: Frobenius norm of the gradient of the loss with respect to the matrices; NaN until the backward
            pass reaches them.
        fallbacks: number of matrices, in the whole process, that needed a fallback solver since the layer's previous
            record.
        failures: number of matrices that no solver could decompose, counted in the same way.
        eigenvalues: eigenvalues of the matrix with the largest condition number, ascending.

    Example:
        >>> record = Record(step=0, layer="whiten", method="exact", matrices=1, size=3, eigenvalues=(0.5, 1.0, 4.0))
        >>> record.dominance
        4.0

    Reference: Song, Sebe and Wang, ICCV 2021, Table 1 and Figs 2–4; ECCV 2022, Figs 1–5 and Table 5.
    """

    step: int
    layer: str
    method: str
    matrices: int
    size: int
    condition: float = NAN
    condition_median: float = NAN
    condition_bare: float = NAN
    rank: int = 0
    gap: float = NAN
    ties: int = 0
    cut: float = NAN
    cut_most: float = NAN
    gradient_norm: float = NAN
    fallbacks: int = 0
    failures: int = 0
    eigenvalues: tuple[float, ...] = field(default=(), repr=False)

    @property
    def dominance(self) -> float:
        """λ1/λ2, which determines the convergence of power iteration (ICCV 2021, Fig. 3)."""
        if len(self.eigenvalues) < 2:
            return NAN
        second, first = self.eigenvalues[-2:]
        return first / second if second else math.inf

    def row(self) -> dict[str, Any]:
        """The values for a table: everything except the eigenvalues, and λ1/λ2."""
        values = asdict(self)
        del values["eigenvalues"]
        return {**values, "dominance": self.dominance}


def look(record: Record, matrices: Tensor, method: Method, sample: int, eps: float = 0.0) -> None:
    """Fill in ``record`` from the eigenvalues of up to ``sample`` evenly spaced matrices that contain ε."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    if flat.numel() == 0:
        return
    stride = -(-flat.shape[0] // sample)
    with torch.no_grad(), full_precision(flat):
        A = widen(flat[::stride])
        if not bool(torch.isfinite(A).all()):
            return
        w = _eigenvalues(A)
        _note(record, w, _condition(w), rank_tolerance(A.shape[-1], w.dtype))
        record.condition_bare = float(_condition(w - eps).max())
        _note_cut(record, w, method)


def _condition(w: Tensor) -> Tensor:
    """The condition number, infinite for a singular matrix and for zero."""
    size, least = norm(w), w.abs().amin(-1)
    return torch.where(size > 0, size / least, torch.inf)


def _note(record: Record, w: Tensor, condition: Tensor, tolerance: float) -> None:
    size, worst = norm(w), int(condition.argmax())
    record.condition, record.condition_median = float(condition[worst]), float(condition.median())
    record.rank = int((w.abs() > tolerance * size.unsqueeze(-1)).sum(-1).min())
    record.ties = int((gauge.tied(w) & torch.ones_like(identity_mask(w)).triu(1)).sum((-2, -1)).max())
    record.eigenvalues = tuple(w[worst].tolist())
    if w.shape[-1] > 1:
        gap = w.diff(dim=-1).amin(-1)
        record.gap = float(torch.where(size > 0, gap / torch.where(size > 0, size, 1), 0).min())


def _note_cut(record: Record, w: Tensor, method: Method) -> None:
    d = w.shape[-1]
    if method.exact or d < 2:
        record.cut = record.cut_most = 0.0
    elif (bias := method.bias(w)) is not None:
        # At an exact tie the whole entry is discarded, whatever the bias formula gives there.
        share = torch.where(differences(w) == 0, 1, bias.abs()).masked_fill(identity_mask(w), 0)
        record.cut, record.cut_most = float(share.sum() / (w[..., 0].numel() * d * (d - 1))), float(share.max())


def _eigenvalues(A: Tensor) -> Tensor:
    """The eigenvalues, by torch.linalg so that the solvers' statistics do not count them, unless it fails."""
    try:
        return torch.linalg.eigvalsh(A)
    except RuntimeError:
        return solvers.eigh(A)[0]
