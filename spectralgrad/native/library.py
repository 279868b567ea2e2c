"""The compiled kernel, called through ctypes, which lets go of the GIL while it runs."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_SUFFIX = {torch.float32: ("f32", ctypes.c_float), torch.float64: ("f64", ctypes.c_double)}
_VERSION = b"1"  # of the C interface
_SQRT, _INV_SQRT = 1, 2


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
        for suffix, real in _SUFFIX.values():
            self._function("eigh", suffix).argtypes = [*[pointer] * 3, long, long, integer]
            self._function("sqrt", suffix).argtypes = [*[pointer] * 4, long, long, real, integer]
            self._function("inv_sqrt", suffix).argtypes = [*[pointer] * 4, long, long, real, integer]
            self._function("frechet", suffix).argtypes = [integer, *[pointer] * 5, long, long, real, integer]

    def _function(self, name: str, suffix: str):  # type: ignore[no-untyped-def]
        return getattr(self._library, f"sg_{name}_{suffix}")

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
        A = A.contiguous()
        w, V = A.new_empty(A.shape[:-1]), torch.empty_like(A)
        return w, V, self._call("eigh", A, A.data_ptr(), w.data_ptr(), V.data_ptr())

    def root(self, A: Tensor, inverse: bool, rtol: float) -> tuple[Tensor, Tensor, Tensor, int]:
        """The (inverse) square root on the range, its eigenvalues and eigenvectors, and how many matrices have none."""
        A = A.contiguous()
        w, V, S = A.new_empty(A.shape[:-1]), torch.empty_like(A), torch.empty_like(A)
        name = "inv_sqrt" if inverse else "sqrt"
        return S, w, V, self._call(name, A, A.data_ptr(), w.data_ptr(), V.data_ptr(), S.data_ptr(), rtol=rtol)

    def root_derivative(self, V: Tensor, w: Tensor, G: Tensor, inverse: bool) -> Tensor:
        """The derivative of the (inverse) square root in the direction sym(G); ``w`` is zero on the null space."""
        V, w, G = V.contiguous(), w.contiguous(), G.contiguous()
        X = torch.empty_like(G)
        pointers = (V.data_ptr(), w.data_ptr(), None, G.data_ptr(), X.data_ptr())
        self._call("frechet", G, _INV_SQRT if inverse else _SQRT, *pointers, rtol=0.0)
        return X

    def _call(self, name: str, A: Tensor, *arguments: int | None, rtol: float | None = None) -> int:
        batch, d = A.shape[:-2].numel(), A.shape[-1]
        tail = () if rtol is None else (rtol,)
        status: int = self._function(name, _SUFFIX[A.dtype][0])(*arguments, batch, d, *tail, torch.get_num_threads())
        if status < 0:
            raise MemoryError(f"spectralgrad's native {name}: no memory for its workspace")
        return status


def kernel() -> Kernel | None:
    """The kernel, or None if it was not built, does not load, or SPECTRALGRAD_NATIVE=0 switches it off.

    Example:
        >>> native = kernel()
        >>> native is None or native.isa in ("avx512", "avx2", "baseline")
        True
    """
    return None if os.environ.get("SPECTRALGRAD_NATIVE") == "0" else _load()


@cache
def _load() -> Kernel | None:
    folder = Path(__file__).parent
    for path in sorted(folder.glob("_kernel*.so")) + sorted(folder.glob("_kernel*.dylib")):
        try:
            return Kernel(path)
        except (OSError, AttributeError):
            continue
    return None
