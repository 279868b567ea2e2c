"""The functions of the compiled kernel, called through ctypes, which releases the GIL during a call."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .build import VERSION

_REAL = {torch.float32, torch.float64}
_TYPES = {b"f32": torch.float32, b"f64": torch.float64, b"c64": torch.complex64, b"c128": torch.complex128}
_PARAMETERS = {
    "p": ctypes.c_void_p,
    "l": ctypes.c_int64,
    "i": ctypes.c_int,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}
UNCHECKED = -1.0  # no limit on the asymmetry: the upper triangle is not read


class _Entry(ctypes.Structure):
    """A function as the library describes it; see the end of dispatch.cpp."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
    )


class _Constant(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_int))


class Kernel:
    """The functions of the shared library, for CPU tensors (*, d, d), or (*, m, n), in float32 or float64.

    Decompositions are computed in complex64 and complex128 as well. If the kernel cannot decompose a matrix, the
    results for it are NaN; the other matrices are not affected.

    Attributes:
        path: the file of the library.
        constants: the numbers of interface.hpp that callers need, by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.sg_isa.restype = self._library.sg_version.restype = ctypes.c_char_p
        if self._library.sg_version() != VERSION.encode():
            raise OSError(f"{path.name} was built for another version of spectralgrad; reinstall spectralgrad")
        self.constants = {x.name.decode(): x.value for x in self._listed("sg_constants", _Constant)}
        self._functions = {
            (x.name.decode(), _TYPES[x.type]): _prototype(x.parameters)(x.function)
            for x in self._listed("sg_entries", _Entry)
        }

    def _listed(self, name: str, kind: type[Any]) -> Any:
        """The elements of a list that the library holds."""
        start = ctypes.POINTER(kind)()
        count = getattr(self._library, name)(ctypes.byref(start))
        return start[:count]

    @property
    def isa(self) -> str:
        """The instruction set in use: avx512, avx2 or baseline."""
        name: str = self._library.sg_isa().decode()
        return name

    @staticmethod
    def takes(A: Tensor) -> bool:
        """True if the kernel supports the tensor's dtype and device."""
        return A.dtype in _REAL and A.is_cpu

    @staticmethod
    def decomposes(A: Tensor) -> bool:
        """True if the kernel computes eigenvalues and singular values for the tensor's dtype and device."""
        return A.dtype in _TYPES.values() and A.is_cpu

    def eigh(self, A: Tensor, asymmetry: float = UNCHECKED) -> tuple[Tensor, Tensor, int]:
        """Return ascending eigenvalues (*, d), eigenvectors (*, d, d) as columns, and the number of failed matrices.

        Only the lower triangle is read, and of a complex diagonal the real part, unless there is a limit on the
        ``asymmetry``: then matrices whose triangles differ by more than this multiple of the largest entry fail. One
        matrix per SIMD lane.
        """
        return self._eigh("eigh", A, asymmetry)

    def eigh_single(self, A: Tensor, asymmetry: float = UNCHECKED) -> tuple[Tensor, Tensor, int]:
        """The same with SIMD inside a matrix, one matrix after another: faster if there are few."""
        return self._eigh("eigh_single", A, asymmetry)

    def eigvalsh(self, A: Tensor) -> tuple[Tensor, int]:
        """Return ascending eigenvalues (*, d) and the number of failed matrices; no vectors are computed."""
        return self._eigvalsh("eigh", A)

    def eigvalsh_single(self, A: Tensor) -> tuple[Tensor, int]:
        """The same with SIMD inside a matrix."""
        return self._eigvalsh("eigh_single", A)

    def symmetric(self, lanes: bool, dtype: torch.dtype) -> list[Any]:
        """Return the C functions of eigenpairs, roots and derivatives, for callers that prepare their arguments."""
        names = ("eigh", "root", "frechet") if lanes else ("eigh_single", "root_single", "frechet")
        return [self._functions[name, dtype] for name in names]

    def singular(self, lanes: bool, dtype: torch.dtype) -> Any:
        """The same for singular value decompositions."""
        return self._functions["svd" if lanes else "svd_single", dtype]

    def function(self, name: str, dtype: torch.dtype) -> Any:
        """The same for any C function, without ``sg_`` and the type."""
        return self._functions[name, dtype]

    def _eigh(self, name: str, A: Tensor, asymmetry: float) -> tuple[Tensor, Tensor, int]:
        A = _in_memory(A)
        w, V = _new_values(A, A.shape[-1]), torch.empty_like(A)
        return w, V, self._call(name, A, A.data_ptr(), w.data_ptr(), V.data_ptr(), tail=(asymmetry,))

    def _eigvalsh(self, name: str, A: Tensor) -> tuple[Tensor, int]:
        A = _in_memory(A)
        w = _new_values(A, A.shape[-1])
        return w, self._call(name, A, A.data_ptr(), w.data_ptr(), None, tail=(UNCHECKED,))

    def eigh_gradient(
        self,
        eigenpairs: tuple[Tensor, Tensor],
        cotangents: tuple[Tensor | None, Tensor | None],
        gaps: Tensor | float,
        filters: bool,
        saturates: bool,
    ) -> Tensor:
        """Return the gradient (*, d, d) with respect to a symmetric matrix from those with respect to w and V.

        ``gaps`` is the gap matrix (*, d, d), or the floor of that of SVD-Padé. ``filters`` and ``saturates`` are those
        of a gap rule.
        """
        w, V = map(_in_memory, eigenpairs)
        gw, gV = (None if g is None else _in_memory(g) for g in cotangents)
        K, floor = (_in_memory(gaps), 0.0) if isinstance(gaps, Tensor) else (None, gaps)
        gA = torch.empty_like(V)
        pointers = [None if x is None else x.data_ptr() for x in (V, w, gV, gw, K, gA)]
        self._call("eigh_gradient", V, *pointers, tail=(floor, filters, saturates))
        return gA

    def svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """Return U (*, m, k), descending singular values (*, k), Vh (*, k, n), and the number of failed matrices.

        One matrix per SIMD lane.
        """
        return self._svd("svd", M)

    def svd_single(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """The same with SIMD inside a matrix, one matrix after another: faster if there are few."""
        return self._svd("svd_single", M)

    def svdvals(self, M: Tensor) -> tuple[Tensor, int]:
        """Return descending singular values (*, k) and the number of failed matrices; no vectors are computed."""
        return self._svdvals("svd", M)

    def svdvals_single(self, M: Tensor) -> tuple[Tensor, int]:
        """The same with SIMD inside a matrix."""
        return self._svdvals("svd_single", M)

    def _svd(self, name: str, M: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        M = _in_memory(M)
        *batch, m, n = M.shape
        U, Vh = M.new_empty(*batch, m, min(m, n)), M.new_empty(*batch, min(m, n), n)
        S = _new_values(M, min(m, n))
        return U, S, Vh, self._decompose(name, M, U.data_ptr(), S.data_ptr(), Vh.data_ptr())

    def _svdvals(self, name: str, M: Tensor) -> tuple[Tensor, int]:
        M = _in_memory(M)
        S = _new_values(M, min(M.shape[-2:]))
        return S, self._decompose(name, M, None, S.data_ptr(), None)

    def svd_gradient(
        self,
        factors: tuple[Tensor, Tensor, Tensor],
        cotangents: tuple[Tensor | None, Tensor | None, Tensor | None],
        gaps: Tensor | float,
        filters: bool,
        saturates: bool,
    ) -> Tensor:
        """Return the gradient (*, m, n) with respect to a matrix from those with respect to U, S and Vh.

        ``gaps`` is the gap matrix (*, k, k), or the floor of that of SVD-Padé. ``filters`` and ``saturates`` are those
        of a gap rule.
        """
        given = _in_memory(gaps) if isinstance(gaps, Tensor) else None
        floor = 0.0 if isinstance(gaps, Tensor) else gaps
        inputs = [None if x is None else _in_memory(x) for x in (*factors, *cotangents, given)]
        U, Vh = factors[0], factors[2]
        gM = U.new_empty(*U.shape[:-1], Vh.shape[-1])
        pointers = [None if x is None else x.data_ptr() for x in (*inputs, gM)]
        sizes = U.shape[:-2].numel(), *gM.shape[-2:]
        run = self._functions["svd_gradient", U.dtype]
        checked("svd_gradient", run(*pointers, *sizes, floor, filters, saturates, torch.get_num_threads()))
        return gM

    def root_and_eigenpairs(
        self,
        A: Tensor,
        inverse: bool,
        rtol: float,
        negative: float,
        single: bool = False,
        asymmetry: float = UNCHECKED,
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        r"""Return the (inverse) square root on the range, :math:`\sqrt\lambda` (zero off it), V, and a count.

        Eigenvalues up to ``rtol`` times the norm count as zero. The count is the number of matrices that could not be
        decomposed, whose results are NaN, or that have an eigenvalue below ``-negative`` times the norm. With
        ``single``, the eigenpairs are those of :meth:`eigh_single`; ``asymmetry`` is as in :meth:`eigh`.
        """
        A = _in_memory(A)
        s, V, S = _new_values(A, A.shape[-1]), torch.empty_like(A), torch.empty_like(A)
        pointers = (A.data_ptr(), s.data_ptr(), V.data_ptr(), S.data_ptr())
        name, which = "root_single" if single else "root", self.root_code(inverse)
        return S, s, V, self._call(name, A, which, *pointers, tail=(rtol, negative, asymmetry))

    def power(
        self,
        A: Tensor,
        exponent: float,
        shift: float,
        relative: bool,
        limits: tuple[float, float, float],
        single: bool,
    ) -> tuple[Tensor, int]:
        r"""Return :math:`(A+\epsilon I)^\alpha` and a count as in :meth:`root_and_eigenpairs`; ε is ``shift``.

        Eigenvalues up to ``rtol`` times the norm count as zero before ε is added, and a sum of zero remains zero. With
        ``relative``, ε is a multiple of the norm. ``limits`` are ``rtol``, ``negative`` and ``asymmetry``.
        """
        A = _in_memory(A)
        w, V, S = A.new_empty(*A.shape[:-1]), torch.empty_like(A), torch.empty_like(A)
        pointers = (A.data_ptr(), w.data_ptr(), V.data_ptr(), S.data_ptr())
        tail = (*limits, exponent, shift, relative)
        return S, self._call("power_single" if single else "power", A, *pointers, tail=tail)

    def root_derivative(self, V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
        """Return the derivative of the (inverse) square root in the direction sym(G); ``s`` is √λ, ascending.

        With ``terms`` > 0 it is the derivative by SVD-Taylor with that many terms of its series.
        """
        return self._frechet(self.root_code(inverse), V, _in_memory(s), None, G, terms)

    def function_derivative(self, V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
        """Return V (Γ ∘ Vᵀ sym(G) V) Vᵀ for a symmetric Γ, of which only the lower triangle is read."""
        return self._frechet(self.constants["given"], V, None, _in_memory(gamma), G)

    def root_code(self, inverse: bool) -> int:
        """The number of the root, or of the inverse root, among the functions of interface.hpp."""
        return self.constants["inverse_square_root" if inverse else "square_root"]

    def _frechet(
        self, function: int, V: Tensor, s: Tensor | None, gamma: Tensor | None, G: Tensor, terms: int = 0
    ) -> Tensor:
        V, G = _in_memory(V), _in_memory(G)
        X = torch.empty_like(G)
        optional = [None if x is None else x.data_ptr() for x in (s, gamma)]
        self._call("frechet", G, function, terms, V.data_ptr(), *optional, G.data_ptr(), X.data_ptr())
        return X

    def points(self, step: str, *tensors: Tensor | None) -> None:
        """Run a step of interface.hpp, given by its name, on X, Y, w, x, y, C, e, gx, gy, gX, gY and gw.

        Those that the step does not need are None. Results are written into the tensors, which must be contiguous;
        solvers/point_sets.py has the meaning of each.
        """
        given = [None if x is None else _in_memory(x) for x in tensors]
        X = given[0]
        assert X is not None
        pointers = [None if x is None else x.data_ptr() for x in given] + [None] * (12 - len(given))
        run = self._functions["points", X.dtype]
        sizes = X.shape[:-2].numel(), *X.shape[-2:]
        checked("points", run(self.constants[step], *pointers, *sizes, torch.get_num_threads()))

    def features(self, name: str, sizes: tuple[int, ...], *tensors: Tensor | None) -> None:
        """Run a pass over features (samples, groups, channels, positions); solvers/feature_passes.py has its arguments.

        The last tensors are results, which must be contiguous.
        """
        given = [None if x is None else _in_memory(x) for x in tensors]
        pointers = [None if x is None else x.data_ptr() for x in given]
        run = self._functions[f"feature_{name}", tensors[0].dtype]  # type: ignore[union-attr]
        checked(f"feature {name}", run(*pointers, *sizes, torch.get_num_threads()))

    def _call(self, name: str, A: Tensor, *arguments: int | None, tail: tuple[float, ...] = ()) -> int:
        d = A.shape[-1]
        batch = A.numel() // (d * d) if d else 0
        return checked(name, self._functions[name, A.dtype](*arguments, batch, d, *tail, torch.get_num_threads()))

    def _decompose(self, name: str, M: Tensor, *results: int | None) -> int:
        sizes = M.shape[:-2].numel(), *M.shape[-2:]
        status = self._functions[name, M.dtype](M.data_ptr(), *results, *sizes, torch.get_num_threads())
        return checked(name, status)


def _prototype(parameters: bytes) -> Any:
    """The type of a C function with these parameters that returns a status."""
    return ctypes.CFUNCTYPE(ctypes.c_int, *(_PARAMETERS[code] for code in parameters.decode()))


def checked(name: str, status: int) -> int:
    """Return the status of a C function, or raise an error if it is negative."""
    if status < 0:
        raise MemoryError(f"spectralgrad's native {name}: not enough memory for its workspace")
    return status


def _new_values(A: Tensor, k: int) -> Tensor:
    """Return a new tensor (*, k) for real values of matrices (*, m, n)."""
    if A.is_complex():
        return A.new_empty((*A.shape[:-2], k), dtype=A.dtype.to_real())
    return A.new_empty(*A.shape[:-2], k)  # torch reads separate sizes faster than a tuple


def _in_memory(x: Tensor) -> Tensor:
    """Return ``x`` with its values stored contiguously, so that a pointer to its memory can be passed to C.

    A negative view (such as ``z.conj().imag``) stores the opposite values, a conjugate view the conjugate ones, and a
    zero tensor has no memory at all, so every input must pass through this function before its pointer is taken.
    """
    x = x if x.is_contiguous() else x.contiguous()  # to ask costs less than to call in vain
    if x.is_neg() or x.is_conj():
        x = x.resolve_neg().resolve_conj()
    if not x.data_ptr() and x.numel():
        x = x.clone()
        if not x.data_ptr():
            raise RuntimeError(
                "spectralgrad's native kernel: the tensor has no memory (it may be a fake or meta tensor); "
                "call the kernel through spectralgrad.solvers"
            )
    return x
