"""Reports the properties of matrices that affect gradients: gaps, ties, rank, conditioning, bias and gauge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import solvers
from ..autograd import gauge
from ..autograd.pairwise import identity_mask, norm
from ..dispatch.arguments import checked
from ..dispatch.finite import check_finite
from ..dispatch.host import on_host_without_double
from ..errors import ShapeError, check_dense, check_square
from ..linalg import matrix_functions
from ..precision import full_precision, negative_tolerance, widen
from ..rules import Exact, GapMethod, Method, resolve
from ..solvers.symmetry import mirrored
from .spectrum import ratio, spectrum
from .table import number, render

__all__ = ["Inspection", "inspect"]

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, repr=False)
class Inspection:
    """The result of :func:`inspect`. Tensors have one entry per matrix (*,) unless stated otherwise."""

    method: Method
    size: int
    dtype: torch.dtype
    eigenvalues: Tensor  # (*, d), ascending
    asymmetry: Tensor  # ‖A − Aᴴ‖/‖A‖
    condition: Tensor  # |λ|max/|λ|min
    rank: Tensor  # numerical rank
    relative_gap: Tensor  # min |λi − λj|/‖A‖
    exact_ties: Tensor  # number of neighbouring eigenvalues that are computed as equal
    ties: Tensor  # number of pairs whose vectors are not determined by the matrix: gap ≤ 64 ε ‖A‖
    noise: Tensor  # ε‖A‖/gap over the resolved pairs: relative error of the gradients of single vectors
    bias: Tensor  # largest |1 − K̂(λi − λj)|, the share of a gradient entry that the method discards
    bound: Tensor  # upper bound for |K̂|
    gradient_error: Tensor  # relative error of the gradient of A ↦ √A with this method, for one fixed cotangent
    gauge_sensitivity: Tensor | None  # of the given cotangent or loss, from 0 (none) to 1 (full)

    def __repr__(self) -> str:
        rows = [self._row(*line) for line in self._lines()]
        count = self.condition.numel()
        what = f"{count} {'matrix' if count == 1 else 'matrices'} {self.size}×{self.size}"
        title = f"{what}, {str(self.dtype).removeprefix('torch.')}, method {self.method}"
        return f"{title}\n{render(['', 'median', 'worst', 'at'], rows)}\n{self.verdict()}"

    def _lines(self) -> list[tuple[str, Tensor, bool]]:
        """Label, values, and True if larger values are worse."""
        lines = [
            ("condition number", self.condition, True),
            ("numerical rank", self.rank.double(), False),
            ("smallest relative gap", self.relative_gap, False),
            ("exact ties", self.exact_ties.double(), True),
            ("unresolved pairs", self.ties.double(), True),
            ("noise of resolved vectors", self.noise, True),
            ("bias of the method", self.bias, True),
            ("bound of its gap matrix", self.bound, True),
            ("its gradient error in √A", self.gradient_error, True),
            ("asymmetry", self.asymmetry, True),
        ]
        if self.gauge_sensitivity is not None:
            lines.append(("gauge sensitivity", self.gauge_sensitivity, True))
        return lines

    def _row(self, label: str, values: Tensor, larger_is_worse: bool) -> list[str]:
        if values.numel() == 0:
            return [label, "-", "-", ""]
        flat = values.double().flatten()
        known = flat[~flat.isnan()]
        if known.numel() == 0:
            return [label, "-", "-", ""]
        ranked = torch.where(flat.isnan(), -torch.inf if larger_is_worse else torch.inf, flat)
        worst = int(ranked.argmax() if larger_is_worse else ranked.argmin())
        where = str(_position(worst, values.shape)) if values.dim() else ""
        return [label, number(float(known.median())), number(float(flat[worst])), where]

    def verdict(self) -> str:
        """One sentence on which gradients can be trusted."""
        if self.condition.numel() == 0:
            return "There are no matrices."
        if self.method.exact:
            return "Gradients of matrix functions are exact for these matrices, including at ties."
        ties, bias = int(self.ties.max()), float(self.bias.nan_to_num(0).max())
        if self.gauge_sensitivity is not None and ties and float(self.gauge_sensitivity.max()) > 1e-6:
            return "The loss depends on the choice of vectors within an eigenspace, so its gradient does not exist."
        if ties:
            return (
                f"Unresolved pairs: up to {ties}. Gradients through projectors are safe, those through single "
                "eigenvectors are not; for functions of the matrix use method='exact'."
            )
        if bias > 1e-2:
            return f"No ties, but the method discards up to {bias:.0%} of a gradient entry."
        return f"No ties: gradients have a relative error of about {number(max(float(self.noise.max()), bias))}."


@checked
@on_host_without_double
def inspect(
    A: Tensor, *, method: str | Method = "svd-pade", cotangent: Tensor | None = None, loss: Loss | None = None
) -> Inspection:
    r"""Report whether a gradient through the eigendecomposition of ``A`` can be trusted.

    Args:
        A: Hermitian matrices (*, d, d).
        method: the method whose bias and bound are reported, any of :func:`methods`.
        cotangent: gradient of the loss with respect to the eigenvectors (*, d, d), in the order of :func:`eigh`. Its
            dependence on the choice of vectors within eigenspaces is reported as ``gauge_sensitivity``.
        loss: a function of (eigenvalues, eigenvectors) that returns a scalar, instead of ``cotangent``.

    Returns:
        an :class:`Inspection`, which prints as a table.

    Raises:
        ShapeError: ``A`` is not a tensor of square matrices, or ``cotangent`` has the wrong shape.
        MethodError: the method is unknown.

    Example:
        >>> report = inspect(torch.diag(torch.tensor([1.0, 1.0, 4.0])), method="svd-taylor")
        >>> int(report.exact_ties), int(report.ties), float(report.bias)
        (1, 1, 1.0)
        >>> print(report.verdict())
        Unresolved pairs: up to 1. Gradients through projectors are safe, those through single eigenvectors are not;
        for functions of the matrix use method='exact'.
    """
    check_square(A, "inspect")
    rule = _any_operation(method)
    with torch.inference_mode(False), torch.no_grad(), full_precision(A):
        wide = widen(A).clone()
        w, V = solvers.eigh(wide)
        w = _as_used(rule, w)
        found = spectrum(w)
        bias, bound = rule.bias(w), rule.bound(w)
        return Inspection(
            method=rule,
            size=A.shape[-1],
            dtype=A.dtype,
            eigenvalues=w,
            asymmetry=ratio(torch.linalg.matrix_norm(wide - wide.mH), torch.linalg.matrix_norm(wide)),
            condition=found.condition,
            rank=found.rank,
            relative_gap=found.relative_gap,
            exact_ties=(w.diff(dim=-1) == 0).sum(-1),
            ties=found.ties,
            noise=found.noise,
            bias=torch.full_like(found.norm, torch.nan) if bias is None else _largest(bias.abs()),
            bound=torch.full_like(found.norm, torch.nan) if bound is None else bound,
            gradient_error=_gradient_error(wide, rule, A.dtype),
            gauge_sensitivity=_gauge_sensitivity(w, V, cotangent, loss),
        )


def _as_used(rule: Method, w: Tensor) -> Tensor:
    """The eigenvalues that the method works with: some rules raise small ones first."""
    replaced = rule.replaced(w) if isinstance(rule, GapMethod) else None
    return w if replaced is None else replaced


def _any_operation(method: str | Method) -> Method:
    """The method, for any operation that it supports; unknown names raise :class:`MethodError`."""
    if isinstance(method, Method):
        return method
    try:
        return resolve(method, "sqrt")
    except ValueError:
        return resolve(method, "eigh")


def _gradient_error(A: Tensor, rule: Method, dtype: torch.dtype) -> Tensor:
    """Relative error (*,) of the gradient of ⟨√A, G⟩ with this method, for a fixed G; NaN if √A does not exist."""
    generator = torch.Generator().manual_seed(0)
    d = A.shape[-1]
    G = torch.randn(d, d, generator=generator, dtype=torch.float64).to(A)
    with torch.enable_grad():
        gradients = []
        for method in (rule, Exact()):
            X = mirrored(A.detach()).requires_grad_()  # as eigh reads it; the report has the asymmetry
            S = matrix_functions.matrix_sqrt(X, method=method, clamp=True)
            gradients.append(torch.autograd.grad((S * G).sum().real, X)[0])
    got, exact = gradients
    error = ratio(torch.linalg.matrix_norm(got - exact), torch.linalg.matrix_norm(exact))
    w = torch.linalg.eigvalsh(A)
    limit = negative_tolerance(d, dtype) * norm(w)
    negative = w.amin(-1) < -limit if d else torch.zeros_like(error, dtype=torch.bool)
    return torch.where(negative, torch.nan, error)


def _gauge_sensitivity(w: Tensor, V: Tensor, cotangent: Tensor | None, loss: Loss | None) -> Tensor | None:
    if loss is not None:
        with torch.enable_grad():
            vectors = V.detach().clone().requires_grad_()
            (cotangent,) = torch.autograd.grad(loss(w.detach(), vectors), vectors)
    if cotangent is None:
        return None
    check_dense(cotangent, "inspect, cotangent")
    if cotangent.dtype.is_complex and not V.dtype.is_complex:
        raise ShapeError(f"inspect: expected a real cotangent for real matrices, got {cotangent.dtype}")
    if cotangent.shape != V.shape:
        raise ShapeError(f"inspect: expected a cotangent of shape {tuple(V.shape)}, got {tuple(cotangent.shape)}")
    check_finite(cotangent, "inspect, cotangent")
    cotangent = cotangent.to(V)
    return gauge.sensitivity(V.mH @ cotangent, gauge.column_norms(cotangent), gauge.tied(w) & ~identity_mask(w))


def _largest(x: Tensor) -> Tensor:
    return x.amax((-2, -1)) if x.shape[-1] else x.new_zeros(x.shape[:-2])


def _position(index: int, shape: torch.Size) -> tuple[int, ...] | int:
    position = []
    for extent in reversed(shape):
        index, here = divmod(index, extent)
        position.append(here)
    return position[0] if len(position) == 1 else tuple(reversed(position))
