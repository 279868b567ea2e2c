"""The compiled kernel, called through ctypes, which lets go of the GIL while it runs."""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from . import selftest

_SUFFIX = {torch.float32: ("f32", ctypes.c_float), torch.float64: ("f64", ctypes.c_double)}
_VERSION = b"2"  # of the C interface
_ADVICE = "SPECTRALGRAD_ISA=baseline asks for its plainest code; please report this."
_SQRT, _INV_SQRT, _GIVEN = 1, 2, 3  # the functions whose derivative the kernel forms


class Kernel:
    """The functions of the shared library on contiguous CPU tensors (batch, d, d), float32 or float64.

    A matrix that the kernel cannot decompose has NaN in its results; the others are not affected by it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.sg_isa.restype = self._library.sg_version.restype = ctypes.c_char_p
        if self._library.sg_version() != _VERSION:
            raise OSError(f"{path.name} was built for another version of spectralgrad; install it again")
        pointer, long, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        self._functions = {}
        for dtype, (suffix, real) in _SUFFIX.items():
            for name, arguments in {
                "eigh": [*[pointer] * 3, long, long, integer],
                "root": [integer, *[pointer] * 4, long, long, real, real, integer],
                "frechet": [integer, integer, *[pointer] * 5, long, long, integer],
            }.items():
                function = getattr(self._library, f"sg_{name}_{suffix}")
                function.argtypes = arguments
                self._functions[name, dtype] = function

    @property
    def isa(self) -> str:
        """The instruction set in use: avx512, avx2 or baseline."""
        name: str = self._library.sg_isa().decode()
        return name

    @staticmethod
    def takes(A: Tensor) -> bool:
        """Whether the kernel can work on this tensor's type and device."""
        return A.dtype in _SUFFIX and A.device.type == "cpu"

    def eigh(self, A: Tensor) -> tuple[Tensor, Tensor, int]:
        """Ascending eigenvalues (*, d), eigenvectors (*, d, d) as columns, and how many matrices have none.

        The lower triangle is read.
        """
        A = _in_memory(A)
        w, V = A.new_empty(A.shape[:-1]), torch.empty_like(A)
        return w, V, self._call("eigh", A, A.data_ptr(), w.data_ptr(), V.data_ptr())

    def root_and_eigenpairs(
        self, A: Tensor, inverse: bool, rtol: float, negative: float
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        r"""The (inverse) square root on the range, :math:`\sqrt\lambda` (zero off it), and the eigenvectors.

        Eigenvalues up to ``rtol`` times the norm count as zero. The last result counts matrices that have no
        decomposition, which are NaN, or an eigenvalue below ``-negative`` times the norm.
        """
        A = _in_memory(A)
        s, V, S = A.new_empty(A.shape[:-1]), torch.empty_like(A), torch.empty_like(A)
        pointers = (A.data_ptr(), s.data_ptr(), V.data_ptr(), S.data_ptr())
        return S, s, V, self._call("root", A, _INV_SQRT if inverse else _SQRT, *pointers, tail=(rtol, negative))

    def root_derivative(self, V: Tensor, s: Tensor, G: Tensor, inverse: bool, terms: int = 0) -> Tensor:
        """The derivative of the (inverse) square root in the direction sym(G); ``s`` is √λ, ascending.

        With ``terms`` it is what SVD-Taylor makes of it, with so many terms of its series.
        """
        return self._frechet(_INV_SQRT if inverse else _SQRT, V, _in_memory(s), None, G, terms)

    def function_derivative(self, V: Tensor, gamma: Tensor, G: Tensor) -> Tensor:
        """V (Γ ∘ Vᵀ sym(G) V) Vᵀ for a symmetric Γ, whose lower triangle is read."""
        return self._frechet(_GIVEN, V, None, _in_memory(gamma), G)

    def _frechet(
        self, function: int, V: Tensor, s: Tensor | None, gamma: Tensor | None, G: Tensor, terms: int = 0
    ) -> Tensor:
        V, G = _in_memory(V), _in_memory(G)
        X = torch.empty_like(G)
        optional = [None if x is None else x.data_ptr() for x in (s, gamma)]
        self._call("frechet", G, function, terms, V.data_ptr(), *optional, G.data_ptr(), X.data_ptr())
        return X

    def _call(self, name: str, A: Tensor, *arguments: int | None, tail: tuple[float, ...] = ()) -> int:
        batch, d = A.shape[:-2].numel(), A.shape[-1]
        status: int = self._functions[name, A.dtype](*arguments, batch, d, *tail, torch.get_num_threads())
        if status < 0:
            raise MemoryError(f"spectralgrad's native {name}: no memory for its workspace")
        return status


def _in_memory(x: Tensor) -> Tensor:
    """``x`` with its values in memory, row by row, where a pointer finds them.

    A negative view (such as ``z.conj().imag``) has the opposite values in memory, a zero tensor has no memory at all.
    Every pointer to input of the kernel is taken after this.
    """
    x = x.contiguous().resolve_neg()
    if x.numel() and not x.data_ptr():
        x = x.clone()
        if not x.data_ptr():
            raise RuntimeError("spectralgrad's native kernel: the tensor has no memory; call it through an operator")
    return x


def kernel() -> Kernel | None:
    """The kernel, or None if it was not built, does not load, fails its self-test, or is switched off.

    SPECTRALGRAD_NATIVE=0 switches it off.

    Example:
        >>> native = kernel()
        >>> native is None or native.isa in ("avx512", "avx2", "baseline")
        True
    """
    return None if os.environ.get("SPECTRALGRAD_NATIVE") == "0" else _load()[0]


def absence() -> str:
    """Why there is no kernel."""
    if os.environ.get("SPECTRALGRAD_NATIVE") == "0":
        return "switched off by SPECTRALGRAD_NATIVE=0"
    return _load()[1]


@cache
def _load() -> tuple[Kernel | None, str]:
    """The kernel, or None and why."""
    folder, why = Path(__file__).parent, "not built: install again where a C++ compiler is"
    for path in sorted(folder.glob("_kernel*.so")) + sorted(folder.glob("_kernel*.dylib")):
        try:
            native = Kernel(path)
        except (OSError, AttributeError):
            continue
        wrong = selftest.problem(native)
        if wrong is None:
            return native, ""
        why = f"not used: its {native.isa} code fails its self-test ({wrong})"
        warnings.warn(f"native kernel {why}; torch.linalg serves instead. {_ADVICE}", RuntimeWarning, stacklevel=3)
    return None, why
