"""Time of one call of each public function for one small matrix, beside the obvious composition in torch.

Values and gradients are checked first. Both run alternately on one thread, and the minimum time of each is reported:
without a gradient, the forward pass with one, and the backward pass.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.linalg import eigh, eigvalsh, matrix_norm, svd, svdvals

import spectralgrad as sg
from spectralgrad.errors import SpectralError
from spectralgrad.testing import with_spectrum

from .. import call_study
from ..timing import race
from .alignment import distance_by_svd
from .correlations import by_covariances

SIZES, DTYPE, AGREE = (3, 16), torch.float32, 1e-9
PASSES = ("inference", "forward", "backward")
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Call:
    """A function of one matrix here and in torch.

    Attributes:
        name: as in the table.
        ours, theirs: the call, of a positive definite matrix.
        seen: what both have to agree in, if the result itself is not unique.
    """

    name: str
    ours: Function
    theirs: Function
    seen: Function = field(default=lambda x: x)


@dataclass(frozen=True)
class Row:
    """Times of a call in microseconds, here and in torch, by pass."""

    name: str
    size: int
    ours: dict[str, float]
    torch: dict[str, float]

    def ratio(self, name: str) -> float:
        """Torch's time over ours."""
        return self.torch[name] / self.ours[name]


def _of_eigenvalues(f: Function) -> Function:
    def composed(A: Tensor) -> Tensor:
        w, V = eigh(A)
        return (V * f(w).unsqueeze(-2)) @ V.mH

    return composed


def _of_singular_values(f: Function) -> Function:
    def composed(M: Tensor) -> Tensor:
        U, S, Vh = svd(M, full_matrices=False)
        return (U * f(S).unsqueeze(-2)) @ Vh

    return composed


def _other(A: Tensor) -> Tensor:
    """Another positive definite matrix, without gradient."""
    return A.detach().flip(-1, -2) + torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def _column(A: Tensor) -> Tensor:
    """A right-hand side, without gradient."""
    return _other(A)[:, :1]


def _leading(A: Tensor) -> Tensor:
    V = eigh(A).eigenvectors[..., -2:]
    return V @ V.mH


def _best(S: Tensor) -> Tensor:
    return torch.where(torch.arange(len(S), device=S.device) < 2, S, 0)


def _rotation(M: Tensor) -> Tensor:
    U, _, Vh = svd(M)
    sign = torch.ones(len(M), dtype=M.dtype, device=M.device)
    sign[-1] = torch.linalg.det(U @ Vh).detach().sign()
    return (U * sign) @ Vh


def _kabsch(X: Tensor) -> Tensor:
    Y = _other(X)
    return _rotation((Y - Y.mean(0)).mT @ (X - X.mean(0)))


def _root(A: Tensor) -> Tensor:
    return _of_eigenvalues(torch.sqrt)(A)


def _bures(A: Tensor, B: Tensor) -> Tensor:
    R = _root(B)
    return A.trace() + B.trace() - 2 * eigvalsh(R @ A @ R).sqrt().sum()


def _gaussian(a: Tensor, A: Tensor, b: Tensor, B: Tensor) -> Tensor:
    return (a - b).square().sum() + _bures(A, B)


def _apart(distance: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], A: Tensor) -> Tensor:
    B = _other(A)
    return distance(A[0], A, B[0], B)


def _transport(A: Tensor, B: Tensor) -> Tensor:
    R, Z = _root(A), _of_eigenvalues(torch.rsqrt)(A)
    return Z @ _root(R @ B @ R) @ Z


def _frechet(X: Tensor, Y: Tensor) -> Tensor:
    n, x, y = len(X), X - X.mean(0), Y - Y.mean(0)
    cross = svdvals(x @ y.mT).sum()  # the trace of the root, from the smaller side
    return (X.mean(0) - Y.mean(0)).square().sum() + (x.square().sum() + y.square().sum() - 2 * cross) / (n - 1)


def _affine(A: Tensor, B: Tensor) -> Tensor:
    R = _of_eigenvalues(torch.rsqrt)(B)
    return eigvalsh(R @ A @ R).log().square().sum()


def _log(A: Tensor) -> Tensor:
    return _of_eigenvalues(torch.log)(A)


def _covariance(X: Tensor) -> Tensor:
    Y = X - X.mean(-1, keepdim=True)
    return Y @ Y.mT / X.shape[-1]


def _pencil(A: Tensor, B: Tensor) -> Tensor:
    L = torch.linalg.cholesky(B)
    C = torch.linalg.solve_triangular(L, A, upper=False)
    return eigvalsh(torch.linalg.solve_triangular(L, C.mT, upper=False))


def _sylvester(A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    w, V = eigh(A)
    u, W = eigh(B)
    return V @ ((V.mT @ C @ W) / (w.unsqueeze(-1) + u.unsqueeze(-2))) @ W.mT


def _lyapunov(A: Tensor, C: Tensor) -> Tensor:
    w, V = eigh(A)
    return V @ ((V.mT @ C @ V) / (w.unsqueeze(-1) + w.unsqueeze(-2))) @ V.mT


def _soft(S: Tensor) -> Tensor:
    return (S - 0.7).clamp_min(0)


def _entropy(M: Tensor) -> Tensor:
    p = svdvals(M) / svdvals(M).sum()
    return -(p * p.log()).sum()


CALLS = (
    Call("eigh", lambda A: sg.eigh(A).eigenvectors, lambda A: eigh(A).eigenvectors, torch.abs),
    Call("eigvalsh", sg.eigvalsh, eigvalsh),
    Call("eigvalsh(A, B)", lambda A: sg.eigvalsh(A, _other(A)), lambda A: _pencil(A, _other(A))),
    Call("svd", lambda A: sg.svd(A).U, lambda A: svd(A).U, torch.abs),
    Call("svdvals", sg.svdvals, svdvals),
    Call("matrix_sqrt", sg.matrix_sqrt, _root),
    Call("matrix_inv_sqrt", sg.matrix_inv_sqrt, _of_eigenvalues(torch.rsqrt)),
    Call("matrix_power(A, 0.3)", lambda A: sg.matrix_power(A, 0.3), _of_eigenvalues(lambda w: w.pow(0.3))),
    Call("matrix_log", sg.matrix_log, _log),
    Call("matrix_exp", sg.matrix_exp, torch.linalg.matrix_exp),
    Call("matrix_function(A, tanh)", lambda A: sg.matrix_function(A, torch.tanh), _of_eigenvalues(torch.tanh)),
    Call("spectral_projector", lambda A: sg.spectral_projector(A, 2), _leading),
    Call("polar", sg.polar, _of_singular_values(torch.ones_like)),
    Call("polar(special=True)", lambda A: sg.polar(A, special=True), _rotation),
    Call("procrustes", lambda A: sg.procrustes(A, _other(A)).rotation, _kabsch),
    Call("rmsd", lambda A: sg.rmsd(A, _other(A)), lambda A: distance_by_svd(A, _other(A))),
    Call("nuclear_norm", sg.nuclear_norm, lambda A: svdvals(A).sum()),
    Call("spectral_norm", sg.spectral_norm, lambda A: matrix_norm(A, 2)),
    Call("schatten_norm(A, 1.5)", lambda A: sg.schatten_norm(A, 1.5), lambda A: svdvals(A).pow(1.5).sum() ** (1 / 1.5)),
    Call("spectral_entropy", sg.spectral_entropy, _entropy),
    Call("effective_rank", sg.effective_rank, lambda A: _entropy(A).exp()),
    Call("stable_rank", sg.stable_rank, lambda A: (A.norm() / matrix_norm(A, 2)).square()),
    Call("condition_number", sg.condition_number, torch.linalg.cond),
    Call("log_det", sg.log_det, lambda A: torch.linalg.slogdet(A).logabsdet),
    Call("low_rank(A, 2)", lambda A: sg.low_rank(A, 2), _of_singular_values(_best)),
    Call("singular_value_threshold", lambda A: sg.singular_value_threshold(A, 0.7), _of_singular_values(_soft)),
    Call(
        "singular_value_function", lambda A: sg.singular_value_function(A, torch.tanh), _of_singular_values(torch.tanh)
    ),
    Call("pinv", sg.pinv, torch.linalg.pinv),
    Call("lstsq", lambda A: sg.lstsq(A, _column(A)).solution, lambda A: torch.linalg.lstsq(A, _column(A)).solution),
    Call(
        "solve_hermitian",
        lambda A: sg.solve_hermitian(A, _column(A)),
        lambda A: torch.linalg.pinv(A, hermitian=True) @ _column(A),
    ),
    Call("solve_lyapunov", lambda A: sg.solve_lyapunov(A, _other(A)), lambda A: _lyapunov(A, _other(A))),
    Call(
        "solve_sylvester",
        lambda A: sg.solve_sylvester(A, _other(A), _other(A).sin()),
        lambda A: _sylvester(A, _other(A), _other(A).sin()),
    ),
    Call("covariance", sg.covariance, _covariance),
    Call("covariance_sqrt", lambda A: sg.covariance_sqrt(A, eps=0.1), lambda A: _root(_shifted(_covariance(A)))),
    Call("bures_wasserstein", lambda A: sg.bures_wasserstein(A, _other(A)), lambda A: _bures(A, _other(A))),
    Call(
        "log_euclidean", lambda A: sg.log_euclidean(A, _other(A)), lambda A: (_log(A) - _log(_other(A))).square().sum()
    ),
    Call("gaussian_wasserstein", lambda A: _apart(sg.gaussian_wasserstein, A), lambda A: _apart(_gaussian, A)),
    Call("gaussian_transport", lambda A: sg.gaussian_transport(A, _other(A)), lambda A: _transport(A, _other(A))),
    Call("frechet_distance", lambda X: sg.frechet_distance(X, _other(X)), lambda X: _frechet(X, _other(X))),
    Call(
        "canonical_correlations",
        lambda X: sg.canonical_correlations(X, _other(X).sin(), eps=1e-3).sum(),
        lambda X: by_covariances(X, _other(X).sin())[:-1].sum(),
    ),
    Call("affine_invariant", lambda A: sg.affine_invariant(A, _other(A)), lambda A: _affine(A, _other(A))),
)


def _shifted(A: Tensor) -> Tensor:
    return A + 0.1 * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def matrix(size: int, dtype: torch.dtype = DTYPE) -> Tensor:
    """A positive definite matrix with eigenvalues from 1/2 to 3, all distinct."""
    return with_spectrum([0.5 + 2.5 * k / (size - 1) for k in range(size)], dtype=dtype, seed=size)


def disagreement(call: Call, size: int) -> float:
    """The larger relative difference of the values and of the gradients, in double precision."""
    return difference(call, matrix(size, torch.float64))


def difference(call: Call, A: Tensor) -> float:
    """The larger relative difference of the values and of the gradients for a matrix, or a batch."""
    A = A.detach().requires_grad_()
    values = [call.seen(f(A)) for f in (call.ours, call.theirs)]
    G = torch.cos(torch.arange(values[0].numel(), dtype=A.dtype, device=A.device).square()).view(values[0].shape)
    gradients = [torch.autograd.grad(value, A, G)[0] for value in values]
    if call.name not in _OF_ANY_MATRIX:  # torch's is not symmetric, and defined for symmetric directions only
        gradients = [g + g.mT for g in gradients]
    pairs = (values, gradients)
    return max(float((x - y).detach().norm() / y.detach().norm()) for x, y in pairs)


_OF_ANY_MATRIX = {
    "svd", "svdvals", "polar", "polar(special=True)", "procrustes", "rmsd", "nuclear_norm", "spectral_norm",
    "low_rank(A, 2)", "schatten_norm(A, 1.5)", "singular_value_threshold", "singular_value_function",
    "spectral_entropy", "effective_rank", "stable_rank", "condition_number", "log_det", "canonical_correlations",
    "covariance", "covariance_sqrt", "frechet_distance", "pinv", "lstsq",
}  # fmt: skip


def measure(call: Call, size: int, seconds: float) -> Row:
    """Time a call and its torch composition.

    Raises:
        SpectralError: they disagree.
    """
    difference = disagreement(call, size)
    if not difference < AGREE:
        raise SpectralError(f"{call.name}, {size}×{size}: differs from the composition in torch by {difference:.1g}")
    A = matrix(size)
    leaf = A.clone().requires_grad_()
    times: dict[str, dict[str, float]] = {"ours": {}, "theirs": {}}
    for name in PASSES:
        jobs = {who: (_job(name, getattr(call, who), A, leaf), (1,)) for who in times}
        for who, timing in race(jobs, seconds).items():
            times[who][name] = round(1e6 * timing.seconds, 1)
    return Row(call.name, size, times["ours"], times["theirs"])


def _job(name: str, f: Function, A: Tensor, leaf: Tensor) -> Callable[[], object]:
    if name == "inference":
        return lambda: f(A)
    if name == "forward":
        return lambda: f(leaf)
    result = f(leaf)
    G = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, leaf, G, retain_graph=True)


def table(rows: list[Row]) -> Iterator[str]:
    """The lines of the table; calls that torch makes faster are marked."""
    widths = [26, 5, *[13] * 6]
    head = ["µs here, ratio torch/here", "size", *(x for name in PASSES for x in (name, "ratio"))]
    yield "".join(f"{x:>{w}s}" if i else f"{x:{w}s}" for i, (x, w) in enumerate(zip(head, widths, strict=True)))
    for row in rows:
        cells = [f"{row.name:26s}{row.size:5d}"]
        for name in PASSES:
            ratio = row.ratio(name)
            cells.append(f"{row.ours[name]:13.1f}{ratio:12.2f}{'*' if ratio < 1 else ' '}")
        yield "".join(cells)
    slower = sum(row.ratio(name) < 1 for row in rows for name in PASSES)
    mean = math.exp(sum(math.log(row.ratio(name)) for row in rows for name in PASSES) / (3 * max(len(rows), 1)))
    yield ""
    yield f"* torch is faster: {slower} of {3 * len(rows)} cells; geometric mean of the ratios {mean:.2f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    call_study.add_options(parser, 0.3, "comparison")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, print the table, write the figures if asked to."""
    pairs = product(call_study.chosen(CALLS, options.only), SIZES)
    jobs = [(call.name, partial(measure, call, size, options.seconds)) for call, size in pairs]
    call_study.measured(options, jobs, table)
