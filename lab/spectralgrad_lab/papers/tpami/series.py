"""The gap matrix 1/(λi − λj), its Taylor series and what the series leaves out (Eq. 1–15, Fig. 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from ..fifty_digits import mp
from ..inputs import EPS, SPECTRUM, gaussian, gradient, pair_gap, tensor, uniform, vector_gradient
from ..registry import computes
from ..value_conditions import Value

TIED = (0.2, 0.5, 0.5, 0.9, 1.0)
"""Five eigenvalues, two of them equal."""


def left_out(x: float, degree: int) -> float:
    """The share x^(K+1) of 1/(1 − x) that degree K leaves out, as the library's rule states it."""
    return float(sg.Taylor(degree=degree).bias(tensor(x, 1.0))[1, 0])


@computes("tpami/R1")
def gap_matrix() -> Mapping[str, Value]:
    """K_ij = 1/(λi − λj) against (1/λi)·1/(1 − λj/λi) (Eq. 1, 3 and 8)."""
    w = uniform(8, low=0.1).sort().values
    K = sg.Analytic().gaps(w)
    scaled = 1 / w[:, None] / (1 - w / w[:, None])
    off = ~torch.eye(8, dtype=torch.bool)
    return {
        "deviation": float((scaled / K - 1)[off].abs().max()),
        "diagonal": float(K.diagonal().abs().max()),
        "skew": torch.equal(K, -K.mT),
    }


@computes("tpami/R5")
def remainder() -> Mapping[str, Value]:
    """1/(1 − x) minus K + 1 terms against x^(K+1)/(1 − x) at 50 digits (Eq. 5–10), in units of rounding."""
    remainders, shares = [], []
    for degree in (9, 100):
        for x in (0.1, 0.5, 0.9, 0.99):
            power = mp.mpf(x) ** (degree + 1)
            cut = pair_gap(sg.Analytic(), x) - pair_gap(sg.Taylor(degree=degree), x)
            remainders.append(abs(cut - float(power / (1 - mp.mpf(x)))) * (1 - x) / EPS)
            shares.append(abs(left_out(x, degree) - float(power)) / EPS)
    return {"remainder": max(remainders), "share": max(shares), "at_09": left_out(0.9, 9)}


@computes("tpami/R6")
def skew_symmetry() -> Mapping[str, Value]:
    """Whether K̂ is skew-symmetric, also between equal eigenvalues: our rules, and the released signs (Eq. 11–12)."""
    w = tensor(*TIED)
    ours = [rule.gaps(w) for rule in (sg.Taylor(), sg.Clip(), sg.Trunc(), sg.Pade())]
    released = sg.Taylor(faithful=True).gaps(w)
    tie = (w[:, None] == w) & ~torch.eye(5, dtype=torch.bool)
    return {
        "only_at_ties": torch.equal(released + released.mT != 0, tie),
        "ours": [torch.equal(K, -K.mT) and bool((K[tie] == 0).all()) for K in ours],
        "at_tie": [float(entry) for entry in released[tie]],
        "skew_at_tie": bool((released + released.mT)[tie].eq(0).all()),
        "halved": torch.equal(ours[0], (released - released.mT) / 2),
    }


@computes("tpami/R7")
def equal_eigenvalues() -> Mapping[str, Value]:
    """Gradients near a tie: finite for eigenvectors; of a matrix function only the share 1 − (1 − gap)^10 is left."""
    finite, shares, deviations = [], [], []
    ones = torch.ones(3, 3, dtype=torch.float64)
    for gap in (1e-3, 1e-6, 1e-9, 0.0):
        A = torch.diag(tensor(0.5, 1 - gap, 1.0))
        finite.append(bool(vector_gradient(A, "svd-taylor", gaussian(3, 3)).isfinite().all()))
        series = gradient(lambda M: sg.matrix_sqrt(M, method="svd-taylor"), A, ones)
        shares.append(float((series / gradient(sg.matrix_sqrt, A, ones))[1, 2]))
        deviations.append(abs(shares[-1] + math.expm1(10 * math.log1p(-gap))) / EPS)
    released = gradient(lambda M: sg.matrix_sqrt(M, method=sg.Taylor(faithful=True)), torch.eye(3).double(), ones)
    factor = float(released[1, 2] / gradient(sg.matrix_sqrt, torch.eye(3).double(), ones)[1, 2])
    return {"finite": finite, "share": shares, "deviation": max(deviations), "released": factor}


@computes("tpami/R8")
def shifted_matrix() -> Mapping[str, Value]:
    """M + εI against M: eigenvalues, eigenvectors, K (Eq. 13–14), and the share that the series leaves out."""
    A, eps = with_spectrum(SPECTRUM), 1.0
    (w, V), (shifted, W) = sg.eigh(A), sg.eigh(A + eps * torch.eye(8, dtype=torch.float64))
    off = ~torch.eye(8, dtype=torch.bool)
    ratio = sg.Analytic().gaps(shifted)[off] / sg.Analytic().gaps(w)[off]
    before, after = sg.Taylor().bias(w)[off], sg.Taylor().bias(shifted)[off]
    return {
        "values": float((shifted - w - eps).abs().max()),
        "vectors": float(((V * W).sum(0).abs() - 1).abs().max()),
        "gaps": float((ratio - 1).abs().max()),
        "grows": bool((after > before).all()),
        "before": float(before.mean()),
        "after": float(after.mean()),
    }


@computes("tpami/R22")
def points_of_figure_4() -> Mapping[str, Value]:
    """Where the share x^(K+1) that is left out is 5 % or 20 %, and what it is at x = 0.85 (Fig. 4)."""
    points = {"A": (0.05, 9), "B": (0.2, 9), "C": (0.05, 19)}
    ratios = {name: share ** (1 / (degree + 1)) for name, (share, degree) in points.items()}
    shares = [left_out(ratios[name], degree) / share for name, (share, degree) in points.items()]
    b, c = left_out(0.85, 9), left_out(0.85, 19)
    return {
        "x": [round(ratio, 6) for ratio in ratios.values()],
        "consistent": max(abs(share - 1) for share in shares),
        "B": b,
        "C": c,
        "squared": c / b**2 - 1,
        "terms": math.log(0.05) / math.log(0.85),
    }
