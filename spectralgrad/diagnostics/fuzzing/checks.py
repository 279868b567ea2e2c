"""The checks: LAPACK's error ratios, gradient errors and finiteness, with one number per matrix of a batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .references import Rounding, normalized, shifted, wide

FORWARD = 30.0  # LAPACK's limit for residuals, in units of n·u‖A‖
GRADIENT = 100.0  # the library's limit for errors of exact gradients, in units of u·κ


class Finding(NamedTuple):
    """The measurements (batch,) of one check; a matrix fails if its value is above the limit or NaN."""

    check: str
    measure: Tensor
    limit: float

    @property
    def failed(self) -> list[int]:
        """Indices of the matrices that failed."""
        bad: list[int] = torch.nonzero(~(self.measure <= self.limit)).flatten().tolist()
        return bad


def finite(check: str, x: Tensor, wanted: Tensor) -> Finding:
    """Fails if ``x`` contains NaN or infinity, for matrices for which it must be finite: ``wanted`` (batch,)."""
    bad = ~torch.isfinite(x).flatten(1).all(1) if x.numel() else torch.zeros(len(x), dtype=torch.bool)
    return Finding(check, (bad & wanted).double(), 0.5)


def within(check: str, error: Tensor, unit: Tensor, wanted: Tensor, limit: float) -> Finding:
    """The error in units, for ``wanted`` matrices; an error of zero passes even if the unit is zero."""
    ratio = torch.where(error == 0, 0, error / unit)
    return Finding(check, torch.where(wanted, ratio, 0), limit)


def size(x: Tensor) -> Tensor:
    """Frobenius norms (batch,)."""
    return torch.linalg.vector_norm(x.flatten(1), dim=1)


def one_norm(A: Tensor) -> Tensor:
    """Largest column sums (batch,)."""
    return A.abs().sum(-2).amax(-1)


def hermitian_gradient(g: Tensor, rounding: Rounding, steepest: Tensor | None = None) -> Finding:
    """‖g − gᴴ‖ in units of n·u‖g‖, for gradients that are finite and not denormal.

    With ``steepest``, log₂ of Γ_max‖G‖, the unit is n·uΓ_max‖G‖ if that is larger. If the cotangent happens to miss the
    steepest direction, the gradient is much smaller than the terms it is computed from, and has their rounding errors.
    """
    g, exponent = normalized(torch.nan_to_num(g, nan=torch.nan, posinf=torch.nan, neginf=torch.nan))
    norm = size(g)
    wanted = torch.isfinite(norm) & rounding.resolves(norm, exponent)
    scale = norm if steepest is None else torch.maximum(norm, torch.exp2(steepest - exponent))
    return within("gradient Hermitian", size(g - g.mH), g.shape[-1] * rounding.eps / 2 * scale, wanted, FORWARD)


def orthonormal(V: Tensor, unit: float) -> Tensor:
    """LAPACK's ‖VᴴV − I‖/(n u) (batch,)."""
    V = wide(V)
    identity = torch.eye(V.shape[-1], dtype=V.dtype)
    return one_norm(V.mH @ V - identity) / (V.shape[-2] * unit)


def residual(A: Tensor, left: Tensor, values: Tensor, right: Tensor, unit: Tensor) -> Tensor:
    """LAPACK's ‖A − left·diag(values)·right‖/(‖A‖ n u) (batch,)."""
    A, exponent = normalized(A)
    values = shifted(wide(values), -exponent)
    error = one_norm(A - (wide(left) * values.unsqueeze(-2)) @ wide(right))
    norm = one_norm(A)
    return torch.where(norm > 0, error / torch.where(norm > 0, norm, 1), error) / (max(A.shape[-2:]) * unit)
