"""Calls of the kernel that decompose matrices of one shape and type.

An object holds the C functions, the sizes that they are called with and the shapes of their results, which depend on
shape and type alone; so it can be kept, and a call takes its pointers and little else. Each C function is called in
one place. The tensors have to be :func:`in_memory`. New tensors get separate sizes, which torch reads faster than a
tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .functions import Kernel, addresses, checked

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
    runs: dict[str, Any]  # the C functions of this way, by name
    batch: int
    d: int
    values: Shape
    real: torch.dtype | None  # the type of the eigenvalues of complex matrices
    roots: tuple[int, int]  # the kernel's numbers of the root and of its inverse
    codes: dict[str, int]  # and of other functions

    @classmethod
    def of(cls, native: Kernel, shape: torch.Size, dtype: torch.dtype, lanes: bool) -> Symmetric:
        """The calls for matrices of this shape: one matrix per SIMD lane, or one after another with SIMD inside."""
        end, functions = "" if lanes else "_single", native.functions.items()
        runs = {name.removesuffix(end): run for (name, of), run in functions if of == dtype and name.endswith(end)}
        codes = native.constants["square_root"], native.constants["inverse_square_root"]
        real = dtype.to_real() if dtype.is_complex else None
        return cls(
            lanes,
            runs,
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
        failed = self.runs["eigh"](*pointers, self.batch, self.d, asymmetry, torch.get_num_threads())
        return (w, V), checked("eigh", failed)

    def eigvalsh(self, A: Tensor) -> tuple[Tensor, int]:
        """Return ascending eigenvalues (*, d) and the number of failed matrices; no vectors are computed."""
        w = A.new_empty(*self.values) if self.real is None else A.new_empty(self.values, dtype=self.real)
        pointers = A.data_ptr(), w.data_ptr(), None
        failed = self.runs["eigh"](*pointers, self.batch, self.d, UNCHECKED, torch.get_num_threads())
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
        doubtful = self.runs["root"](self.roots[inverse], *pointers, *sizes, *limits, torch.get_num_threads())
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
        return S, checked("power", self.runs["power"](*pointers, self.batch, self.d, *tail))

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
            "function", self.runs["function"](self.codes[f.name], *pointers, self.batch, self.d, *tail)
        )


class Singular(NamedTuple):
    """Singular value decompositions and polar factors of matrices (*, m, n)."""

    lanes: bool
    run: Any
    run_polar: Any  # None for complex matrices
    run_align: Any
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
        end, real = "" if lanes else "_single", dtype.to_real() if dtype.is_complex else None
        svd, polar, align = (native.functions.get((name + end, dtype)) for name in ("svd", "polar", "align"))
        return cls(lanes, svd, polar, align, sizes[0], sizes, (*batch, m, k), (*batch, k), (*batch, k, n), real)

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

    def polar(self, M: Tensor, special: bool, rtol: float) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
        """Return Q (*, m, n), h (*, n) and Vh (*, n, n) of real M = Q V diag(h) Vh, m ≥ n, and the number of failures.

        Results for failed matrices are NaN.

        Args:
            M: matrices (*, m, n) in float32 or float64.
            special: Q is the nearest rotation; the last of h is negative where the polar factor is none.
            rtol: eigenvalues up to this multiple of the largest are zero, and so is the sum of the last two.
        """
        Q, h, Vh = torch.empty_like(M), M.new_empty(*self.S), M.new_empty(*self.Vh)
        pointers = M.data_ptr(), Q.data_ptr(), h.data_ptr(), Vh.data_ptr()
        failed = self.run_polar(*pointers, *self.sizes, special, rtol, torch.get_num_threads())
        return (Q, h, Vh), checked("polar", failed)

    def align(
        self, C: Tensor, X: Tensor, Y: Tensor, w: Tensor | None, means: bool, scale: bool, special: bool, rtol: float
    ) -> tuple[tuple[Tensor, ...], int]:
        """Return the fit of points Y by points X (*, n, k), and the number of failures, whose results are NaN.

        The fit consists of R (*, k, k), t (*, k), s, the residual and the margin (*,), the means of X and Y (*, k), h
        and Vh as in :meth:`polar` of the cross-covariance, which is written into C, and Σ w‖x − x̄‖² (*,). Without
        ``means`` points are not centred, and means and t are zero; without ``scale``, s and the sum are one.
        """
        batch, make = C.shape[:-2], C.new_empty if means else C.new_zeros
        x, y, t, h = make(*self.S), make(*self.S), make(*self.S), C.new_empty(*self.S)
        R, Vh, e, margin = C.new_empty(*self.Vh), C.new_empty(*self.Vh), C.new_empty(batch), C.new_empty(batch)
        s = C.new_empty(batch) if scale else C.new_ones(batch)
        spread = C.new_empty(batch) if scale else s
        centers = (x, y, t) if means else (None, None, None)
        scales = (s, spread) if scale else (None, None)
        pointers = addresses(X, Y, w, *centers[:2], C, R, h, Vh, centers[2], *scales, e, margin)
        sizes = self.batch, X.shape[-2], X.shape[-1]
        failed = self.run_align(*pointers, *sizes, special, rtol, torch.get_num_threads())
        return (R, t, s, e, margin, x, y, h, Vh, spread), checked("align", failed)

    def _new_values(self, M: Tensor) -> Tensor:
        return M.new_empty(*self.S) if self.real is None else M.new_empty(self.S, dtype=self.real)
