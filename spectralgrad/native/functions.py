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
        functions: the C functions, by name and type of the matrices; calls.py calls most of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.sg_isa.restype = self._library.sg_version.restype = ctypes.c_char_p
        if self._library.sg_version() != VERSION.encode():
            raise OSError("built for another version of spectralgrad; reinstall spectralgrad")
        if self._library.sg_isa() is None:
            raise OSError("built for instruction sets that this processor lacks; reinstall with SPECTRALGRAD_BUILD=all")
        self.constants: dict[str, int] = {x.name.decode(): x.value for x in self._listed("sg_constants", _Constant)}
        self.functions: dict[tuple[str, torch.dtype], Any] = {
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

    def pull_points(self, *tensors: Tensor | None) -> None:
        """Compute the gradients of points from X, Y, w, x, y, C, gx and gy, and write them into gX, gY and gw.

        Those that are None have no part in it; all are :func:`in_memory`. solvers/kernel/point_sets.py says what each
        of them is.
        """
        X = tensors[0]
        assert X is not None
        run = self.functions["point_gradient", X.dtype]
        checked(
            "point_gradient", run(*addresses(*tensors), X.shape[:-2].numel(), *X.shape[-2:], torch.get_num_threads())
        )

    def features(self, name: str, sizes: tuple[int, ...], *tensors: Tensor | None) -> None:
        """Run a pass over features (samples, groups, channels, positions).

        Its arguments are listed in solvers/kernel/feature_passes.py. The last tensors are results, which
        must be contiguous.
        """
        given = [None if x is None else in_memory(x) for x in tensors]
        pointers = addresses(*given)
        run = self.functions[f"feature_{name}", tensors[0].dtype]  # type: ignore[union-attr]
        checked(f"feature {name}", run(*pointers, *sizes, torch.get_num_threads()))


def _prototype(parameters: bytes) -> Any:
    """The type of a C function with these parameters that returns a status."""
    return ctypes.CFUNCTYPE(ctypes.c_int, *(_PARAMETERS[code] for code in parameters.decode()))


def checked(name: str, status: int) -> int:
    """Return the status of a C function, or raise an error if it is negative."""
    if status < 0:
        raise MemoryError(f"spectralgrad's native {name}: not enough memory for its workspace")
    return status


def addresses(*tensors: Tensor | None) -> list[int | None]:
    """Return pointers to the memory of tensors, null for None."""
    return [None if x is None else x.data_ptr() for x in tensors]


def in_memory(x: Tensor) -> Tensor:
    """Return ``x`` with its values stored contiguously, so that a pointer to its memory can be passed to C.

    A negative view (such as ``z.conj().imag``) stores the opposite values, a conjugate view the conjugate ones, and a
    zero tensor has no memory at all, so every input must pass through this function before its pointer is taken.
    """
    x = x if x.is_contiguous() else x.contiguous()  # is_contiguous() costs less than a contiguous() that does nothing
    if x.is_neg() or x.is_conj():
        x = x.resolve_neg().resolve_conj()
    if not x.data_ptr() and x.numel():
        if not x.untyped_storage().nbytes():  # torch's own operations would end the process
            raise RuntimeError("expected a tensor with memory; its storage was freed, as fully sharded training does")
        x = x.clone()
        if not x.data_ptr():
            raise RuntimeError(
                "spectralgrad's native kernel: the tensor has no memory (it may be a fake or meta tensor); "
                "call the kernel through spectralgrad.solvers"
            )
    return x
