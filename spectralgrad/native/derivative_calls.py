"""Calls of the kernel that differentiate a decomposition of matrices of one shape and type, or functions of it.

They are kept and called like the calls of :mod:`spectralgrad.native.calls`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .calls import Scalar, Shape
from .functions import Kernel, addresses, checked, in_memory


class Derivatives(NamedTuple):
    """Derivatives of functions of matrices (*, d, d), and gradients of their decompositions, from the eigenvectors."""

    run_frechet: Any
    run_gradient: Any
    sizes: tuple[int, int]
    roots: tuple[int, int]
    codes: dict[str, int]

    @classmethod
    def of(cls, native: Kernel, shape: torch.Size, dtype: torch.dtype) -> Derivatives:
        """The calls for matrices of this shape."""
        frechet, gradient = (native.functions[name, dtype] for name in ("frechet", "eigh_gradient"))
        codes = native.constants["square_root"], native.constants["inverse_square_root"]
        return cls(frechet, gradient, (shape[:-2].numel(), shape[-1]), codes, native.constants)

    def root(self, V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
        """Return the derivative of the (inverse) square root in the direction sym(G); ``s`` is √λ, ascending.

        With ``terms`` > 0 it is the derivative by SVD-Taylor with that many terms of its series.
        """
        return self._frechet(self.roots[inverse], terms, 0.0, V, s.data_ptr(), None, G)

    def function(self, V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
        """Return V (Γ ∘ Vᵀ sym(G) V) Vᵀ for a symmetric Γ; only its lower triangle is read."""
        return self._frechet(self.codes["given"], 0, 0.0, V, None, gamma.data_ptr(), G)

    def scalar(self, V: Tensor, w: Tensor, G: Tensor, f: Scalar) -> Tensor:
        """Return the derivative of f(A) in the direction sym(G); ``w`` ascends, and is zero off the range."""
        return self._frechet(self.codes[f.name], 0, f.exponent, V, w.data_ptr(), None, G)

    def _frechet(
        self, code: int, terms: int, exponent: float, V: Tensor, s: int | None, gamma: int | None, G: Tensor
    ) -> Tensor:
        X = torch.empty_like(G)
        pointers = V.data_ptr(), s, gamma, G.data_ptr(), X.data_ptr()
        checked("frechet", self.run_frechet(code, terms, exponent, *pointers, *self.sizes, torch.get_num_threads()))
        return X

    def eigenpairs(
        self,
        eigenpairs: tuple[Tensor, Tensor],
        cotangents: tuple[Tensor | None, Tensor | None],
        gaps: Tensor | float,
        filters: bool,
        saturates: bool,
    ) -> Tensor:
        """Return the gradient (*, d, d) with respect to a symmetric matrix from those with respect to w and V.

        ``gaps`` is the gap matrix (*, d, d), or SVD-Padé's floor. ``filters`` and ``saturates`` come from a gap rule.
        """
        (w, V), (gw, gV), (K, floor) = eigenpairs, cotangents, _gaps(gaps)
        gA = torch.empty_like(V)
        tail = *self.sizes, floor, filters, saturates, torch.get_num_threads()
        checked("eigh_gradient", self.run_gradient(*addresses(V, w, gV, gw, K, gA), *tail))
        return gA


class SingularScalar(NamedTuple):
    """A function of singular values: its name in the kernel, its parameter, and the rank tolerance."""

    name: str
    parameter: float
    tolerance: float


class SingularDerivatives(NamedTuple):
    """Gradients of singular value decompositions U (*, m, k), S, Vh (*, k, n), and functions of singular values."""

    run_gradient: Any
    run_function: Any
    run_polar: Any
    codes: dict[str, int]
    sizes: tuple[int, int, int]
    shape: Shape  # (*, m, n)

    @classmethod
    def of(cls, native: Kernel, left: torch.Size, right: torch.Size, dtype: torch.dtype) -> SingularDerivatives:
        """The calls for U and Vh of these shapes."""
        names, shape = ("svd_gradient", "singular_function", "polar_gradient"), (*left[:-1], right[-1])
        gradient, function, polar = (native.functions[name, dtype] for name in names)
        return cls(gradient, function, polar, native.constants, (left[:-2].numel(), shape[-2], shape[-1]), shape)

    def factors(
        self,
        factors: tuple[Tensor, Tensor, Tensor],
        cotangents: tuple[Tensor | None, Tensor | None, Tensor | None],
        gaps: Tensor | float,
        filters: bool,
        saturates: bool,
    ) -> Tensor:
        """Return the gradient (*, m, n) with respect to a matrix from those with respect to U, S and Vh.

        ``gaps`` is the gap matrix (*, k, k), or SVD-Padé's floor. ``filters`` and ``saturates`` come from a gap rule.
        """
        K, floor = _gaps(gaps)
        gM = factors[0].new_empty(*self.shape)
        tail = *self.sizes, floor, filters, saturates, torch.get_num_threads()
        checked("svd_gradient", self.run_gradient(*addresses(*factors, *cotangents, K, gM), *tail))
        return gM

    def composed(self, U: Tensor, values: Tensor, Vh: Tensor) -> Tensor:
        """Return U diag(values) Vh (*, m, n) for U (*, m, k), values (*, k) and Vh (*, k, n)."""
        return self._function(_GIVEN, None, U, None, Vh, values, None, None, None)

    def function(self, f: SingularScalar, U: Tensor, S: Tensor, Vh: Tensor, factor: Tensor | None = None) -> Tensor:
        """Return U diag(f(S)) Vh (*, m, n), multiplied by ``factor`` (*,)."""
        return self._function(f, factor, U, S, Vh, None, None, None, None)

    def function_derivative(self, f: SingularScalar, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        """Return the derivative (*, m, n) of U diag(f(S)) Vh in the direction G."""
        return self._function(f, None, U, S, Vh, None, None, None, G)

    def derivative(self, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor) -> Tensor:
        """Return the derivative (*, m, n) of a function of singular values in the direction G.

        Args:
            G: the direction (*, m, n).
            U, S, Vh: the singular value decomposition.
            joint: divided differences (*, k, k), symmetric.
            outer: f(σ)/σ (*, k).
        """
        return self._function(_GIVEN, None, U, S, Vh, None, joint, outer, G)

    def polar(self, G: Tensor, Q: Tensor, h: Tensor, Vh: Tensor) -> Tensor:
        """Return the derivative (*, m, n) of the polar factor Q of M = Q V diag(h) Vh, m ≥ n, in the direction G."""
        X = G.new_empty(*self.shape)
        tail = *self.sizes, torch.get_num_threads()
        checked("polar_gradient", self.run_polar(*addresses(Q, h, Vh, G, X), *tail))
        return X

    def _function(self, f: SingularScalar, *tensors: Tensor | None) -> Tensor:
        """Run the entry on the factor, U, S, Vh, values, joint, outer and G."""
        X = tensors[1].new_empty(*self.shape)  # type: ignore[union-attr]
        pointers, tail = addresses(*tensors, X), (*self.sizes, torch.get_num_threads())
        code = self.codes[f.name]
        checked("singular_function", self.run_function(code, f.parameter, f.tolerance, *pointers, *tail))
        return X


_GIVEN = SingularScalar("given", 0.0, 0.0)


def divided_differences(
    native: Kernel,
    w: Tensor,
    values: Tensor,
    slope: Any,
    least: float = 0.0,
    finite: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """Return the divided differences (*, d, d) of f, and f(w)/w (*, d); None if ``slope`` returns None.

    f′ is evaluated once, at all values and at the quadrature nodes of all close pairs.

    Args:
        native: the kernel.
        w: the values (*, d); at most 2³¹ pairs.
        values: f(w) (*, d).
        slope: the elementwise derivative of f, of a tensor in one dimension.
        least: up to this share of the norm, f′(w) takes the place of f(w)/w.
        finite: replace results that are not finite by zero.
    """
    w, values, d = in_memory(w), in_memory(values), w.shape[-1]
    batch = w.numel() // d
    joint, ratio, offsets = w.new_empty(*w.shape, d), torch.empty_like(w), torch.empty(batch + 1, dtype=torch.int64)
    run, tail = native.functions["divided", w.dtype], (batch, d, least, finite, torch.get_num_threads())

    def step(name: str, places: Tensor | None = None, slopes: Tensor | None = None) -> int:
        given = w, values, joint, offsets, places, slopes, None if slopes is None else ratio
        return checked("divided", run(native.constants[name], *addresses(*given), *tail))

    places = w.new_empty(w.numel() + native.constants["quadrature_nodes"] * step("quotients"))
    step("nodes", places)
    slopes = slope(places)
    if slopes is None:
        return None
    step("means", None, in_memory(slopes))
    return joint, ratio


def _gaps(gaps: Tensor | float) -> tuple[Tensor | None, float]:
    """The gap matrix and the floor of SVD-Padé's; one of them is unused."""
    return (gaps, 0.0) if isinstance(gaps, Tensor) else (None, gaps)
