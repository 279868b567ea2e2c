"""A few eigenpairs of operators that are too large to decompose."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..autograd.large import partial_spectrum
from ..autograd.large.operators import Entries, Products, Request
from ..dispatch import function
from ..dispatch.arguments import check_count, check_range, is_dtype
from ..dispatch.closures import Closure
from ..dispatch.compiled import not_compiled
from ..dispatch.overrides import overridable
from ..dispatch.torch_internals import hides_layout, nested
from ..errors import ArgumentError, ShapeError, check_dense, check_tensor
from ..precision import full_precision, narrow, working_dtype
from ..rules import Pade
from ..solvers.large import krylov
from .decompositions import EighResult

__all__ = ["eigsh"]

_LAYOUTS = frozenset({torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc})
_LAYOUTS |= {torch.sparse_bsr, torch.sparse_bsc}


def _has_products(x: Any) -> bool:
    """True for operator objects, for example from linear_operator, which would refuse to override a new function."""
    return not isinstance(x, Tensor) and any(hasattr(x, name) for name in ("matmul", "_matmul"))


@partial(overridable, accepts=_has_products)
def eigsh(
    operator: Any,
    k: int,
    *,
    largest: bool = True,
    tol: float = 0.0,
    size: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> EighResult:
    r"""Compute k eigenpairs at one end of the spectrum of a large Hermitian operator, and their complete gradient.

    .. math:: AV=V\,\mathrm{diag}(\lambda),\qquad V\in\mathbb C^{n\times k} .

    The operator is used through products :math:`AX` only. The gradient flows into the values of a sparse matrix, the
    parameters of an operator object, or any tensors that a callable uses. It includes how the eigenvectors rotate into
    the n − k others, which are never computed: the backward pass solves
    :math:`(\lambda_i-A)z_i=(I-VV^H)\bar v_i` by conjugate gradients. Memory is O(nk), besides the operator.

    Derivatives of every order, forward mode, ``torch.func`` with ``vmap`` (one matrix after the other) and
    ``torch.compile`` work, without a graph break for dense matrices and for indices with values. Two forms of an
    operator have less, because of torch. A sparse tensor that was made of values has no second derivative in these (an
    error says so), forward mode or ``vmap``: pass the indices and values instead. A callable that gives tensors to a
    ``torch.autograd.Function`` of its own has first derivatives in reverse mode, and others by ``torch.func`` only.

    Eigenpairs come from ARPACK (scipy, if installed), otherwise from :func:`torch.lobpcg`, which takes real matrices
    only. A Krylov method may miss a copy of a repeated eigenvalue; the gradient of a loss of the eigenvectors then
    raises an error instead of being wrong. The operator must not change between the forward and the backward pass, and
    a callable has to use the same tensors whenever it is called.

    Args:
        operator: a tensor (n, n), dense or sparse; dense tensors (*, n, n), one after the other; a pair of the indices
            (2, m) and the values (m,) of a sparse matrix; an object with ``shape`` and ``_matmul``, ``matmul`` or
            ``@``; or a callable that maps (n, m) to (n, m). It has to be Hermitian, which is checked for one pair of
            vectors. Of a tensor's gradient the Hermitian part is returned.
        k: number of eigenpairs, from 1 to n.
        largest: the algebraically largest eigenvalues, otherwise the smallest.
        tol: relative accuracy of the eigenvalues; 0 for machine precision. The linear solves of all derivatives stop at
            the relative residual ``max(tol, 100 ε)``.
        size: n, for a callable or a pair.
        dtype: float32, float64, complex64 or complex128, for a callable; the default dtype by default. Tensors of half
            types are computed in float32.
        device: for a callable.

    Returns:
        named tuple ``(eigenvalues, eigenvectors)`` of shapes (*, k), ascending, and (*, n, k).

    Raises:
        ArgumentError: ``k`` is out of range, or the operator is not Hermitian or has no products.
        NonFiniteError: a product contains NaN or Inf.
        ConvergenceError: the eigensolver or, in the backward pass, a linear solve did not converge.
        NotImplementedError: a derivative that does not exist for this form of the operator.
        ImportError: scipy is needed and not installed.

    Example:
        >>> diagonal = torch.arange(1.0, 1001.0, dtype=torch.float64, requires_grad=True)
        >>> w, V = eigsh(lambda X: diagonal[:, None] * X, 2, size=1000, dtype=torch.float64)
        >>> w.detach().round(decimals=6)
        tensor([ 999., 1000.], dtype=torch.float64)
        >>> (g,) = torch.autograd.grad(w.sum(), diagonal)
        >>> g[-3:].round(decimals=6).abs()
        tensor([0., 1., 1.], dtype=torch.float64)

        The curvature of an eigenvalue in the strength of a coupling, of a sparse matrix and its two values:

        >>> def top(c):
        ...     values = torch.stack([torch.ones(()), c, c])
        ...     return eigsh((torch.tensor([[0, 0, 1], [0, 1, 0]]), values), 1, size=2).eigenvalues[0]
        >>> torch.func.hessian(top)(torch.tensor(1.0))  # top(c) = 1/2 + √(1/4 + c²)
        tensor(0.1789)

    Reference: Xie, Liu and Wang, Automatic differentiation of dominant eigensolver and its applications in quantum
    physics (2020); Lehoucq, Sorensen and Yang, ARPACK Users' Guide (1998).
    """
    values = operator[1] if _is_sparse_pair(operator) else operator
    if isinstance(values, Tensor):
        check_dense(values, "eigsh, operator", _LAYOUTS)
    n = _size(operator, size)
    check_count(k, "k", "eigsh", 1, n)
    check_range(tol, "tol", "eigsh", 0, 1)
    dtype = dtype or getattr(values, "dtype", None) or torch.get_default_dtype()
    if not is_dtype(dtype):
        raise ShapeError(f"eigsh: expected an operator of a floating-point or complex dtype of torch, got {dtype}")
    request = Request(n, int(k), largest, tol, Pade())
    if isinstance(operator, Tensor):
        if not torch.compiler.is_compiling() and hides_layout(operator):
            raise NotImplementedError(
                f"eigsh: torch {torch.__version__} cannot read a sparse tensor inside a transform of torch.func. "
                "Pass eigsh((indices, values), k, size=n) instead of the tensor, or use torch 2.10 or later."
            )
        w, V = _of_tensor(operator.to(working_dtype(dtype)), request)
    elif _is_sparse_pair(operator):
        w, V = _of_entries(operator[1].to(working_dtype(dtype)), operator[0], request)
    else:
        w, V = _of_products(operator, request, working_dtype(dtype), device or getattr(operator, "device", "cpu"))
    return EighResult(narrow(w, dtype), narrow(V, dtype))


def _of_tensor(A: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs of a tensor; a batch is solved one matrix at a time."""
    if A.ndim > 2:
        if not A.numel():
            return A.real[..., : request.k, 0], A[..., : request.k]  # both empty
        pairs = [_of_tensor(one, request) for one in A.flatten(0, -3)]
        w, V = (torch.stack(parts).unflatten(0, A.shape[:-2]) for parts in zip(*pairs, strict=True))
        return w, V
    return _of_entries(A, None, request) if A.layout == torch.strided else _of_sparse(A, request)


@not_compiled
def _of_sparse(A: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    made_of_values = _is_made_of_values(A)
    A = (A if A.layout == torch.sparse_coo else A.to_sparse_coo()).coalesce()
    values = A.values()
    if made_of_values:
        values.register_hook(_refuse_second_order)
    return _of_entries(values, A.indices(), request)


def _is_made_of_values(A: Tensor) -> bool:
    """True if the graph of ``A`` begins with torch's constructor of sparse tensors, whose gradient has no graph."""
    node = A.grad_fn if A.requires_grad else None
    for _ in range(10):  # conversions may follow the constructor
        if node is None or node.name().startswith(("SparseCoo", "SparseCompressed", "SparseCsr")):
            return node is not None
        node = node.next_functions[0][0] if node.next_functions else None
    return False


def _refuse_second_order(_: Tensor) -> None:
    if torch.is_grad_enabled() and (not function.transformed() or nested("Grad") > 1):
        raise NotImplementedError(
            "eigsh: torch's sparse tensors made of values have no second derivative with respect to these. "
            "Pass eigsh((indices, values), k, size=n) instead of the tensor."
        )


def _of_entries(values: Tensor, indices: Tensor | None, request: Request) -> tuple[Tensor, Tensor]:
    with full_precision(values):
        return partial_spectrum.eigenpairs(Entries(request), (values, indices))


@not_compiled
def _of_products(operator: Any, request: Request, dtype: torch.dtype, device: Any) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs of an operator object or a callable."""
    probes = krylov.probes(request.n, dtype, device)
    product = _product(operator)
    with full_precision(probes):
        Y = product(probes)  # once before the tensors are recorded, because some objects compute them at the first call
        if not isinstance(Y, Tensor) or not (function.transformed() or function.tracked(Y)):
            return krylov.eigsh(product, probes, request.k, request.largest, request.tol, None)
        closure = Closure(product, probes)
        form = Products(request, closure, dtype, device)
        if not closure.hides_tensors(probes):
            return partial_spectrum.eigenpairs(form, closure.tensors)
        if function.transformed():
            raise NotImplementedError(partial_spectrum.HIDDEN)
        w, V = form.eigenpairs(closure.tensors)
        return partial_spectrum.attach(product(V), w, V, form)


def _product(given: Any) -> krylov.Product:
    for name in ("_matmul", "matmul", "__matmul__", "__call__"):
        if hasattr(given, name):
            found: krylov.Product = getattr(given, name)
            return found
    raise ArgumentError(f"eigsh: expected {_EXPECTED}, got {type(given).__name__}")


_EXPECTED = "a tensor, an object with shape and matmul, or a callable as the operator"


def _is_sparse_pair(given: Any) -> bool:
    """True for the indices and values of a sparse matrix."""
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, Tensor) for x in given)


def _size(given: Any, size: int | None) -> int:
    """Return n, or raise an error if ``given`` is no operator or has no size."""
    if isinstance(given, np.ndarray):
        check_tensor(given, "eigsh", _EXPECTED)
    check_count(size, "size", "eigsh")
    shape = tuple(getattr(given, "shape", ()))
    if _is_sparse_pair(given):
        if size is None:
            raise ArgumentError("eigsh: expected size=n for the indices and values of a sparse matrix (n, n)")
        _check_sparse_pair(given[0], given[1])
        return int(size)
    if not isinstance(given, Tensor) and not shape:
        if not callable(given):
            raise ArgumentError(f"eigsh: expected {_EXPECTED}, got {type(given).__name__}")
        if size is None:
            raise ArgumentError("eigsh: expected size=n for a callable, which maps (n, m) to (n, m)")
        return int(size)
    batched = isinstance(given, Tensor) and given.layout == torch.strided
    if len(shape) < 2 or (len(shape) > 2 and not batched) or shape[-1] != shape[-2]:
        raise ShapeError(f"eigsh: expected a square operator (n, n), got shape {shape}")
    return int(shape[-1])


def _check_sparse_pair(indices: Tensor, values: Tensor) -> None:
    if indices.dtype != torch.int64 or values.ndim != 1 or tuple(indices.shape) != (2, len(values)):
        raise ShapeError(
            f"eigsh: expected indices (2, m) of int64 and values (m,), got shapes {tuple(indices.shape)}, "
            f"{tuple(values.shape)} and {indices.dtype}"
        )
