"""Distances between positive definite matrices from their logarithms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import solvers
from ..autograd import usual
from ..autograd.functions import kernel_functions, scalar_functions, square_root
from ..autograd.functions.domain import Domain, Spectrum
from ..autograd.singular import weights as singular_weights
from ..autograd.singular.functions import decomposed
from ..autograd.singular.sums import sum_of
from ..dispatch import function
from ..dispatch.custom_operators import current
from ..dispatch.overrides import shortened
from ..errors import check_pair, common_shape
from ..precision import doubled, exponent, full_precision, moderate, narrow, widen
from ..rules import Exact

__all__ = ["affine_invariant", "log_euclidean"]


def _log_euclidean_at_once(A: Tensor, B: Tensor) -> Tensor | None:
    """Return the distance of positive definite matrices whose logarithms take one kernel call each, otherwise None."""
    first = kernel_functions.with_eigenvalues(A, scalar_functions.LOG, True)
    second = kernel_functions.with_eigenvalues(B, scalar_functions.LOG, True) if first else None
    if first is None or second is None or not (_alike(A, B) and _positive(first[1]) and _positive(second[1])):
        return None
    return _squares(first[0] - second[0])


@shortened(_log_euclidean_at_once)
def log_euclidean(
    A: Tensor, B: Tensor, *, squared: bool = True, rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""Compute the squared log-Euclidean distance :math:`\|\log A-\log B\|_F^2` between positive definite matrices.

    The gradient is exact at equal eigenvalues, and zero where the matrices are equal. Singular matrices are compared on
    their range, which must be the same: between different ranges the distance is infinite.

    Args:
        A, B: positive definite matrices (*, d, d), as in :func:`bures_wasserstein`.
        squared, rtol, clamp: as in :func:`bures_wasserstein`.

    Returns:
        the distances (*,), real.

    Raises:
        ShapeError, AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`bures_wasserstein`.
        ArgumentError: the matrices have different ranges, so one of them at least is singular.

    Example:
        >>> identity = torch.eye(2)
        >>> log_euclidean(identity, torch.e * identity).round(decimals=4)
        tensor(2.)

    Reference: Arsigny et al., Log-Euclidean metrics for fast and simple calculus on diffusion tensors, 2006.
    """
    check_pair(A, B, "log_euclidean")
    domain = Domain.of(A, "log_euclidean", rtol, clamp)
    with full_precision(A):
        found = _log_euclidean_at_once(A, B) if squared and rtol is None and not clamp else None
        if found is not None:  # under autocast
            return found
        spectra = [domain.spectrum(widen(C)) for C in (A, B)]
        first, second = _logs((widen(A), widen(B)), spectra)
        pairs = [(torch.where(support, w, 0).sqrt(), V) for w, V, support in spectra]
        distance = _on_one_range(_squares(first - second), pairs, domain)
        return narrow(finished(distance, squared), A.dtype)


def _affine_invariant_at_once(A: Tensor, B: Tensor) -> Tensor | None:
    """Return the distance of positive definite matrices, without gradient, by three kernel calls, otherwise None."""
    if not function.unobserved(A, B) or not _alike(A, B):
        return None
    first = square_root.at_once(A, "affine_invariant", True)
    second = square_root.at_once(B, "affine_invariant", False)
    if first is None or second is None or not (_positive(first[1]) and _positive(second[1])):
        return None
    values = solvers.svdvals.at_once(doubled(second[0]) @ doubled(first[0]), "affine_invariant")
    if values is None or not moderate(values, 0):
        return None
    return narrow(4 * values.log().square().sum(-1), A.dtype)


@shortened(_affine_invariant_at_once)
def affine_invariant(
    A: Tensor, B: Tensor, *, squared: bool = True, rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""Compute the squared affine-invariant (Riemannian, Fisher–Rao) distance between positive definite matrices.

    .. math:: \|\log(A^{-1/2}BA^{-1/2})\|_F^2=\sum_i\ln^2\mu_i,\qquad Bx_i=\mu_iAx_i ,

    invariant under :math:`A,B\mapsto TAT^H,TBT^H` for every invertible T. The gradient is exact at equal eigenvalues,
    and zero where the matrices are equal. Singular matrices are compared on their range, which must be the same.

    Args:
        A, B, squared, rtol, clamp: as in :func:`log_euclidean`.

    Returns:
        the distances (*,), real.

    Raises:
        ShapeError, AsymmetricError, IndefiniteError, NonFiniteError, ArgumentError: as in :func:`log_euclidean`.

    Example:
        >>> A, T = torch.diag(torch.tensor([1.0, 2.0])), torch.tensor([[1.0, 5.0], [0.0, 2.0]])
        >>> round(affine_invariant(T @ A @ T.mT, torch.e * T @ A @ T.mT).item(), 4)
        2.0

    Reference: Pennec, Fillard and Ayache, A Riemannian framework for tensor computing, 2006.
    """
    check_pair(A, B, "affine_invariant")
    domain = Domain.of(A, "affine_invariant", rtol, clamp)
    with full_precision(A):
        Z, *first = square_root.with_eigenpairs(widen(A), True, domain)
        S, *second = square_root.with_eigenpairs(widen(B), False, domain)
        rank = (first[0] > 0).sum(-1)  # of both, or _on_one_range raises an error
        squares = _squared_logarithms(doubled(S) @ doubled(Z), rank, domain)
        return narrow(finished(_on_one_range(squares, [first, second], domain), squared), A.dtype)


def _alike(A: Tensor, B: Tensor) -> bool:
    """True if two tensors have one shape and one type."""
    return A.shape == B.shape and A.dtype == B.dtype


def _positive(w: Tensor) -> bool:
    return w.min().item() > 0


def _on_one_range(distance: Tensor, pairs: Sequence[Sequence[Tensor]], domain: Domain) -> Tensor:
    """Return the distance of matrices with these √λ and eigenvectors; raise an error if their ranges differ."""
    batch = distance.shape
    (s, V), (t, W) = pairs
    parts = (x.detach().expand(*batch, *x.shape[-k:]) for x, k in ((s, 1), (V, 2), (t, 1), (W, 2)))
    agree = current("same_range")(*parts, domain.operation, domain.solver_rtol, domain.dtype)
    return distance * torch.where(agree, 1, torch.nan)  # only unchecked code gets here if they do not agree


def _logs(matrices: Sequence[Tensor], spectra: Sequence[Spectrum]) -> list[Tensor]:
    """Return the logarithms, both less e log 2 where the eigenvalues are about 2ᵉ, so that the difference is exact."""
    f, values = scalar_functions.LOG, [spectrum.values for spectrum in spectra]
    if function.eager(*values):
        moderate_values = all(moderate(w, 0) for w in values)
    else:
        moderate_values = function.exporting() or all(usual.moderate(w, 0) for w in values)
    if not moderate_values:
        batch = common_shape(*(w.shape[:-1] for w in values))
        matrices = [A.expand(*batch, *A.shape[-2:]) for A in matrices]
        spectra = [
            Spectrum(*(x.expand(*batch, *x.shape[w.dim() - 1 :]) for x in s))
            for s, w in zip(spectra, values, strict=True)
        ]
        f = scalar_functions.logarithm(-exponent(spectra[0].values, 1))
    return [Exact().compose(A, f, spectrum) for A, spectrum in zip(matrices, spectra, strict=True)]


def _squared_logarithms(M: Tensor, rank: Tensor, domain: Domain) -> Tensor:
    r"""Return :math:`\sum_i(2\ln\sigma_i)^2` over the ``rank`` (*,) largest singular values of M.

    The singular values of M range over the product of the roots of two condition numbers, and beyond the rank they are
    not zero but rounding error in the type of A and B, so their size does not tell which of them belong to the range.
    """
    triplets = decomposed(M, domain.operation)
    S = triplets.S
    support = (torch.arange(S.shape[-1], device=S.device) < rank.unsqueeze(-1)) & (S > 0)
    total = 4 * torch.where(support, S, 1).log().square().sum(-1)
    return sum_of(M, total, triplets, lambda: singular_weights.slope_of_squared_logarithm(S, support))


def _squares(X: Tensor) -> Tensor:
    return (X.conj() * X).real.sum((-2, -1))


def finished(distance: Tensor, squared: bool) -> Tensor:
    """Return the squared distance or its root, with gradient 0 where it is 0."""
    if squared:
        return distance
    positive = distance > 0
    return torch.where(positive, torch.where(positive, distance, 1).sqrt(), 0)
