"""Batches of all sizes: LAPACK's acceptance test, values and gradients, and 50-digit references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.diagnostics.conformance_cases import Draw, cases, draw_polar, draw_root, polar_cases
from spectralgrad.diagnostics.fuzzing.families import FAMILIES

from .agreement import ROUNDINGS, answer, require, rounding
from .checks import Check, Skip, Wrong
from .contract import answers, value_and_gradient
from .target import Target

_TYPES = (torch.float32, torch.float64, torch.complex64)
_SIZES, _QUICK = (1, 2, 3, 4, 5, 8, 9, 16, 33, 64), (2, 3, 4, 8, 16)
_BATCH = 5
_SHAPES = {"1000×3": (1000, 3), "3×100": (3, 100), "200×8": (200, 8), "64×40": (64, 40)}
_LAPACK = 30.0  # the limit of LAPACK's own test programs

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "eigvalsh": sg.eigvalsh,
    "svdvals": sg.svdvals,
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_inv_sqrt": sg.matrix_inv_sqrt,
    "matrix_log": sg.matrix_log,
    "matrix_exp": sg.matrix_exp,
    "polar": lambda A: sg.polar(A.cumsum(-1)),  # of a positive definite matrix it is the identity
    "polar special": lambda A: sg.polar(A.cumsum(-1), special=True),
    "procrustes": lambda A: sg.procrustes(A, A.flip(-2).sin()).rotation,
    "nuclear_norm": sg.nuclear_norm,
    "affine_invariant": lambda A: sg.affine_invariant(A, A.mH @ A + torch.eye(A.shape[-1], device=A.device).to(A)),
}


def _eigh(family: str, dtype: torch.dtype, sizes: tuple[int, ...], target: Target) -> str:
    worst = 0.0
    for d in sizes:
        A = _drawn(family, d, dtype)
        w, V = (x.cpu() for x in sg.eigh(target.put(A)))
        ratios = [sg.solvers.eigh_ratio(M, (w[i], V[i])) for i, M in enumerate(A)]
        worst = _judged(worst, max(ratios), f"{d}×{d}")
    return f"largest ratio {worst:.2g}"


def _svd(family: str, dtype: torch.dtype, sizes: tuple[int, ...], target: Target) -> str:
    worst = 0.0
    shapes: dict[str, Tensor] = {f"{d}×{d}": _drawn(family, d, dtype) for d in sizes}
    shapes |= {name: torch.randn(_BATCH, *shape).to(dtype) for name, shape in _SHAPES.items()}
    for name, M in shapes.items():
        U, S, Vh = (x.cpu() for x in sg.svd(target.put(M), full_matrices=False))
        ratios = [sg.solvers.svd_ratio(one, (U[i], S[i], Vh[i])) for i, one in enumerate(M)]
        worst = _judged(worst, max(ratios), name)
    return f"largest ratio {worst:.2g}"


def _judged(worst: float, ratio: float, what: str) -> float:
    if not ratio < _LAPACK:
        raise Wrong(f"{what}: LAPACK's test ratio is {ratio:.3g}, allowed are {_LAPACK:g}")
    return max(worst, ratio)


def _drawn(family: str, d: int, dtype: torch.dtype) -> Tensor:
    random = np.random.default_rng(d)
    return torch.from_numpy(FAMILIES[family].make(random, _BATCH, d, dtype.is_complex)).to(dtype)


def _batched(call: Callable[[Tensor], Tensor], dtype: torch.dtype, sizes: tuple[int, ...], target: Target) -> str:
    """Compare with the CPU in double precision."""
    if dtype not in target.dtypes:
        raise Skip(f"the device has no {dtype}".replace("torch.", ""))
    way = value_and_gradient(call)
    for d in sizes:
        A = _regular(d, dtype)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        require(answer(way, target.put(A)), answers(way, A, wide), dtype, f"{d}×{d}", target.device.type)
    return f"{len(sizes)} sizes"


def _regular(d: int, dtype: torch.dtype) -> Tensor:
    """Positive definite matrices (7, d, d) of condition number 20 or less."""
    generator = torch.Generator().manual_seed(d)
    X = torch.randn(7, d, 3 * d, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    return (X @ X.mH / (3 * d) + 0.3 * torch.eye(d)).to(dtype)


def _fifty_digits(function: str, dtype: torch.dtype, target: Target) -> str:
    if dtype not in target.dtypes:
        raise Skip(f"the device has no {dtype}".replace("torch.", ""))
    call = sg.polar if function == "polar" else FUNCTIONS[function]
    rows = [case for case in (polar_cases() if function == "polar" else cases()) if case.dtype == dtype]
    for case in rows:
        drawn: Draw = (
            draw_polar(case, 0) if function == "polar" else draw_root(case, function.removeprefix("matrix_"), 0)
        )
        condition = max(case.eigenvalues) / min(case.eigenvalues)
        error = max(drawn.errors(lambda X: call(X.to(target.device)).cpu()))
        allowed = ROUNDINGS * rounding(dtype) * condition
        if not error <= allowed:
            raise Wrong(f"{case.label}: relative error {error:.1e}, allowed are {allowed:.1e}")
    return f"{len(rows)} matrices"


def checks(quick: bool) -> Iterator[Check]:
    """Decompositions of all families and sizes, functions of batches, and gradients against 50 digits."""
    sizes, types = (_QUICK, _TYPES[:2]) if quick else (_SIZES, _TYPES)
    for dtype in types:
        short = str(dtype).removeprefix("torch.")
        for family, made in FAMILIES.items():
            if made.kind != "features":
                yield Check("decompositions", f"eigh, {family}, {short}", _typed(_eigh, family, dtype, sizes))
            yield Check("decompositions", f"svd, {family}, {short}", _typed(_svd, family, dtype, sizes))
        for name, call in FUNCTIONS.items():
            yield Check("batches", f"{name}, {short}", partial(_batched, call, dtype, sizes))
    for dtype in _TYPES[:2]:
        for function in ("matrix_sqrt", "matrix_inv_sqrt", "polar"):
            name = f"{function}, {str(dtype).removeprefix('torch.')}"
            yield Check("50 digits", name, partial(_fifty_digits, function, dtype))


def _typed(run: Callable[..., str], family: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> Callable[[Target], str]:
    def of_type(target: Target) -> str:
        if dtype not in target.dtypes:
            raise Skip(f"the device has no {dtype}".replace("torch.", ""))
        return run(family, dtype, sizes, target)

    return of_type
