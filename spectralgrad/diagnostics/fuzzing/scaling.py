r"""The check of homogeneous operations at other scales: :math:`F(2^{ep}X)=2^{eq}F(X)`, for values and gradients.

Scaling by a power of two is exact, so results at the scales :math:`2^{\pm500}` (float64) and :math:`2^{\pm60}`
(float32) must be those at scale one times a power of two, wherever that is representable; ±inf where it overflows; and
never NaN.
Errors are measured in units of rounding, or of the change that rounding errors in the input make, if that is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...precision import exponent_of, largest, ldexp, mean
from ...rules import METHODS, PI, SVDPI, Clip, Method, Trunc
from .cases import Case
from .checks import GRADIENT, Finding, within
from .families import Kind
from .references import wide

BITS = {torch.float32: 60, torch.complex64: 60, torch.float64: 500, torch.complex128: 500}
_OVERFLOW = 4.0  # factor beyond the largest finite number from which a result must be infinite
# The papers' thresholds are absolute numbers; these are the same methods made relative.
RELATIVE: dict[str, Method] = {
    "svd-clip": Clip(relative=True),
    "svd-trunc": Trunc(relative=True),
    "svd-pi": SVDPI(eps=0.0),
    "pi": PI(eps=0.0),
}
# They divide by rounding errors at a tie, or cut through it (svd-pi keeps one of two equal eigenvalues).
CUTTING = ("svd", "svd-topn", "svd-inv", "svd-pi")
Scale = tuple[tuple[int, ...], tuple[float, ...]]


class Homogeneous(NamedTuple):
    """An operation, its arguments made of matrices of norm one, and the scales to which it is homogeneous.

    Attributes:
        kinds: the kinds of input that ``arguments`` accepts.
        arguments: makes tensors (batch, ...) of matrices.
        call: the operation; returns a tensor (batch, ...) or a tuple of them. It accepts ``method`` if it has methods.
        scales: pairs of the powers p of the arguments and the degrees q of the results.
        real: True if the operation accepts real input only.
    """

    kinds: tuple[Kind, ...]
    arguments: Callable[[Tensor], tuple[Tensor, ...]]
    call: Callable[..., Any]
    scales: tuple[Scale, ...]
    real: bool = False


class _Results(NamedTuple):
    values: list[Tensor]
    gradients: list[list[Tensor]]  # of each result, in each argument


def judge_scales(operation: Homogeneous, case: Case, method: str = "") -> Iterator[Finding]:
    """Compares values and gradients at the scales 2^±500 or 2^±60 with those at scale one.

    A method whose thresholds are absolute numbers is replaced by its relative form. Methods in ``CUTTING`` are judged
    where no eigenvalues are close. Gradients that overflow must be infinite, except by gap rules that saturate.
    """
    M, info = case.matrices, torch.finfo(case.matrices.dtype)
    sizes = largest(M)
    denormal = bool(((sizes > 0) & (sizes * info.eps < info.tiny)).any())  # rounded, so no longer of their kind
    if denormal or (operation.real and M.dtype.is_complex):
        return
    if method:
        operation = operation._replace(call=partial(operation.call, method=RELATIVE.get(method, method)))
    infinite = not getattr(METHODS.get(method), "saturates", False)
    e = exponent_of(sizes)
    inputs = operation.arguments(ldexp(M, -e[:, None, None]))
    base = _evaluated(operation, inputs, case)
    near = _evaluated(operation, [_perturbed(x, case) for x in inputs], case)
    for (powers, degrees), sign in product(operation.scales, (1, -1)):
        bits = torch.tensor(float(sign * BITS[M.dtype]), dtype=torch.float64)
        moved = [ldexp(x, bits * p) for x, p in zip(inputs, powers, strict=True)]
        exact = torch.stack([_same(ldexp(y, -bits * p), x) for x, y, p in zip(inputs, moved, powers, strict=True)])
        found = _evaluated(operation, moved, case)
        judged = exact.all(0) & (_apart(inputs[0]) if method in CUTTING else True)
        yield from _compared(found, base, near, judged, bits, powers, degrees, infinite)


def _apart(X: Tensor) -> Tensor:
    """True (batch,) if no two singular values are close, with the mean over columns and without."""
    result = torch.ones(len(X), dtype=torch.bool)
    for Y in (wide(X), wide(X) - mean(wide(X))):
        s = torch.linalg.svdvals(Y)
        tolerance = 100 * max(X.shape[-2:]) * torch.finfo(X.dtype).eps * s[:, :1]
        result &= ~(s[:, :-1] - s[:, 1:] <= tolerance).any(1)
    return result


def _compared(
    found: _Results,
    base: _Results,
    near: _Results,
    exact: Tensor,
    bits: Tensor,
    powers: Any,
    degrees: Any,
    infinite: bool,
) -> Iterator[Finding]:
    label = f"at 2^{int(bits)}"
    for k, q in enumerate(degrees):
        yield from _finding(f"value {label}", (found.values[k], base.values[k], near.values[k]), exact, bits * q)
        for j, p in enumerate(powers):
            parts = found.gradients[k][j], base.gradients[k][j], near.gradients[k][j]
            yield from _finding(f"gradient {label}", parts, exact, bits * (q - p), infinite)


def _finding(
    check: str, results: tuple[Tensor, Tensor, Tensor], exact: Tensor, shift: Tensor, infinite: bool = True
) -> Iterator[Finding]:
    """Compares a result with the one at scale one times 2^shift; the third belongs to a perturbed input.

    ``infinite``: entries that overflow must be infinite.
    """
    found, base, near = results
    info = torch.finfo(found.dtype)
    known = exact & torch.isfinite(_parts(base)).all(1)
    yield Finding(f"{check} not NaN", (torch.isnan(_parts(found)).any(1) & known).double(), 0.5)
    unit = max(base.shape[1:], default=1) * info.eps * _norm(base) + _norm(wide(base) - wide(near))
    expected = ldexp(wide(base), shift)
    top = largest(expected, expected.dim() - 1)
    representable = known & (top < info.max / _OVERFLOW) & (top * info.eps > info.tiny)
    error = _norm(ldexp(wide(found), -shift) - wide(base))
    yield within(check, torch.where(representable, error, 0), unit, representable, GRADIENT)
    if not infinite:
        return
    clear = (_parts(expected).abs() > _OVERFLOW * info.max) & (_parts(wide(base)).abs() > GRADIENT * unit.unsqueeze(1))
    wrong = clear & (_parts(found) != torch.sign(_parts(wide(base))) * torch.inf)
    yield Finding(f"{check} infinite", (wrong.any(1) & known).double(), 0.5)


def _parts(x: Tensor) -> Tensor:
    """Real and imaginary parts (batch, ...)."""
    return (torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x).reshape(len(x), -1)


def _norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(_parts(wide(x)), dim=1)


def _same(x: Tensor, y: Tensor) -> Tensor:
    return (_parts(x) == _parts(y)).all(1)


def _perturbed(x: Tensor, case: Case) -> Tensor:
    """The input with errors of two roundings of its norm; Hermitian matrices remain so."""
    noise = case.cotangent(x, 7)
    if x.dim() == 3 and x.shape[-1] == x.shape[-2] and torch.equal(x, x.mH):
        noise = (noise + noise.mH) / 2
    scale = largest(x, x.dim() - 1).reshape(-1, *[1] * (x.dim() - 1))
    return x + 2 * torch.finfo(x.dtype).eps * scale * noise


def _evaluated(operation: Homogeneous, inputs: Any, case: Case) -> _Results:
    leaves = [x.clone().requires_grad_() for x in inputs]
    results = operation.call(*leaves)
    results = (results,) if isinstance(results, Tensor) else results
    gradients = []
    for k, y in enumerate(results):
        constant = [None] * len(leaves)  # as the scale of an alignment that fits none
        given = {"retain_graph": True, "allow_unused": True}
        found = torch.autograd.grad(y, leaves, case.cotangent(y, k), **given) if y.requires_grad else constant
        gradients.append([torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)])
    return _Results([y.detach() for y in results], gradients)
