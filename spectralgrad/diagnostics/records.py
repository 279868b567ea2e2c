"""What a monitor writes down about the matrices of one spectral layer at one step."""

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

NAN = float("nan")


@dataclass
class Record:
    """One look at one layer. Of several matrices the worst counts, unless it says median.

    Attributes:
        step: the layer's training passes before this one.
        layer: its name in the model.
        method: the name of the method it used.
        matrices: how many matrices it decomposed.
        size: d.
        condition: largest condition number; infinite for a singular matrix.
        condition_median: its median.
        rank: least numerical rank.
        gap: smallest relative gap between neighbouring eigenvalues.
        ties: most pairs of eigenvalues that the precision does not tell apart.
        cut: mean share of an off-diagonal gradient entry that the method deletes; 0 for ``exact``, NaN for the
            iterations, which have no gap rule.
        cut_most: the largest such share.
        gradient_norm: Frobenius norm of the loss's gradient in the matrices; NaN until (or unless) it comes.
        fallbacks: matrices that the solver's ladder had to rescue since the layer's last record, in the whole process.
        failures: those that nothing could decompose.
        eigenvalues: ascending, of the matrix with the largest condition number.

    Example:
        >>> record = Record(step=0, layer="whiten", method="exact", matrices=1, size=3, eigenvalues=(0.5, 1.0, 4.0))
        >>> record.dominance
        4.0

    Reference: ICCV 2021, Table 1 and Figs 2–4; ECCV 2022, Figs 1–5 and Table 5.
    """

    step: int
    layer: str
    method: str
    matrices: int
    size: int
    condition: float = NAN
    condition_median: float = NAN
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
        """λ1/λ2, the ratio that power iteration depends on (ICCV 2021, Fig. 3)."""
        if len(self.eigenvalues) < 2:
            return NAN
        second, first = self.eigenvalues[-2:]
        return first / second if second else math.inf

    def row(self) -> dict[str, Any]:
        """Everything but the eigenvalues, and λ1/λ2: what goes into a table."""
        values = asdict(self)
        del values["eigenvalues"]
        return {**values, "dominance": self.dominance}


def look(record: Record, matrices: Tensor, method: Method, sample: int) -> None:
    """Fill in what the spectra of up to ``sample`` matrices, evenly chosen, say."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    if flat.numel() == 0:
        return
    stride = -(-flat.shape[0] // sample)
    with torch.no_grad(), full_precision(flat):
        A = widen(flat[::stride])
        if not bool(torch.isfinite(A).all()):
            return
        w = _eigenvalues(A)
        size, least = norm(w), w.abs().amin(-1)
        condition = size / least
        condition = torch.where(size > 0, condition, torch.inf)
        _note(record, w, condition, rank_tolerance(A.shape[-1], w.dtype))
        _note_cut(record, w, method)


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
        share = torch.where(differences(w) == 0, 1, bias.abs()).masked_fill(identity_mask(w), 0)
        record.cut, record.cut_most = float(share.sum() / (w[..., 0].numel() * d * (d - 1))), float(share.max())


def _eigenvalues(A: Tensor) -> Tensor:
    """Without vectors and without the solvers' own counts, unless LAPACK gives up."""
    try:
        return torch.linalg.eigvalsh(A)
    except RuntimeError:
        return solvers.eigh(A)[0]
