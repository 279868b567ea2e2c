"""The exceptions of the package and the checks that raise them.

Messages say what was given, what is expected and what to do. Where torch.linalg would raise an error too, ours derives
from the same class, so code written for torch.linalg (``except RuntimeError``, ``except torch.linalg.LinAlgError``)
catches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "ArgumentError",
    "AsymmetricError",
    "ConvergenceError",
    "IndefiniteError",
    "MethodError",
    "NonFiniteError",
    "NotDefiniteError",
    "ShapeError",
    "SolverError",
    "SpectralError",
]

_LISTED = 8  # number of batch positions listed in a message before "and n more"
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
DTYPES |= {torch.complex32, torch.complex64, torch.complex128}
if TYPE_CHECKING:
    _LinAlgError = RuntimeError  # its base class; torch's type stubs do not declare LinAlgError
else:
    _LinAlgError = torch.linalg.LinAlgError


class SpectralError(Exception):
    """Base class of all exceptions raised by spectralgrad."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self)), self.__dict__


class ArgumentError(SpectralError, RuntimeError, ValueError):
    """An argument is invalid: a number out of range, an unknown option, or an unsuitable network."""


class ShapeError(ArgumentError):
    """The input has the wrong shape, dtype or layout."""


class NonFiniteError(SpectralError, _LinAlgError, ValueError):
    """The input contains NaN or infinity. ``positions`` lists the batch indices of the affected matrices."""

    batch_shape: tuple[int, ...]

    def __init__(self, positions: Sequence[tuple[int, ...]], batch_shape: Sequence[int], operation: str) -> None:
        self.positions: list[tuple[int, ...]] = list(positions)
        self.batch_shape = tuple(batch_shape)
        super().__init__(self._text(operation))

    def _text(self, operation: str) -> str:
        where = (
            "the matrix" if not self.batch_shape else f"{listed(self.positions)} of a batch of shape {self.batch_shape}"
        )
        return (
            f"{operation}: expected finite input, got NaN or Inf in {where}. "
            "Check for an overflow or a division by zero before this call."
        )


class raised_by:  # noqa: N801 (used like a function; a generator would cost more at every call)
    """Let :class:`NonFiniteError` raised inside name ``where``, such as a layer, not the operation that found it.

    Layers need no check of their own where an operation follows that makes it.
    """

    where: str

    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NonFiniteError):
            error.args = (error._text(self.where),)


class IndefiniteError(SpectralError, _LinAlgError, ValueError):
    """The input must be positive semi-definite but has an eigenvalue too negative to be rounding error."""

    eigenvalue: float
    position: tuple[int, ...]
    operation: str
    tolerance: float
    dtype: torch.dtype

    def __init__(
        self, eigenvalue: float, position: tuple[int, ...], operation: str, tolerance: float, dtype: torch.dtype
    ) -> None:
        self.eigenvalue, self.position, self.operation = eigenvalue, position, operation
        self.tolerance, self.dtype = tolerance, dtype
        where = "the matrix" if not position else f"batch position {position}"
        super().__init__(
            f"{operation}: expected a positive semi-definite matrix, got eigenvalue {eigenvalue:.6g} in {where} "
            f"(values above {-tolerance:.3g} are treated as {_name(dtype)} rounding error). "
            "Add a multiple of the identity. Matrix functions take clamp=True to set negative eigenvalues to zero."
        )


@contextmanager
def of_scaled(exponents: Tensor) -> Iterator[None]:
    """Let :class:`IndefiniteError` about matrices divided by 2 to the even ``exponents`` (*,) name true eigenvalues."""
    try:
        yield
    except IndefiniteError as error:
        half = 2.0 ** (int(exponents[error.position]) // 2)  # 2¹⁰²⁴ itself would overflow
        eigenvalue, tolerance = error.eigenvalue * half * half, error.tolerance * half * half
        raise IndefiniteError(eigenvalue, error.position, error.operation, tolerance, error.dtype) from None


class AsymmetricError(SpectralError, _LinAlgError, ValueError):
    """The input must be symmetric, or Hermitian if it is complex, but its triangles differ beyond rounding error."""

    asymmetry: float
    position: tuple[int, ...]
    tolerance: float

    def __init__(self, asymmetry: float, position: tuple[int, ...], operation: str, tolerance: float) -> None:
        self.asymmetry, self.position, self.tolerance = asymmetry, position, tolerance
        where = "the matrix" if not position else f"batch position {position}"
        super().__init__(
            f"{operation}: expected a symmetric (Hermitian) matrix, got a relative asymmetry max|A - Aᴴ|/max|A| of "
            f"{asymmetry:.3g} in {where} (up to {tolerance:.3g} is accepted as rounding error). "
            "Pass (A + A.mH) / 2 to use the Hermitian part."
        )


class NotDefiniteError(SpectralError, _LinAlgError, ValueError):
    """The second matrix of a generalised eigenproblem must be positive definite but is singular or indefinite."""

    eigenvalue: float
    position: tuple[int, ...]

    def __init__(self, eigenvalue: float, largest: float, position: tuple[int, ...], operation: str) -> None:
        self.eigenvalue, self.position = eigenvalue, position
        where = "the matrix" if not position else f"batch position {position}"
        super().__init__(
            f"{operation}: expected a positive definite B, got eigenvalues from {eigenvalue:.6g} to {largest:.6g} in "
            f"{where}, which is singular to rounding or indefinite. Add a multiple of the identity to B."
        )


class SolverError(SpectralError, _LinAlgError):
    """No solver could decompose a matrix. ``matrix`` is the matrix and ``position`` its batch index."""

    position: tuple[int, ...]
    matrix: Tensor
    saved: str | None

    def __init__(
        self, operation: str, position: tuple[int, ...], matrix: Tensor, tried: Iterable[str], saved: str | None
    ) -> None:
        self.position, self.matrix, self.saved = position, matrix, saved
        kept = f"saved as {saved}" if saved else "set SPECTRALGRAD_DUMP to a folder to save such matrices"
        super().__init__(
            f"{operation}: no solver passed the residual test for the matrix of shape {tuple(matrix.shape)} "
            f"at batch position {position or '()'}; tried {', '.join(tried)}; {kept}."
        )


class ConvergenceError(SpectralError, _LinAlgError):
    """An iteration for a large operator did not converge, or found that its problem has no solution."""


class MethodError(SpectralError, ValueError):
    """The method is unknown, has an invalid parameter, or is not available for the operation."""


def _rebuilt(cls: type[SpectralError], message: str) -> SpectralError:
    """Recreate an error when it is unpickled, without calling ``__init__``; pickle restores the attributes."""
    error = cls.__new__(cls, message)
    error.args = (message,)
    return error


def check_square(A: Tensor, operation: str) -> None:
    """Raise :class:`ShapeError` unless ``A`` is a floating-point or complex tensor of square matrices."""
    check_matrix(A, operation)
    if A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"{operation}: expected square matrices (*, d, d), got shape {tuple(A.shape)}")


def check_pair(A: Tensor, B: Tensor, operation: str, names: tuple[str, str] = ("A", "B")) -> None:
    """Raise :class:`ShapeError` unless ``A`` and ``B`` are square, of equal size and dtype, and their batches fit."""
    check_square(A, f"{operation}, {names[0]}")
    check_square(B, f"{operation}, {names[1]}")
    check_alike(A, B, operation, names)


def check_alike(X: Tensor, Y: Tensor, operation: str, names: tuple[str, str] = ("X", "Y")) -> None:
    """Raise :class:`ShapeError` unless the last dimensions and the dtypes agree and the batch dimensions broadcast."""
    both = " and ".join(names)
    if X.dtype != Y.dtype:
        raise ShapeError(f"{operation}: expected {both} of the same dtype, got {X.dtype} and {Y.dtype}")
    if X.shape[-1] != Y.shape[-1] or not broadcast(X.shape[:-2], Y.shape[:-2]):
        raise ShapeError(
            f"{operation}: expected {both} with the same last dimension and batch dimensions that broadcast, "
            f"got shapes {tuple(X.shape)} and {tuple(Y.shape)}"
        )


def broadcast(*batches: torch.Size) -> bool:
    """True if shapes broadcast against each other."""
    try:
        common_shape(*batches)
    except RuntimeError:
        return False
    return True


def common_shape(*shapes: torch.Size) -> torch.Size:
    """Return the shape to which all of them broadcast; torch, whose look is a slow one, sees different shapes only."""
    first = shapes[0]
    return first if all(shape == first for shape in shapes) else torch.broadcast_shapes(*shapes)


def check_matrix(M: Tensor, operation: str, expected: str = "matrices (*, m, n)") -> None:
    """Raise :class:`ShapeError` unless ``M`` is a floating-point or complex tensor of matrices."""
    check_tensor(M, operation)
    check_dense(M, operation)
    if M.dim() < 2:
        raise ShapeError(f"{operation}: expected {expected}, got shape {tuple(M.shape)}")


def check_tensor(X: object, where: str, expected: str = "a torch.Tensor") -> None:
    """Raise :class:`ShapeError` unless ``X`` is a tensor."""
    if isinstance(X, np.ndarray):
        raise ShapeError(f"{where}: expected {expected}, got a numpy array; convert it with torch.from_numpy")
    if not isinstance(X, Tensor):
        raise ShapeError(f"{where}: expected {expected}, got {type(X).__name__}")


def check_dense(X: Tensor, operation: str, layouts: frozenset[torch.layout] = frozenset({torch.strided})) -> None:
    """Raise :class:`ShapeError` unless ``X`` is a tensor of a supported dtype, and dense or of another given layout."""
    if X.dtype not in DTYPES:
        narrow = X.is_floating_point()
        advice = "; convert it to bfloat16, float16, float32 or float64 first" if narrow else ""
        raise ShapeError(f"{operation}: expected a floating-point or complex tensor, got {X.dtype}{advice}")
    check_layout(X, operation, layouts)


def check_layout(X: Tensor, operation: str, layouts: frozenset[torch.layout] = frozenset({torch.strided})) -> None:
    """Raise :class:`ShapeError` unless ``X`` is dense or of another given layout."""
    if X.layout not in layouts or X.is_nested:
        kind = "a nested tensor" if X.is_nested else f"layout {X.layout}"
        advice = "use torch.nested.to_padded_tensor or a loop" if X.is_nested else "call to_dense() first"
        raise ShapeError(f"{operation}: expected a dense tensor, got {kind}; {advice}")


def check_features(X: Tensor, where: str) -> None:
    """Raise :class:`ShapeError` unless ``X`` is a dense, real floating-point tensor."""
    check_tensor(X, where)
    if not X.is_floating_point():
        raise ShapeError(f"{where}: expected a real floating-point tensor, got {X.dtype}")
    check_dense(X, where)


def check_choice(value: object, allowed: tuple[str, ...], argument: str, where: str) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is one of the ``allowed`` strings."""
    if value not in allowed:
        raise ArgumentError(f"{where}: expected {argument} {' or '.join(map(repr, allowed))}, got {value!r}")


def batch_positions(bad: Tensor) -> list[tuple[int, ...]]:
    """Return the batch indices at which the boolean tensor ``bad`` (one entry per matrix) is true."""
    return [tuple(index) for index in torch.nonzero(bad).tolist()]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def listed(positions: Sequence[tuple[int, ...]]) -> str:
    """Return "position 3" or "positions 3, 5" and so on, without the end of a long list."""
    shown = ", ".join(str(p if len(p) != 1 else p[0]) for p in positions[:_LISTED])
    more = len(positions) - _LISTED
    noun = "position" if len(positions) == 1 else "positions"
    return f"{noun} {shown}" + (f" and {more} more" if more > 0 else "")
