"""What replaces each function of torch: the same arguments, the same result type, the gradient of this library.

A replacement returns ``NotImplemented`` for arguments that torch itself has to handle: ``out=``, which has no gradient,
layouts and types that only torch knows, and invalid arguments, so that the error message is torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor

from ..autograd.hermitian import from_lower
from ..dispatch.function import eager, transformed
from ..dispatch.torch_internals import nested
from ..errors import ShapeError, broadcast, check_matrix
from ..linalg.decompositions import eigh, svd
from ..linalg.eigenvalues import eigvalsh, svdvals
from ..linalg.least_squares import lstsq, pinv
from ..linalg.matrix_functions import matrix_power, matrix_sqrt
from ..linalg.norms import nuclear_norm, spectral_norm
from ..linalg.polar_factor import polar
from ..rules import Method
from ..solvers.symmetry import hermitian

Replacement = Callable[..., Any]
_MATRIX_NORMS: dict[object, Callable[[Tensor], Tensor]] = {
    "nuc": nuclear_norm,
    2: spectral_norm,
    -2: lambda M: svdvals(M).amin(-1),  # several that are equal share the gradient
}
_RESULTS = {
    name: getattr(torch.return_types, name, None)
    for name in ("linalg_eigh", "linalg_svd", "svd", "linalg_lstsq", "linalg_polar")
}


def _eigh(method: Method, A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    if out is not None or not _square(A) or UPLO not in ("L", "U", "l", "u"):
        return NotImplemented
    return _result("linalg_eigh", *eigh(_lower(A, UPLO), method=method))


def _eigvalsh(method: Method, A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    if out is not None or not _square(A) or UPLO not in ("L", "U", "l", "u"):
        return NotImplemented
    return eigvalsh(_lower(A, UPLO))


def _svd(method: Method, A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> Any:
    if out is not None or not _matrix(A) or _unknown_driver(A, driver):
        return NotImplemented
    return _result("linalg_svd", *svd(A, full_matrices, method=method))


def _old_svd(method: Method, A: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """``torch.svd`` and ``Tensor.svd``: V instead of its conjugate transpose, zeros if no vectors are wanted."""
    if out is not None or not _matrix(A):
        return NotImplemented
    if compute_uv:
        U, S, Vh = svd(A, not some, method=method)
        return _result("svd", U, S, Vh.mH)
    U, V = (A.new_zeros(*A.shape[:-2], n, n) for n in A.shape[-2:])
    return _result("svd", U, svdvals(A), V)


def _svdvals(method: Method, A: Tensor, *, driver: str | None = None, out: Any = None) -> Any:
    if out is not None or not _matrix(A) or _unknown_driver(A, driver):
        return NotImplemented
    return svdvals(A)


def _matrix_norm(
    method: Method,
    A: Tensor,
    ord: Any = "fro",  # noqa: A002
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Any = None,
) -> Any:
    spectral = _MATRIX_NORMS.get(ord) if isinstance(ord, (str, int, float)) else None
    if spectral is None or out is not None or not _matrix(A) or not _two(dim, A) or not _widens(A, dtype):
        return NotImplemented
    rows, columns = (n % A.dim() for n in dim)
    M = (A if dtype is None else A.to(dtype)).movedim((rows, columns), (-2, -1))
    if not M.shape[-1] or not M.shape[-2]:
        return NotImplemented
    result = spectral(M)
    for n in sorted((rows, columns)) if keepdim else ():
        result = result.unsqueeze(n)
    return result


def _norm(
    method: Method,
    A: Tensor,
    ord: Any = None,  # noqa: A002
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Any = None,
) -> Any:
    """``torch.linalg.norm``, where it is the norm of a matrix."""
    if ord is None or not isinstance(A, Tensor) or (dim is None and A.dim() != 2):
        return NotImplemented
    return _matrix_norm(method, A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)


def _old_norm(
    method: Method,
    A: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: torch.dtype | None = None,
) -> Any:
    """``torch.norm`` and ``Tensor.norm``, whose numbers p are norms of vectors."""
    return _norm(method, A, p, dim, keepdim, dtype=dtype, out=out) if p == "nuc" else NotImplemented


def _pinv(
    method: Method,
    A: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Any = None,
) -> Any:
    """Absolute tolerances and tolerances in tensors are left to torch."""
    tolerance = _relative(A, rcond if rtol is None else rtol)
    if out is not None or atol is not None or tolerance is None or (hermitian and A.shape[-2] != A.shape[-1]):
        return NotImplemented
    if hermitian:
        return matrix_power(from_lower(A, "pinv"), -1, rtol=tolerance)  # as torch reads it
    return pinv(A, rtol=tolerance)


def _lstsq(
    method: Method, A: Tensor, b: Tensor, rcond: Any = None, *, driver: str | None = None, out: Any = None
) -> Any:
    """All drivers have one solution here, of minimum norm; they differ in what else they return."""
    tolerance = _relative(A, rcond)
    known = driver in (None, "gelsy", "gels", "gelsd", "gelss") if A.is_cpu else driver in (None, "gels")
    if out is not None or tolerance is None or not known or not isinstance(b, Tensor) or b.dtype != A.dtype:
        return NotImplemented
    vectors = b.dim() == 1 or (b.dim() == A.dim() - 1 and b.shape == A.shape[:-1])
    B = b.unsqueeze(-1) if vectors else b
    if B.dim() != A.dim() or B.shape[-2] != A.shape[-2] or not B.numel() or not broadcast(A.shape[:-2], B.shape[:-2]):
        return NotImplemented
    X, _, rank, _ = lstsq(A, B, rtol=tolerance)
    residuals, values = A.new_empty(0).real, A.new_empty(0).real
    if driver in ("gelsd", "gelss"):
        values = svdvals(A.detach())
    full = driver == "gels" or (values.numel() > 0 and not (eager(rank) and bool((rank < A.shape[-1]).any())))
    if full and A.shape[-2] > A.shape[-1]:
        residuals = (A @ X - B).abs().square().sum(-2)
    ranks = rank if driver != "gels" and A.is_cpu else rank.new_empty(0)
    return _result("linalg_lstsq", X.squeeze(-1) if vectors else X, residuals, ranks, values)


def _relative(A: Any, rtol: Any) -> float | None:
    """Return the tolerance of ``pinv`` and ``lstsq``, or None if torch has to handle the call."""
    if not isinstance(rtol, (float, int, type(None))) or not _matrix(A) or 0 in A.shape:
        return None
    if A.dtype in (torch.float16, torch.bfloat16):
        return None
    tolerance = max(A.shape[-2:]) * torch.finfo(A.dtype).eps if rtol is None else float(rtol)
    return tolerance if 0 <= tolerance <= 1 else None


def _matrix_sqrth(method: Method, A: Tensor) -> Any:
    return matrix_sqrt(from_lower(A, "matrix_sqrth")) if _square(A) else NotImplemented


def _polar(method: Method, A: Tensor, *, out: Any = None) -> Any:
    if out is not None or not _matrix(A) or A.shape[-2] < A.shape[-1]:
        return NotImplemented
    U = polar(A)
    return _result("linalg_polar", U, hermitian(U.mH @ A))


def _result(kind: str, *tensors: Tensor) -> Any:
    """The tensors as the named tuple that torch returns; a plain tuple where torch has none."""
    named = _RESULTS[kind]
    return tensors if named is None else named(tensors)


def _lower(A: Tensor, UPLO: str) -> Tensor:
    """A matrix whose lower triangle has the values that ``UPLO`` selects."""
    return A if UPLO in ("L", "l") else A.mH


def _matrix(A: object) -> bool:
    """True if this library can take ``A``; everything else, such as sparse or integer tensors, is left to torch."""
    try:
        check_matrix(A, "override_linalg")  # type: ignore[arg-type]
    except ShapeError:
        return False
    return torch.compiler.is_compiling() or not (transformed() and nested("Jvp") > 1)


def _square(A: object) -> bool:
    return _matrix(A) and A.shape[-1] == A.shape[-2]  # type: ignore[attr-defined]


def _unknown_driver(A: Tensor, driver: str | None) -> bool:
    """True on devices where torch refuses every driver. On CUDA the solvers of this library choose for themselves."""
    return driver is not None and not A.is_cuda


def _two(dim: Any, A: Tensor) -> bool:
    """True for two different dimensions of ``A``."""
    if not isinstance(dim, (tuple, list)) or len(dim) != 2 or not all(isinstance(n, int) for n in dim):
        return False
    return all(-A.dim() <= n < A.dim() for n in dim) and dim[0] % A.dim() != dim[1] % A.dim()


def _widens(A: Tensor, dtype: torch.dtype | None) -> bool:
    """True if torch accepts ``dtype`` for the computation: of the same kind, and not narrower."""
    return dtype is None or (dtype.is_complex == A.dtype.is_complex and torch.promote_types(A.dtype, dtype) == dtype)


BY_NAME: dict[str, Replacement] = {
    "torch.linalg:eigh": _eigh,
    "torch.linalg:eigvalsh": _eigvalsh,
    "torch.linalg:svd": _svd,
    "torch.linalg:svdvals": _svdvals,
    "torch.linalg:pinv": _pinv,
    "torch.linalg:lstsq": _lstsq,
    "torch.linalg:matrix_norm": _matrix_norm,
    "torch.linalg:norm": _norm,
    "torch.linalg:matrix_sqrth": _matrix_sqrth,  # since torch 2.15
    "torch.linalg:polar": _polar,  # since torch 2.15
    "torch:svd": _old_svd,
    "torch:pinverse": _pinv,
    "torch:norm": _old_norm,
    "torch:Tensor.svd": _old_svd,
    "torch:Tensor.pinverse": _pinv,
    "torch:Tensor.norm": _old_norm,
}


def _functions() -> dict[str, Any]:
    """Return the functions of the names above that this version of torch has."""
    found = {}
    for name in BY_NAME:
        with suppress(AttributeError):
            found[name] = resolve_name(name)
    return found


FUNCTIONS = _functions()
REPLACEMENTS = {function: BY_NAME[name] for name, function in FUNCTIONS.items()}
# The names of the positional and of all arguments of each replacement, without ``method``.
_NAMES = {
    replacement: (
        tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD),
        frozenset(p.name for p in parameters),
    )
    for replacement in set(BY_NAME.values())
    for parameters in [list(inspect.signature(replacement).parameters.values())[1:]]
}


def call(replacement: Replacement, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a replacement with the arguments of torch's function; ``NotImplemented`` if torch has to take them."""
    positional, known = _NAMES[replacement]
    if len(args) > len(positional):
        return NotImplemented
    given = dict(zip(positional, args))  # noqa: B905 – see dispatch/arguments.py
    for name, value in kwargs.items():
        name = "A" if name in ("input", "self") else name
        if name in given or name not in known:
            return NotImplemented
        given[name] = value
    return replacement(method, **given) if "A" in given else NotImplemented
