r"""Inverse roots :math:`A^{-1/p}` for preconditioned optimisers such as Shampoo, without gradient, many at a time.

They are computed inside the native kernel where it decomposes the matrices. A matrix on which it fails is decomposed by
the fallbacks of the library.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import solvers
from ..dispatch.arguments import check_range, check_tolerance, checked
from ..errors import ArgumentError, AsymmetricError, IndefiniteError, NonFiniteError, check_square
from ..precision import narrow, rounded_to, widen

__all__ = ["inverse_root", "inverse_roots"]


@checked
def inverse_root(
    A: Tensor, p: float, *, eps: float = 0.0, relative: bool = False, rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""Compute :math:`(A+\epsilon I)^{-1/p}` of positive semi-definite matrices, without gradient.

    With ``eps=0`` the eigenvalues that count as zero stay zero: the result is the root of the pseudo-inverse. With a
    positive ``eps`` nothing is left out, unless ``rtol`` is given as well. For a gradient, and for other exponents, use
    :func:`spectralgrad.matrix_power`.

    Args:
        A: positive semi-definite matrices (*, d, d), real or complex; half types are computed in float32.
        p: the root, a positive number, such as 4 for Shampoo with weight matrices.
        eps: ε, added to the eigenvalues.
        relative: multiply ε by the largest eigenvalue of each matrix.
        rtol: relative rank tolerance; default :math:`\epsilon_\text{machine}\max(8,3\sqrt d)` if ``eps`` is 0.
        clamp: set negative eigenvalues to zero instead of raising an error.

    Returns:
        the inverse roots (*, d, d), Hermitian; zero for a zero matrix if ``eps`` is 0 or relative.

    Raises:
        ArgumentError: ``p`` or ``eps`` is out of range, or ``relative`` is given without ``eps``.
        IndefiniteError: an eigenvalue of :math:`A+\epsilon I` is negative beyond rounding error.
        NonFiniteError: the input contains NaN or Inf; the message lists the batch positions.

    Example:
        >>> inverse_root(torch.diag(torch.tensor([16.0, 1.0, 0.0])), 4).diagonal()
        tensor([0.5000, 1.0000, 0.0000])
        >>> inverse_root(torch.diag(torch.tensor([15.0, 0.0])), 4, eps=1.0).diagonal()
        tensor([0.5000, 1.0000])

    Reference: Gupta, Koren and Singer, Shampoo: preconditioned stochastic tensor optimization, ICML 2018.
    """
    check_square(A, "inverse_root")
    _check_arguments("inverse_root", eps, relative, rtol, [p])
    return _root(A, "inverse_root", p, eps, relative, rtol, clamp)


@checked
def inverse_roots(
    matrices: Sequence[Tensor],
    p: float | Sequence[float],
    *,
    eps: float = 0.0,
    relative: bool = False,
    rtol: float | None = None,
    clamp: bool = False,
) -> list[Tensor]:
    r"""Compute :func:`inverse_root` for a list of matrices of mixed sizes; equal sizes are computed together.

    A batch is several times faster than a loop for sizes up to about 64. Results do not depend on the order or the
    sizes of the other matrices beyond rounding.

    Args:
        matrices: positive semi-definite matrices, each (d, d) with its own d, dtype and device.
        p: the root, or one root for each matrix.
        eps, relative, rtol, clamp: as in :func:`inverse_root`.

    Returns:
        the inverse roots, in the order of ``matrices``.

    Raises:
        ArgumentError, IndefiniteError, NonFiniteError: as in :func:`inverse_root`; positions are those in the list.

    Example:
        >>> statistics = [4 * torch.eye(2), 9 * torch.eye(3), torch.eye(2)]
        >>> [round(R[0, 0].item(), 3) for R in inverse_roots(statistics, 2)]
        [0.5, 0.333, 1.0]

    Reference: as in :func:`inverse_root`.
    """
    roots = list(p) if isinstance(p, Sequence) else [p] * len(matrices)
    if len(roots) != len(matrices):
        raise ArgumentError(
            f"inverse_roots: expected one root p for each of {len(matrices)} matrices, got {len(roots)}"
        )
    _check_arguments("inverse_roots", eps, relative, rtol, roots)
    results: list[Tensor] = list(matrices)
    for members in _buckets(matrices, roots):
        batch = torch.stack([matrices[k] for k in members])
        try:
            found = _root(batch, "inverse_roots", roots[members[0]], eps, relative, rtol, clamp)
        except NonFiniteError as error:
            positions = [(members[position[0]],) for position in error.positions]
            raise NonFiniteError(positions, (len(matrices),), "inverse_roots") from None
        except AsymmetricError as error:
            position = (members[error.position[0]],)
            raise AsymmetricError(error.asymmetry, position, "inverse_roots", error.tolerance) from None
        except IndefiniteError as error:
            position = (members[error.position[0]],)
            raise IndefiniteError(error.eigenvalue, position, "inverse_roots", error.tolerance, error.dtype) from None
        for k, root in zip(members, found.unbind(), strict=True):
            results[k] = root
    return results


def _buckets(matrices: Sequence[Tensor], roots: Sequence[float]) -> list[list[int]]:
    """Return the positions of the matrices that are computed together: of equal size, dtype, device and root."""
    found: dict[tuple[object, ...], list[int]] = {}
    for k, A in enumerate(matrices):
        check_square(A, f"inverse_roots, matrix {k}")
        if A.dim() != 2:
            raise ArgumentError(f"inverse_roots, matrix {k}: expected (d, d), got shape {tuple(A.shape)}")
        found.setdefault((A.shape[-1], A.dtype, A.device, roots[k]), []).append(k)
    return list(found.values())


def _check_arguments(operation: str, eps: float, relative: bool, rtol: float | None, roots: Sequence[float]) -> None:
    check_tolerance(rtol, operation)
    check_range(eps, "eps", operation, 0)
    if relative and eps == 0:
        raise ArgumentError(f"{operation}: expected eps > 0 with relative=True, which multiplies eps, got eps=0")
    for p in roots:
        check_range(p, "the root p", operation, 0, ends="()")


def _root(A: Tensor, operation: str, p: float, eps: float, relative: bool, rtol: float | None, clamp: bool) -> Tensor:
    arguments = operation, float(p), float(eps), relative, -1.0 if rtol is None else float(rtol), clamp, rounded_to(A)
    return narrow(solvers.inverse_root(widen(A.detach()), *arguments), A.dtype)
