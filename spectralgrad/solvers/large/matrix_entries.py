"""A few eigenpairs of a matrix given by its entries, and the linear systems of their gradient, as operators of torch.

The entries belong to a dense matrix, or to a sparse one and come with their places. Like
the operators in :mod:`spectralgrad.solvers.decompose.operators`, these have no derivatives; under ``torch.func.vmap``
they run for one matrix after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...dispatch.custom_operators import fake_rule, vmap_rule
from ...errors import ArgumentError
from ..decompose.operators import Operator
from . import krylov, projected_gradients


def matrix(values: Tensor, indices: Tensor | None, n: int) -> Tensor:
    """Return the matrix (n, n): ``values`` itself, or a sparse tensor with these values at ``indices`` (2, m).

    The layout is CSR where torch has an MKL product, which was 15 times faster than COO's.
    """
    if indices is None:
        return values
    indices = indices.contiguous()  # torch's conversion to CSR misreads others
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < n:
        raise ArgumentError(
            f"eigsh: expected indices from 0 to {n - 1}, got indices from {int(indices.min())} to {int(indices.max())}"
        )
    place = indices[0] * n + indices[1]
    in_order = bool((place[1:] > place[:-1]).all())
    A = torch.sparse_coo_tensor(indices, values, (n, n), is_coalesced=in_order, check_invariants=False).coalesce()
    if not (values.is_cpu and torch.backends.mkl.is_available()):
        return A
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return A.to_sparse_csr()


@Operator
def extreme_eigenpairs(
    values: Tensor, indices: Tensor | None, n: int, k: int, largest: bool, tol: float
) -> tuple[Tensor, Tensor]:
    """Return k eigenvalues, ascending, and eigenvectors (n, k); see :func:`spectralgrad.solvers.large.krylov.eigsh`."""
    A = matrix(values, indices, n)
    probes = krylov.probes(n, values.dtype, values.device)
    return krylov.eigsh(A.__matmul__, probes, k, largest, tol, A)


@fake_rule(extreme_eigenpairs.operator)
def _(values: Tensor, indices: Tensor | None, n: int, k: int, largest: bool, tol: float) -> tuple[Tensor, Tensor]:
    return values.new_empty(k, dtype=values.dtype.to_real()), values.new_empty(n, k)


@vmap_rule(extreme_eigenpairs.operator)
def _(info, in_dims, *arguments):  # type: ignore[no-untyped-def]
    return one_by_one(extreme_eigenpairs, info.batch_size, in_dims, arguments)


@Operator
def projected_solve(
    values: Tensor, indices: Tensor | None, n: int, w: Tensor, V: Tensor, R: Tensor, sign: int, tol: float
) -> Tensor:
    """Return Z (n, k) with (λᵢ − A) zᵢ = (I − VVᴴ) rᵢ; see :mod:`spectralgrad.solvers.large.projected_gradients`."""
    return projected_gradients.solve(matrix(values, indices, n).__matmul__, w, V, R, sign, tol)


@fake_rule(projected_solve.operator)
def _(values: Tensor, indices: Tensor | None, n: int, w: Tensor, V: Tensor, R: Tensor, sign: int, tol: float) -> Tensor:
    return R.new_empty(R.shape)


@vmap_rule(projected_solve.operator)
def _(info, in_dims, *arguments):  # type: ignore[no-untyped-def]
    return one_by_one(projected_solve, info.batch_size, in_dims, arguments)


def one_by_one(
    call: Callable[..., Any], size: int, in_dims: tuple[int | None, ...], arguments: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Call with one element of the batch after the other: a vmap rule, which returns the results and their batch dims.

    Args:
        call: what returns a tensor or a tuple of them.
        size: of the batch, at least 1.
        in_dims: the batch dimension of each argument, or None.
        arguments: the arguments.
    """
    results = []
    for i in range(size):
        one = [x if dim is None else x.select(dim, i) for x, dim in zip(arguments, in_dims, strict=True)]
        results.append(call(*one))
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0,) * len(results[0])
