"""The forward pass as operators registered with torch.library: the only way to the solvers.

Checks, driver and fallbacks form one opaque operator, so eager mode, ``torch.compile(fullgraph=True)`` and
``torch.func.vmap`` all run the same code. The operators have no derivatives; these are defined by the autograd
functions that call them. A call is tried in this order:

1. one call of the kernel, if nothing observes it and the kernel is used for the shape and type (:meth:`at_once`);
2. the function behind the operator, if nothing observes the call, which saves the overhead of torch's dispatcher;
3. the operator.

The rules for fake tensors and for vmap follow from a signature such as ``(m,n)->(m,k),(k),(k,n)``: the dimensions of
the matrices, vectors and numbers, ``()``, behind the batch dimensions, k = min(m, n). Vectors and numbers are real.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from ...dispatch import function, host
from ...dispatch.custom_operators import bodies, current, custom_operator, fake_rule, vmap_rule
from ...dispatch.torch_internals import conjugates_applied
from ...native.functions import in_memory
from ..call_counts import counts
from ..kernel import inverse_roots, roots
from . import choice, polar_algorithms, schur_forms
from . import generalised as pencil
from .fallbacks import EIGH, SVD, eigenvalues, eigenvalues_by_kernel

P = ParamSpec("P")
R = TypeVar("R")
Dims = tuple[str, ...]


class Operator(Generic[P, R]):
    """A function of tensors and the torch.library operator made of it; the operator is called only where needed.

    Attributes:
        function: what the operator computes.
        by_kernel: the same in one call of the kernel, or None where the kernel is not used.
        operator: the operator. Without a signature, its rules for fake tensors and vmap are registered separately.
    """

    function: Callable[P, R]
    packed: Callable[P, R]
    operator: Any
    inputs: list[Dims]
    results: list[Dims]

    def __init__(
        self, function: Callable[P, R], signature: str | None = None, by_kernel: Callable[..., R | None] | None = None
    ) -> None:
        self.function, self.packed, self.__doc__ = function, _packed(function), function.__doc__
        self.by_kernel, self.name = by_kernel, function.__name__
        self.operator = custom_operator(self.packed)
        if signature is not None:
            self.inputs, self.results = map(_dims, signature.split("->"))
            fake_rule(self.operator)(self._fake)
            vmap_rule(self.operator)(self._mapped)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        found = self.at_once(*args) if not kwargs else None
        return self.in_general(*args, **kwargs) if found is None else found

    def at_once(self, *args: Any) -> R | None:
        """Return the result if it takes one call of the kernel and nothing observes the call, otherwise None.

        The first arguments may be anything; what is no tensor, or not one that the kernel takes, leads to None.
        """
        if self.by_kernel is None or not function.unobserved(*args[: len(self.inputs)]):
            return None
        return self.by_kernel(*args)

    def in_general(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or the operator if anything observes the call."""
        tensors = [x for x in args if isinstance(x, Tensor)]
        here = function.eager(*tensors)
        if not here and not function.eager(*tensors, anywhere=True):
            result: R = current(self.name)(*args, **kwargs)
            return result
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            args = tuple(x.detach() if isinstance(x, Tensor) else x for x in args)  # type: ignore[assignment]
        run = self.function if all(x.numel() for x in tensors) else self.packed
        if not here:
            return bodies[self.name](*args, **kwargs)  # type: ignore[no-any-return]
        return run(*args, **kwargs) if tensors[0].is_cpu else host.computed(run, args, kwargs)

    def _fake(self, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """Return new tensors of the shapes and types of the results."""
        sizes: dict[str, int] = {}
        for dims, x in zip(self.inputs, args, strict=False):
            sizes |= dict(zip(dims, x.shape[-len(dims) :], strict=True))
        if "m" in sizes and "k" not in sizes:
            sizes["k"] = min(sizes["m"], sizes["n"])
        like = args[len(self.inputs) - 1]
        batch, real = like.shape[: -len(self.inputs[-1])], like.dtype.to_real()
        found = [
            like.new_empty((*batch, *(sizes[dim] for dim in dims)), dtype=like.dtype if len(dims) == 2 else real)
            for dims in self.results
        ]
        return found[0] if len(found) == 1 else tuple(found)

    def _mapped(self, info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        """Call the operator with the mapped dimension as the first dimension of the batch."""
        count = len(self.inputs)
        tensors = in_front(info.batch_size, in_dims[:count], *args[:count])
        results = self(*tensors, *args[count:])  # type: ignore[call-arg, arg-type]
        return results, 0 if isinstance(results, Tensor) else (0,) * len(self.results)


def _dims(side: str) -> list[Dims]:
    """The dimensions in each pair of parentheses."""
    return [tuple(re.findall(r"\w+", dims)) for dims in re.findall(r"\((.*?)\)", side)]


def _packed(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``function`` so that its results are contiguous, as the shape rule promises, including empty ones.

    ``contiguous()`` alone does not change the strides of an empty tensor. Eager calls skip this wrapper unless an input
    is empty.
    """

    def pack(x: Tensor) -> Tensor:
        return x.contiguous() if x.numel() else x.new_empty(x.shape)

    @wraps(function)
    def packed(*args: P.args, **kwargs: P.kwargs) -> R:
        with conjugates_applied():
            result = function(*args, **kwargs)
        return pack(result) if isinstance(result, Tensor) else tuple(map(pack, result))  # type: ignore

    return packed


def in_front(batch: int, dims: Sequence[int | None], *tensors: Tensor) -> list[Tensor]:
    """Move the mapped dimension of each tensor to the front; expand tensors that are not mapped."""
    return [
        x.unsqueeze(0).expand(batch, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(tensors, dims, strict=False)
    ]


def operator(signature: str, by_kernel: Callable[..., Any] | None = None) -> Callable[[Callable[P, R]], Operator[P, R]]:
    """Make an :class:`Operator` of a function. A decorator."""
    return lambda function: Operator(function, signature, by_kernel)


@operator("(d,d)->(d),(d,d)", EIGH.by_kernel)
def eigh(A: Tensor, operation: str = "eigh", dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Return ascending eigenvalues (*, d) and eigenvectors (*, d, d) of Hermitian ``A``.

    The lower triangle is read. With a ``dtype``, asymmetry beyond its rounding error is an error.
    """
    w, V = EIGH.solve(A, operation, dtype)
    return w, V  # LAPACK's are in column-major order; only the operator makes them contiguous


@operator("(d,d)->(d)", eigenvalues_by_kernel)
def eigvalsh(A: Tensor, operation: str = "eigvalsh") -> Tensor:
    """Return ascending eigenvalues (*, d) of Hermitian ``A`` (lower triangle read); no vectors are computed."""
    return eigenvalues(A, operation)


@operator("(d,d),(d,d)->(d),(d,d)")
def pencil_eigh(A: Tensor, B: Tensor, operation: str = "eigh") -> tuple[Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.decompose.generalised.eigh`."""
    w, X = pencil.eigh(A, B, operation)
    return w, X


@operator("(d,d),(d,d)->(d)")
def pencil_eigvalsh(A: Tensor, B: Tensor, operation: str = "eigvalsh") -> Tensor:
    """See :func:`spectralgrad.solvers.decompose.generalised.eigvalsh`."""
    return pencil.eigvalsh(A, B, operation)


@operator("(m,n)->(m,k),(k),(k,n)", SVD.by_kernel)
def svd(M: Tensor, operation: str = "svd") -> tuple[Tensor, Tensor, Tensor]:
    """Return the reduced singular value decomposition U (*, m, k), S (*, k), Vh (*, k, n)."""
    U, S, Vh = SVD.solve(M, operation)
    return U.contiguous(), S, Vh.contiguous()


def _svdvals_by_kernel(M: Tensor, operation: str = "svdvals") -> Tensor | None:
    plan = choice.singular(M)
    if plan is None:
        return None
    S, failed = plan.svdvals(in_memory(M))
    if failed:  # the others keep their values, which do not depend on these
        SVD.readable(M, operation)
        at = S.isnan().any(-1)
        S[at] = SVD.solve(M[at], operation)[1]
    counts.call(plan.batch - failed)
    return S


@operator("(m,n)->(k)", _svdvals_by_kernel)
def svdvals(M: Tensor, operation: str = "svdvals") -> Tensor:
    """Return descending singular values (*, k); where the kernel is used, no vectors are computed."""
    found = _svdvals_by_kernel(M, operation)
    return SVD.solve(M, operation)[1] if found is None else found


@operator("(d,d)->(d,d),(d),(d,d)", roots.root_by_kernel)
def root_and_eigenpairs(
    A: Tensor, operation: str, inverse: bool, rtol: float, clamp: bool, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.kernel.roots.root_and_eigenpairs`."""
    return roots.root_and_eigenpairs(A, operation, inverse, rtol, clamp, dtype)


@operator("(d,d),(d),(d,d)->(d,d)", roots.root_derivative_by_kernel)
def root_derivative(V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
    """See :func:`spectralgrad.solvers.kernel.roots.root_derivative`."""
    return roots.root_derivative(V, s, G, inverse, terms)


@operator("(d,d),(d,d),(d,d)->(d,d)", roots.function_derivative_by_kernel)
def function_derivative(V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
    """See :func:`spectralgrad.solvers.kernel.roots.function_derivative`."""
    return roots.function_derivative(V, gamma, G)


@operator("(m,n)->(m,n),(n),(n,n)", polar_algorithms.by_kernel)
def polar_factors(M: Tensor, operation: str = "polar", rtol: float = -1.0) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.decompose.polar_algorithms.polar_factors`."""
    Q, h, Vh = polar_algorithms.polar_factors(M, operation, rtol)
    return Q, h, Vh.contiguous()


@operator("(d,d)->(d,d),(d),(d,d)", polar_algorithms.rotations_by_kernel)
def rotations(M: Tensor, operation: str = "polar", rtol: float = -1.0) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.decompose.polar_algorithms.rotations`."""
    Q, h, Vh = polar_algorithms.rotations(M, operation, rtol)
    return Q, h, Vh.contiguous()


@operator("(d,d)->(d,d)")
def inverse_root(
    A: Tensor,
    operation: str,
    p: float,
    eps: float,
    relative: bool,
    rtol: float,
    clamp: bool,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """See :func:`spectralgrad.solvers.kernel.inverse_roots.inverse_root`."""
    return inverse_roots.inverse_root(A, operation, p, eps, relative, rtol, clamp, dtype)


@operator("(d,d)->(d,d),(d,d)")
def schur(A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
    """See :func:`spectralgrad.solvers.decompose.schur_forms.schur`."""
    return schur_forms.schur(A, operation)


@operator("(m,m),(n,n),(m,n)->(m,n)")
def triangular_sylvester(T: Tensor, S: Tensor, F: Tensor, operation: str, adjoint: bool) -> Tensor:
    """See :func:`spectralgrad.solvers.decompose.schur_forms.triangular_sylvester`."""
    return schur_forms.triangular_sylvester(T, S, F, operation, adjoint)
