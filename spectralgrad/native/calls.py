"""Calls of the kernel for matrices of one shape and type.

An object holds the C functions, the sizes that they are called with and the shapes of their results, which depend on
shape and type alone; so it can be kept, and a call takes its pointers and little else. Each C function is called in
one place. The tensors have to be :func:`in_memory`. New tensors get separate sizes, which torch reads faster than a
tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .functions import Kernel, checked, in_memory

UNCHECKED = -1.0  # no limit on the asymmetry: the upper triangle is not read
Shape = tuple[int, ...]


class Scalar(NamedTuple):
    """A scalar function: its name in the kernel, exponent, and the size at which eigenvalues need more care."""

    name: str
    exponent: float
    limit: float


class Symmetric(NamedTuple):
    """Decompositions and roots of matrices (*, d, d)."""

    lanes: bool
    run_eigh: Any
    run_root: Any
    run_power: Any
    run_function: Any
    batch: int
    d: int
    values: Shape
    real: torch.dtype | None  # the type of the eigenvalues of complex matrices
    roots: tuple[int, int]  # the kernel's numbers of the root and of its inverse
    codes: dict[str, int]  # and of other functions

    @classmethod
    def of(cls, native: Kernel, shape: torch.Size, dtype: torch.dtype, lanes: bool) -> Symmetric:
        """The calls for matrices of this shape: one matrix per SIMD lane, or one after another with SIMD inside."""
        end = "" if lanes else "_single"
        names = ("eigh", "root", "power", "function")
        eigh, root, power, function = (native.functions.get((name + end, dtype)) for name in names)
        codes = native.constants["square_root"], native.constants["inverse_square_root"]
        real = dtype.to_real() if dtype.is_complex else None
        return cls(
            lanes,
            eigh,
            root,
            power,
            function,
            shape[:-2].numel(),
            shape[-1],
            tuple(shape[:-1]),
            real,
            codes,
            native.constants,
        )

    def eigh(self, A: Tensor, asymmetry: float = UNCHECKED) -> tuple[tuple[Tensor, Tensor], int]:
        """Return ascending eigenvalues (*, d), eigenvectors (*, d, d) as columns, and the number of failed matrices.

        Only the lower triangle is read, and of a complex diagonal the real part, unless there is a limit on the
        ``asymmetry``: then matrices whose triangles differ by more than this multiple of the largest entry fail. The
        eigenvalues of a failed matrix are NaN.
        """
        w = A.new_empty(*self.values) if self.real is None else A.new_empty(self.values, dtype=self.real)
        V = torch.empty_like(A)
        pointers = A.data_ptr(), w.data_ptr(), V.data_ptr()
        failed = self.run_eigh(*pointers, self.batch, self.d, asymmetry, torch.get_num_threads())
        return (w, V), checked("eigh", failed)

    def eigvalsh(self, A: Tensor) -> tuple[Tensor, int]:
        """Return ascending eigenvalues (*, d) and the number of failed matrices; no vectors are computed."""
        w = A.new_empty(*self.values) if self.real is None else A.new_empty(self.values, dtype=self.real)
        pointers = A.data_ptr(), w.data_ptr(), None
        failed = self.run_eigh(*pointers, self.batch, self.d, UNCHECKED, torch.get_num_threads())
        return w, checked("eigvalsh", failed)

    def root(
        self, A: Tensor, inverse: bool, limits: tuple[float, float, float]
    ) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
        r"""Return the (inverse) square root on the range, :math:`\sqrt\lambda` (zero off it) and V, and a count.

        The count is the number of doubtful matrices: those that could not be decomposed, whose results are NaN, and
        those with an eigenvalue that is too negative.

        Args:
            A: matrices (*, d, d) in float32 or float64.
            inverse: return the inverse root.
            limits: multiples of the norm up to which eigenvalues count as zero, up to which negative ones do, and the
                limit on the asymmetry.
        """
        s, V, S = A.new_empty(*self.values), torch.empty_like(A), torch.empty_like(A)
        pointers = A.data_ptr(), s.data_ptr(), V.data_ptr(), S.data_ptr()
        sizes = self.batch, self.d
        doubtful = self.run_root(self.roots[inverse], *pointers, *sizes, *limits, torch.get_num_threads())
        return (S, s, V), checked("root", doubtful)

    def power(
        self, A: Tensor, exponent: float, shift: float, relative: bool, limits: tuple[float, float, float]
    ) -> tuple[Tensor, int]:
        r"""Return :math:`(A+\epsilon I)^\alpha` and a count as in :meth:`root`; ε is ``shift``.

        Eigenvalues up to the first limit count as zero before ε is added, and a sum of zero remains zero. With
        ``relative``, ε is a multiple of the norm.
        """
        w, V, S = A.new_empty(*self.values), torch.empty_like(A), torch.empty_like(A)
        pointers = A.data_ptr(), w.data_ptr(), V.data_ptr(), S.data_ptr()
        tail = *limits, exponent, shift, relative, torch.get_num_threads()
        return S, checked("power", self.run_power(*pointers, self.batch, self.d, *tail))

    def function(
        self, A: Tensor, f: Scalar, any_sign: bool, limits: tuple[float, float, float]
    ) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
        """Return f(A) on the range, the eigenvalues there (zero off it) and V, and the number of doubtful matrices.

        The first entry of f(A) is NaN for doubtful matrices: those that could not be decomposed, have an eigenvalue
        that is too negative, or one that is not of moderate size.

        Args:
            A: matrices (*, d, d) in float32 or float64.
            f: the function.
            any_sign: the matrices may be indefinite; the range then has the eigenvalues with a modulus above the limit.
            limits: as in :meth:`root`.
        """
        w, V, S = A.new_empty(*self.values), torch.empty_like(A), torch.empty_like(A)
        pointers = A.data_ptr(), w.data_ptr(), V.data_ptr(), S.data_ptr()
        tail = *limits, f.exponent, f.limit, any_sign, torch.get_num_threads()
        return (S, w, V), checked(
            "function", self.run_function(self.codes[f.name], *pointers, self.batch, self.d, *tail)
        )


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
        checked("eigh_gradient", self.run_gradient(*_addresses(V, w, gV, gw, K, gA), *tail))
        return gA


class Singular(NamedTuple):
    """Singular value decompositions of matrices (*, m, n)."""

    lanes: bool
    run: Any
    batch: int
    sizes: tuple[int, int, int]
    U: Shape
    S: Shape
    Vh: Shape
    real: torch.dtype | None

    @classmethod
    def of(cls, native: Kernel, shape: torch.Size, dtype: torch.dtype, lanes: bool) -> Singular:
        """The calls for matrices of this shape: one matrix per SIMD lane, or one after another with SIMD inside."""
        *batch, m, n = shape
        k, sizes = min(m, n), (shape[:-2].numel(), m, n)
        run, real = native.functions["svd" if lanes else "svd_single", dtype], dtype.to_real()
        return cls(
            lanes, run, sizes[0], sizes, (*batch, m, k), (*batch, k), (*batch, k, n), real if dtype.is_complex else None
        )

    def svd(self, M: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
        """Return U (*, m, k), descending singular values (*, k), Vh (*, k, n), and the number of failed matrices."""
        U, S, Vh = M.new_empty(*self.U), self._new_values(M), M.new_empty(*self.Vh)
        pointers = M.data_ptr(), U.data_ptr(), S.data_ptr(), Vh.data_ptr()
        return (U, S, Vh), checked("svd", self.run(*pointers, *self.sizes, torch.get_num_threads()))

    def svdvals(self, M: Tensor) -> tuple[Tensor, int]:
        """Return descending singular values (*, k) and the number of failed matrices; no vectors are computed."""
        S = self._new_values(M)
        pointers = M.data_ptr(), None, S.data_ptr(), None
        return S, checked("svdvals", self.run(*pointers, *self.sizes, torch.get_num_threads()))

    def _new_values(self, M: Tensor) -> Tensor:
        return M.new_empty(*self.S) if self.real is None else M.new_empty(self.S, dtype=self.real)


class SingularDerivatives(NamedTuple):
    """Gradients of singular value decompositions U (*, m, k), S, Vh (*, k, n), and functions of singular values."""

    run_gradient: Any
    run_function: Any
    sizes: tuple[int, int, int]
    shape: Shape  # (*, m, n)

    @classmethod
    def of(cls, native: Kernel, left: torch.Size, right: torch.Size, dtype: torch.dtype) -> SingularDerivatives:
        """The calls for U and Vh of these shapes."""
        gradient, function = (native.functions[name, dtype] for name in ("svd_gradient", "singular_function"))
        shape = *left[:-1], right[-1]
        return cls(gradient, function, (left[:-2].numel(), shape[-2], shape[-1]), shape)

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
        checked("svd_gradient", self.run_gradient(*_addresses(*factors, *cotangents, K, gM), *tail))
        return gM

    def composed(self, U: Tensor, values: Tensor, Vh: Tensor) -> Tensor:
        """Return U diag(values) Vh (*, m, n) for U (*, m, k), values (*, k) and Vh (*, k, n)."""
        return self._function(U, None, Vh, values, None, None, None)

    def derivative(self, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor, joint: Tensor, outer: Tensor) -> Tensor:
        """Return the derivative (*, m, n) of a function of singular values in the direction G.

        Args:
            G: the direction (*, m, n).
            U, S, Vh: the singular value decomposition.
            joint: divided differences (*, k, k), symmetric.
            outer: f(σ)/σ (*, k).
        """
        return self._function(U, S, Vh, None, joint, outer, G)

    def _function(self, U: Tensor, *others: Tensor | None) -> Tensor:
        X = U.new_empty(*self.shape)
        tail = *self.sizes, torch.get_num_threads()
        checked("singular_function", self.run_function(*_addresses(U, *others, X), *tail))
        return X


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
        return checked("divided", run(native.constants[name], *_addresses(*given), *tail))

    places = w.new_empty(w.numel() + native.constants["quadrature_nodes"] * step("quotients"))
    step("nodes", places)
    slopes = slope(places)
    if slopes is None:
        return None
    step("means", None, in_memory(slopes))
    return joint, ratio


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if x is None else x.data_ptr() for x in tensors]


def _gaps(gaps: Tensor | float) -> tuple[Tensor | None, float]:
    """The gap matrix and the floor of SVD-Padé's; one of them is unused."""
    return (gaps, 0.0) if isinstance(gaps, Tensor) else (None, gaps)
