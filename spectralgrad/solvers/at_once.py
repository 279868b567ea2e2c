"""The shortest way to decompositions and roots of small batches, for which Python costs more than the computation.

What to call depends on shape and type alone and is looked up once for each. What remains is one guard, new tensors and
the call. Whatever the guard does not let through takes the usual way through the operators, which makes the checks that
are not made here; matrices that the kernel fails on go down the usual ladder.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..dispatch import function
from ..native import kernel
from ..native.functions import UNCHECKED, checked
from ..precision import rounded_to
from . import choice, fused
from .batch_invariance import active as batch_invariant
from .call_counts import counts
from .ladder import EIGH, SVD


def eigh(A: Tensor, operation: str = "eigh") -> tuple[Tensor, Tensor] | None:
    """Return eigenvalues and eigenvectors, or None if they have to be computed in the usual way.

    The kernel must be used, no gradient be wanted, and nothing observe the call.
    """
    plan = _plan(A)
    if plan is None:
        return None
    A = A if A.is_contiguous() else A.contiguous()
    pointer = A.data_ptr()
    w, V = A.new_empty(*plan.values), torch.empty_like(A)  # torch reads separate sizes faster than a tuple
    failed = plan.eigh(pointer, w.data_ptr(), V.data_ptr(), plan.batch, plan.d, UNCHECKED, torch.get_num_threads())
    counts.call(plan.batch)
    if failed:
        w, V = EIGH.completed(A, ((w, V), checked("eigh", failed)), operation)
    return w, V


def prepared(A: object) -> bool:
    """True if ``A`` is a tensor of real symmetric matrices that carries a gradient and that the kernel decomposes."""
    return function.recorded(A) and kernel() is not None and choice.plan(A.shape, A.dtype) is not None  # type: ignore[attr-defined]


def eigvalsh(A: Tensor) -> Tensor | None:
    """The same for eigenvalues alone; None also if the kernel fails on a matrix."""
    plan = _plan(A)
    if plan is None:
        return None
    A = A if A.is_contiguous() else A.contiguous()
    w = A.new_empty(*plan.values)
    if plan.eigh(A.data_ptr(), w.data_ptr(), None, plan.batch, plan.d, UNCHECKED, torch.get_num_threads()):
        return None
    counts.call(plan.batch)
    return w


def root_and_eigenpairs(
    A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The same for :func:`spectralgrad.solvers.root_and_eigenpairs`."""
    plan = _plan(A)
    if plan is None or plan.root is None:
        return None
    A = A if A.is_contiguous() else A.contiguous()
    s, V, S = A.new_empty(*plan.values), torch.empty_like(A), torch.empty_like(A)
    pointers = A.data_ptr(), s.data_ptr(), V.data_ptr(), S.data_ptr()
    tolerances = plan.tolerances
    if rtol >= 0 or clamp or dtype is not plan.dtype:
        zero, negative, asymmetry = choice.tolerances(plan.d, plan.dtype, dtype)
        tolerances = zero if rtol < 0 else rtol, math.inf if clamp else negative, asymmetry
    doubtful = plan.root(plan.codes[inverse], *pointers, plan.batch, plan.d, *tolerances, torch.get_num_threads())
    counts.call(plan.batch)
    if checked("root", doubtful):
        own = dtype is plan.dtype  # and under autocast, the type of products, for which the kernel was too strict
        fused.repair(A, (S, s, V), operation, inverse, rtol, clamp, rounded_to(A) if own else dtype)
    return S, s, V


def root_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor | None:
    """The same for :func:`spectralgrad.solvers.root_derivative`."""
    plan = _plan(V)
    if plan is None or plan.frechet is None or not function.unobserved(G):
        return None
    if not s.dtype == V.dtype == G.dtype or not V.is_contiguous() or not s.is_contiguous() or not s.data_ptr():
        return None  # hooks on saved tensors may change them
    G = G if G.is_contiguous() else G.contiguous()
    X = torch.empty_like(G)
    pointers = V.data_ptr(), s.data_ptr(), None, G.data_ptr(), X.data_ptr()
    tail = plan.batch, plan.d, torch.get_num_threads()
    checked("frechet", plan.frechet(plan.codes[inverse], terms, *pointers, *tail))
    return X


def svd(M: Tensor, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor] | None:
    """The same for U, S and Vh."""
    usual = not function.unobserved(M) or kernel() is None
    plan = None if usual else choice.svd_plan(M.shape, M.dtype, batch_invariant())
    if plan is None:
        return None
    _require_memory(M)
    M = M if M.is_contiguous() else M.contiguous()
    U, S, Vh = M.new_empty(*plan.U), M.new_empty(*plan.S), M.new_empty(*plan.Vh)
    pointers = M.data_ptr(), U.data_ptr(), S.data_ptr(), Vh.data_ptr()
    failed = plan.svd(*pointers, *plan.sizes, torch.get_num_threads())
    counts.call(plan.sizes[0])
    if failed:
        U, S, Vh = SVD.completed(M, ((U, S, Vh), checked("svd", failed)), operation)
    return U, S, Vh


def prepared_svd(M: object) -> bool:
    """The same as :func:`prepared` for singular value decompositions of matrices (*, m, n)."""
    return function.recorded(M) and kernel() is not None and choice.svd_plan(M.shape, M.dtype) is not None  # type: ignore[attr-defined]


def _plan(A: Tensor) -> choice.Plan | None:
    """Return what to call for ``A`` if the call can go straight to the kernel."""
    usual = not function.unobserved(A) or kernel() is None
    plan = None if usual else choice.plan(A.shape, A.dtype, batch_invariant())
    if plan is not None:
        _require_memory(A)
    return plan


def _require_memory(x: Tensor) -> None:
    """Raise an error for a tensor whose memory was freed; torch's own operations would end the process."""
    if not x.data_ptr():
        raise RuntimeError("expected a tensor with memory; its storage was freed, as fully sharded training does")
