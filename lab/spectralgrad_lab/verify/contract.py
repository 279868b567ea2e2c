"""The numeric contract: value and gradient of every public function and layer, on easy and on hard matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from spectralgrad.diagnostics.every_function import CALLS, METHODS, loss
from spectralgrad.diagnostics.every_layer import LAYERS, layer_and_input
from spectralgrad.precision import working_dtype
from spectralgrad.testing import with_spectrum

from .agreement import Answer, Results, Way, answer, perturbed, require, rounding
from .checks import Check, Skip, Wrong
from .target import TYPES, Target

# Binary exponents by which matrices are scaled: far from one, but not beyond what squares can represent.
_FAR = {torch.float64: 300, torch.float32: 40, torch.complex64: 40, torch.bfloat16: 40, torch.float16: 4}
_REFERENCED = {"regular", "tied", "identity", "graded"}  # definite in any precision
# Where a result or its gradient is not unique: of tiny features, the covariance with eps is a multiple of the identity;
# of the identity, two correlations are equal, and they have different weights.
_UNDEFINED = {("whiten pca", "tiny"), ("canonical_correlations with eps", "identity")}
_LAYER_TYPES = (torch.float32, torch.float64, torch.bfloat16)


def spectra(dtype: torch.dtype) -> dict[str, Tensor]:
    """Matrices (4, 4) of this type, easy and hard.

    Example:
        >>> list(spectra(torch.float32))
        ['regular', 'tied', 'identity', 'graded', 'singular', 'huge', 'tiny']
    """
    wide = torch.complex128 if dtype.is_complex else torch.float64
    regular = with_spectrum([1.0, 1.7, 2.9, 4.1], dtype=wide)
    found = {
        "regular": regular,
        "tied": with_spectrum([1.0, 1.0, 3.0, 3.0], dtype=wide),
        "identity": torch.eye(4, dtype=wide),
        "graded": with_spectrum([1e-4, 1e-3, 0.1, 1.0], dtype=wide),
        "singular": with_spectrum([0.0, 0.0, 1.0, 2.0], dtype=wide),
        "huge": regular * 2.0 ** _FAR[dtype],
        "tiny": regular * 2.0 ** -_FAR[dtype],
    }
    return {name: A.to(dtype) for name, A in found.items()}


def value_and_gradient(call: Callable[[Tensor], Tensor]) -> Way:
    """The function that returns the result of a call and the gradient of a weighted sum of its numbers."""

    def both(A: Tensor) -> Results:
        leaf = A.detach().clone().requires_grad_()
        value = call(leaf)
        weighted = loss(lambda _: value)(leaf)
        if not weighted.requires_grad:
            return (value,)
        return value, torch.autograd.grad(weighted, leaf)[0]

    return both


def _function(function: str, call: Callable[[Tensor], Tensor], dtype: torch.dtype, target: Target) -> str:
    _require_type(dtype, target)
    way, wrong, compared = value_and_gradient(call), [], 0
    for name, A in spectra(dtype).items():
        if (function, name) in _UNDEFINED:
            continue
        try:
            references = answers(way, A, _reference_type(name, dtype))
        except (RuntimeError, TypeError, ValueError):  # torch's: not for this type
            continue
        compared += 1
        try:
            require(answer(way, target.put(A)), references, dtype, name, target.device.type)
        except Wrong as found:
            wrong.append(str(found))
        except Exception as problem:
            wrong.append(f"{name}: {type(problem).__name__}: {problem}")
    if wrong:
        raise Wrong("; ".join(wrong))
    if not compared:
        raise Skip(f"not available for {_short(dtype)}")
    return f"{compared} matrices"


def answers(way: Way, A: Tensor, wide: torch.dtype | None, symmetric: bool = True) -> list[Answer]:
    """The CPU's answers for ``A`` and perturbed matrices: in the type ``wide``, if there is one, and in their own."""
    near = [A, *perturbed(A, rounding(A.dtype), symmetric)]
    in_wide = [] if wide is None else [x.to(wide) for x in (A, *perturbed(A.to(wide), rounding(A.dtype), symmetric))]
    return [answer(way, x) for x in (*in_wide, *near)]


def _reference_type(spectrum: str, dtype: torch.dtype) -> torch.dtype | None:
    """The type in which the CPU computes the reference; None for its own, where rounding decides about the rank."""
    half = working_dtype(dtype) != dtype
    if dtype == torch.float64 or spectrum not in _REFERENCED or (half and spectrum != "regular"):
        return None
    return torch.complex128 if dtype.is_complex else torch.float64


def _layer(name: str, training: bool, dtype: torch.dtype, target: Target) -> str:
    _require_type(dtype, target)
    X = layer_and_input(name)[1].to(dtype)
    references = answers(_passes(name, training, dtype), X, torch.float64, symmetric=False)
    found = answer(_passes(name, training, dtype, target), target.put(X))
    require(found, references, dtype, "training" if training else "evaluation", target.device.type)
    return ""


def _passes(name: str, training: bool, dtype: torch.dtype, target: Target | None = None) -> Way:
    """Output, gradients of input and parameters, and buffers of a layer, which has seen one batch before.

    Its parameters are rounded to ``dtype``, and computed with in the type of its input.
    """

    def passes(X: Tensor) -> Results:
        layer = layer_and_input(name)[0].to(dtype).to(X.dtype)
        if target is not None:
            layer = layer.to(target.device)
        torch.manual_seed(0)
        layer.train()(X.flip(0))
        layer.train(training)
        leaf = X.clone().requires_grad_()
        output = layer(leaf)
        parameters = [p for p in layer.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss(lambda _: output)(leaf), [leaf, *parameters], allow_unused=True)
        return output, *(g for g in gradients if g is not None), *(b for b in layer.buffers() if b.is_floating_point())

    return passes


def _require_type(dtype: torch.dtype, target: Target) -> None:
    if dtype not in target.dtypes:
        raise Skip(f"the device has no {_short(dtype)}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def checks(quick: bool) -> Iterator[Check]:
    """Every function, method and layer in every type; ``quick`` leaves out half types, complex numbers and methods."""
    types = TYPES[:2] if quick else TYPES
    for dtype in types:
        for name, call in CALLS.items():
            yield Check("functions", f"{name}, {_short(dtype)}", partial(_function, name, call, dtype))
    for name, call in {} if quick else METHODS.items():
        yield Check("methods", f"{name}, float32", partial(_function, name, call, torch.float32))
    for dtype in _LAYER_TYPES[:1] if quick else _LAYER_TYPES:
        for name in LAYERS:
            for training in (True, False):
                mode = "training" if training else "evaluation"
                yield Check("layers", f"{name}, {mode}, {_short(dtype)}", partial(_layer, name, training, dtype))
