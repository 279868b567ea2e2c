"""A few eigenpairs of operators that are too large to decompose."""

from __future__ import annotations

from functools import partial
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from ..autograd import partial_spectrum
from ..dispatch import function
from ..dispatch.overrides import overridable
from ..errors import ArgumentError, NonFiniteError, ShapeError
from ..precision import full_precision, magnitude, narrow, working_dtype
from ..rules import Pade
from ..solvers import krylov
from .decompositions import EighResult


def _has_products(x: Any) -> bool:
    """True for operator objects, such as those of linear_operator, which would refuse to override a new function."""
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

    The operator is used through products :math:`AX` only. The gradient flows into the values of a sparse tensor, the
    parameters of an operator object, or any tensors that a callable uses. It includes how the eigenvectors rotate into
    the n − k others, which are never computed: the backward pass solves
    :math:`(\lambda_i-A)z_i=(I-VV^H)\bar v_i` by conjugate gradients. Memory is O(nk).

    Eigenpairs come from ARPACK (scipy, if installed), otherwise from :func:`torch.lobpcg`, which takes real tensors
    only. A Krylov method may miss a copy of a repeated eigenvalue; the gradient of a loss of the eigenvectors then
    raises an error instead of being wrong. The operator must not change between the forward and the backward pass.
    There are no second derivatives, no forward mode and no ``vmap``.

    Args:
        operator: a tensor (n, n), dense or sparse; an object with ``shape`` and ``matmul``, ``_matmul`` or ``@``; or a
            callable that maps (n, m) to (n, m). It has to be Hermitian, which is checked for one pair of vectors.
        k: number of eigenpairs, from 1 to n.
        largest: the algebraically largest eigenvalues, otherwise the smallest.
        tol: relative accuracy of the eigenvalues; 0 for machine precision. The linear solves of the gradient stop at
            the relative residual ``max(tol, 100 ε)``.
        size: n, for a callable.
        dtype: float32, float64, complex64 or complex128, for a callable; the default dtype by default.
        device: for a callable.

    Returns:
        named tuple ``(eigenvalues, eigenvectors)`` of shapes (k,), ascending, and (n, k).

    Raises:
        ArgumentError: ``k`` is out of range, or the operator is not Hermitian or has no products.
        NonFiniteError: a product contains NaN or Inf.
        ConvergenceError: the eigensolver or, in the backward pass, a linear solve did not converge.
        ImportError: scipy is needed and not installed.

    Example:
        >>> diagonal = torch.arange(1.0, 1001.0, dtype=torch.float64, requires_grad=True)
        >>> w, V = eigsh(lambda X: diagonal[:, None] * X, 2, size=1000, dtype=torch.float64)
        >>> w.detach().round(decimals=6)
        tensor([ 999., 1000.], dtype=torch.float64)
        >>> (g,) = torch.autograd.grad(w.sum(), diagonal)
        >>> g[-3:].round(decimals=6).abs()
        tensor([0., 1., 1.], dtype=torch.float64)

    Reference: Xie, Liu and Wang, Automatic differentiation of dominant eigensolver and its applications in quantum
    physics (2020); Lehoucq, Sorensen and Yang, ARPACK Users' Guide (1998).
    """
    A = _Operator(operator, size, dtype, device)
    if not isinstance(k, SupportsIndex) or isinstance(k, bool) or not 1 <= int(k) <= A.size:
        raise ArgumentError(f"eigsh: expected an integer k from 1 to {A.size}, got {k!r}")
    with torch.no_grad(), full_precision(A.start):
        A.check()
        matrix = A.matrix if isinstance(operator, Tensor) else None
        w, V = krylov.eigsh(A.product, A.start, int(k), largest, tol, matrix)
    with full_precision(A.start):
        AV = A.symmetric_product(V)
        if function.tracked(AV):
            residual = max(tol, 100 * torch.finfo(V.dtype).eps)
            w, V = partial_spectrum.attach(AV, w, V, A.product, Pade(), 1 if largest else -1, residual)
    return EighResult(narrow(w, A.dtype), narrow(V, A.dtype))


_EXPECTED = "eigsh: expected a tensor, an object with shape and matmul, or a callable"


def _size(given: Any, size: int | None) -> int:
    """Return n, or raise an error if ``given`` is no operator or has no size."""
    if isinstance(given, np.ndarray):
        raise ArgumentError(f"{_EXPECTED}, got a numpy array; use torch.from_numpy first")
    if size is not None and (not isinstance(size, SupportsIndex) or isinstance(size, bool)):
        raise ArgumentError(f"eigsh: expected size to be an integer, got {size!r}")
    shape = tuple(getattr(given, "shape", ()))
    if not isinstance(given, Tensor) and not shape:
        if not callable(given):
            raise ArgumentError(f"{_EXPECTED}, got {type(given).__name__}")
        if size is None:
            raise ArgumentError("eigsh: expected size=n for a callable, which maps (n, m) to (n, m)")
        return int(size)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError(f"eigsh: expected a square operator (n, n), got shape {shape}")
    return int(shape[0])


class _Operator:
    """The products of what the caller gave, and a fixed vector to start from."""

    def __init__(self, given: Any, size: int | None, dtype: torch.dtype | None, device: Any) -> None:
        self.size, self.matrix = _size(given, size), given
        self.dtype = dtype or getattr(given, "dtype", None) or torch.get_default_dtype()
        if not isinstance(self.dtype, torch.dtype) or not (self.dtype.is_floating_point or self.dtype.is_complex):
            raise ShapeError(f"eigsh: expected a floating-point or complex dtype of torch, got {self.dtype}")
        wide = working_dtype(self.dtype)
        if isinstance(given, Tensor):
            self.matrix = given.to(wide)
            if given.layout not in (torch.strided, torch.sparse_coo):
                self.matrix = self.matrix.to_sparse_coo()
        self.product = self._product()
        generator = torch.Generator().manual_seed(0)  # not the global one: a call must not change other random numbers
        start = torch.randn(self.size, 2, generator=generator, dtype=wide)
        self.probes = start.to(device or getattr(given, "device", "cpu"))
        self.start = self.probes[:, :1]

    def _product(self) -> krylov.Product:
        given = self.matrix
        if isinstance(given, Tensor):
            return lambda X: given @ X
        for name in ("matmul", "_matmul", "__matmul__", "__call__"):
            if hasattr(given, name):
                found: krylov.Product = getattr(given, name)
                return found
        raise ArgumentError(f"{_EXPECTED}, got {type(given).__name__}")

    def symmetric_product(self, X: Tensor) -> Tensor:
        """The product with a tensor's Hermitian part, so that its gradient is Hermitian; of others the product."""
        if not isinstance(self.matrix, Tensor):
            return self.product(X)
        if not self.matrix.is_sparse:
            return (self.matrix @ X + self.matrix.mH @ X) / 2
        # Entry by entry, because the gradient of torch's product with a sparse matrix is a dense one.
        A = self.matrix.coalesce()
        (row, column), values = A.indices(), A.values().unsqueeze(-1)
        below = torch.zeros_like(X).index_add(0, row, values * X[column])
        return below.index_add(0, column, values.conj() * X[row]) / 2

    def check(self) -> None:
        """Raise an error if products are not finite, or contradict that the operator is Hermitian."""
        Y = self.product(self.probes)
        if not isinstance(Y, Tensor) or Y.shape != self.probes.shape:
            got = f"shape {tuple(Y.shape)}" if isinstance(Y, Tensor) else type(Y).__name__
            raise ArgumentError(
                f"eigsh: expected an operator that maps {tuple(self.probes.shape)} to the same shape, got {got}"
            )
        if not bool(torch.isfinite(Y).all()):
            raise NonFiniteError([], (), "eigsh")
        Y = Y / magnitude(Y)
        gram = self.probes.mH @ Y
        allowed = torch.finfo(Y.dtype).eps ** 0.5 * torch.linalg.vector_norm(Y) * torch.linalg.vector_norm(self.probes)
        if bool((gram - gram.mH).abs().max() > allowed):
            raise ArgumentError("eigsh: expected a Hermitian operator, got one with ⟨x, Ay⟩ ≠ ⟨Ax, y⟩")
