"""Functions of Hermitian matrices: roots, powers, logarithm, exponential and any smooth function.

Each function checks its arguments, describes the accepted matrices by a
:class:`~spectralgrad.autograd.functions.domain.Domain`, and leaves value and gradient to the method. The two roots,
called with a matrix alone, first try one kernel call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd.functions import kernel_functions, scalar_functions, user_functions
from ..autograd.functions.divided_differences import Scalar
from ..autograd.functions.domain import Domain
from ..autograd.functions.scalar_functions import LARGEST_POWER
from ..dispatch.arguments import check_range
from ..dispatch.finite import check_finite
from ..dispatch.overrides import overridable, shortened
from ..errors import ShapeError, check_layout, check_square
from ..precision import full_precision, narrow, number, rank_tolerance, widen
from ..rules import Method, resolve

__all__ = ["matrix_exp", "matrix_function", "matrix_inv_sqrt", "matrix_log", "matrix_power", "matrix_sqrt"]


@shortened(lambda A: kernel_functions.root_at_once(A, "matrix_sqrt", False))
def matrix_sqrt(A: Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False) -> Tensor:
    r"""Compute the positive semi-definite square root :math:`A^{1/2}`, with the exact gradient by default.

    .. math:: \bar A = V\Bigl(\frac{(V^H\bar SV)_{ij}}{\sqrt{\lambda_i}+\sqrt{\lambda_j}}\Bigr)V^H .

    The gradient does not involve eigenvalue gaps, so it is exact for equal eigenvalues, as are higher derivatives.
    Eigenvalues below ``rtol`` times the largest are treated as zero, and the derivative is that within the matrices of
    the same rank. Matrices of any scale have accurate roots and gradients; a result that is not representable is ±inf.

    Args:
        A: positive semi-definite matrices (*, d, d), real or complex.
        method: ``"exact"``, or any name from ``methods("sqrt")`` or a method object.
        rtol: relative rank tolerance; default :math:`\epsilon\max(8,3\sqrt d)`.
        clamp: set negative eigenvalues to zero instead of raising an error.

    Returns:
        the root (*, d, d), Hermitian.

    Raises:
        AsymmetricError: the matrix is not Hermitian, by far more than rounding error.
        IndefiniteError: an eigenvalue is negative beyond the rounding error of the input's dtype.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> matrix_sqrt(A).sum().backward()
        >>> A.grad                                   # f'(1) G = G/2; autograd through eigh gives NaN
        tensor([[0.5000, 0.5000, 0.5000],
                [0.5000, 0.5000, 0.5000],
                [0.5000, 0.5000, 0.5000]])

    Reference: Higham, Functions of Matrices (2008), sections 3.2 and 6;
    :mod:`spectralgrad.autograd.functions.square_root`.
    """
    return _root(A, "sqrt", method, _positive(A, "matrix_sqrt", rtol, clamp))


@shortened(lambda A: kernel_functions.root_at_once(A, "matrix_inv_sqrt", True))
def matrix_inv_sqrt(
    A: Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""Compute the inverse square root :math:`A^{-1/2}`, with the exact gradient by default.

    .. math:: \bar A=V\bigl(\Gamma\circ V^H\bar SV\bigr)V^H,\qquad
              \Gamma_{ij}=\frac{-1}{\sqrt{\lambda_i}\sqrt{\lambda_j}(\sqrt{\lambda_i}+\sqrt{\lambda_j})} .

    For a singular A the result is the square root of the pseudo-inverse.

    Args:
        A, rtol, clamp: as in :func:`matrix_sqrt`.
        method: ``"exact"``, or any name from ``methods("inv_sqrt")`` or a method object.

    Returns:
        the inverse root (*, d, d), Hermitian; zero on the null space of a singular matrix.

    Raises:
        AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`matrix_sqrt`.

    Example:
        >>> matrix_inv_sqrt(torch.diag(torch.tensor([4.0, 1.0, 0.0]))).diagonal()
        tensor([0.5000, 1.0000, 0.0000])

    Reference: as in :func:`matrix_sqrt`.
    """
    return _root(A, "inv_sqrt", method, _positive(A, "matrix_inv_sqrt", rtol, clamp))


@shortened(kernel_functions.power_at_once)
def matrix_power(
    A: Tensor, p: float | Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""Compute the power :math:`A^p`, differentiable in A and, if ``p`` is a tensor, in the exponent.

    .. math:: \bar p=\sum_i(V^H\bar SV)_{ii}\,\lambda_i^p\ln\lambda_i .

    For a singular A the power is taken on the range: negative powers use the pseudo-inverse, the zeroth power
    is the projector onto the range, and the null space does not contribute to the gradient. A Python number with an
    integer value is treated as a polynomial (or, if negative, as a power of the pseudo-inverse): A may then be
    indefinite, and :math:`A^0=I`. If a tensor exponent requires a gradient, second derivatives are exact only where the
    eigenvalues are distinct.

    Args:
        A: positive semi-definite matrices (*, d, d).
        p: the exponent; a tensor must broadcast against the batch (*,) and may require a gradient.
        method, rtol: as in :func:`matrix_sqrt`.
        clamp: as in :func:`matrix_sqrt`; an integer exponent is then treated like any other.

    Returns:
        the power (*, d, d), Hermitian.

    Raises:
        AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`matrix_sqrt`; integer exponents accept indefinite
            matrices.
        ArgumentError, NonFiniteError: ``p`` is not finite.
        ShapeError: ``p`` is a complex tensor or does not broadcast against the batch.

    Example:
        >>> p = torch.tensor(0.25, requires_grad=True)
        >>> S = matrix_power(torch.diag(torch.tensor([16.0, 1.0])), p)
        >>> S.diagonal().detach().round(decimals=4)
        tensor([2., 1.])
        >>> S.diagonal().sum().backward()
        >>> p.grad                                   # 2 ln 16
        tensor(5.5452)

    Reference: as in :func:`matrix_sqrt`.
    """
    domain = _positive(A, "matrix_power", rtol, clamp)
    if isinstance(p, Tensor):
        check_of_batch(p, "p", A, "matrix_power")
    else:
        check_range(p, "p", "matrix_power", -LARGEST_POWER, LARGEST_POWER)
        if abs(p) == 0.5:
            return _root(A, "sqrt" if p > 0 else "inv_sqrt", method, domain)
        if float(p).is_integer() and not clamp:
            return _whole_power(A, int(p), method, rtol)
    exponent = number(p, widen(A).real)
    f = scalar_functions.real_power(exponent, None if isinstance(p, Tensor) else float(p))
    return _function(A, "power", f, method, domain)


@shortened(lambda A: kernel_functions.at_once(A, scalar_functions.LOG, True))
def matrix_log(A: Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False) -> Tensor:
    r"""Compute the logarithm :math:`\log A` of positive definite matrices; zero on the null space of a singular one.

    .. math:: \bar A=V\bigl(\Gamma\circ V^H\bar SV\bigr)V^H,\qquad
              \Gamma_{ij}=\frac{\ln\lambda_i-\ln\lambda_j}{\lambda_i-\lambda_j},\quad \Gamma_{ii}=1/\lambda_i .

    Args:
        A, rtol, clamp: as in :func:`matrix_sqrt`.
        method: ``"exact"``, or any name from ``methods("log")`` or a method object.

    Returns:
        the logarithm (*, d, d), Hermitian.

    Raises:
        AsymmetricError, IndefiniteError, NonFiniteError: as in :func:`matrix_sqrt`.

    Example:
        >>> torch.allclose(matrix_log(torch.eye(2) * torch.e), torch.eye(2), atol=1e-6)
        True

    Reference: as in :func:`matrix_sqrt`.
    """
    return _function(A, "log", scalar_functions.LOG, method, _positive(A, "matrix_log", rtol, clamp))


@shortened(lambda A: kernel_functions.at_once(A, scalar_functions.EXP, False))
def matrix_exp(A: Tensor, *, method: str | Method = "exact") -> Tensor:
    r"""Compute the exponential :math:`e^A` of Hermitian matrices, definite or indefinite.

    .. math:: \bar A=V\bigl(\Gamma\circ V^H\bar SV\bigr)V^H,\qquad
              \Gamma_{ij}=e^{\lambda_i}\,\frac{1-e^{-(\lambda_i-\lambda_j)}}{\lambda_i-\lambda_j}
              \quad(\lambda_i\ge\lambda_j).

    Args:
        A: Hermitian matrices (*, d, d).
        method: ``"exact"``, or any name from ``methods("exp")`` or a method object.

    Returns:
        the exponential (*, d, d), Hermitian.

    Example:
        >>> matrix_exp(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])

    Reference: as in :func:`matrix_sqrt`. For non-Hermitian matrices use :func:`torch.linalg.matrix_exp`.
    """
    return _function(A, "exp", scalar_functions.EXP, method, _any_sign(A, "matrix_exp"))


@overridable
def matrix_function(
    A: Tensor, f: Scalar, df: Scalar | None = None, *, method: str | Method = "exact", rtol: float | None = None
) -> Tensor:
    r"""Apply a smooth function to Hermitian matrices, :math:`f(A)=V\,\mathrm{diag}f(\lambda)\,V^H`.

    f may depend on trainable parameters, which then receive their gradient (second derivatives are exact only where the
    eigenvalues are distinct in that case). For close eigenvalues the divided difference is the mean of :math:`f'`
    between them instead of a quotient, so no accuracy is lost at ties.

    Args:
        A: Hermitian matrices (*, d, d).
        f: elementwise function of a real tensor of any shape.
        df: its derivative, also elementwise; by default torch differentiates ``f``.
        method: ``"exact"``, or any name from ``methods("function")`` or a method object.
        rtol: if given, f is applied on the range only (eigenvalues larger in modulus than ``rtol`` times the norm).

    Returns:
        f(A) (*, d, d), Hermitian.

    Raises:
        ArgumentError: ``f`` or ``df`` is not elementwise.

    Example:
        >>> slope = torch.tensor(2.0, requires_grad=True)
        >>> S = matrix_function(torch.eye(2), lambda x: torch.tanh(slope * x))
        >>> S.diagonal().sum().backward()
        >>> slope.grad                               # 2 (1 - tanh² 2)
        tensor(0.1413)

    Reference: as in :func:`matrix_sqrt`.
    """
    return _function(A, "function", user_functions.smooth(f, df), method, _any_sign(A, "matrix_function", rtol))


def check_of_batch(p: Tensor, argument: str, A: Tensor, operation: str) -> None:
    """Raise an error unless ``p`` has finite real numbers and broadcasts to the batch dimensions of ``A``."""
    check_layout(p, f"{operation}, {argument}")
    batch, sizes = A.shape[:-2], zip(reversed(p.shape), reversed(A.shape[:-2]))  # noqa: B905
    fits = p.dim() <= len(batch) and all(size in (1, wanted) for size, wanted in sizes)
    if not fits or p.dtype.is_complex or p.dtype == torch.bool:
        raise ShapeError(
            f"{operation}: expected a real {argument} that broadcasts against the batch {tuple(batch)}, "
            f"got {p.dtype} of shape {tuple(p.shape)}"
        )
    check_finite(p, f"{operation}, {argument}", 0)


def _positive(A: Tensor, operation: str, rtol: float | None, clamp: bool) -> Domain:
    """The domain of a function of positive semi-definite matrices. Shape and tolerance are checked here, once."""
    check_square(A, operation)
    return Domain.of(A, operation, rtol, clamp)


def _any_sign(A: Tensor, operation: str, rtol: float | None = None) -> Domain:
    """The domain of a function of all Hermitian matrices, with eigenvalues of any sign; checks shape and tolerance."""
    check_square(A, operation)
    return Domain.of(A, operation, rtol, clamp=False, positive=False)


def _root(A: Tensor, operation: str, method: str | Method, domain: Domain) -> Tensor:
    rule = resolve(method, operation)
    with full_precision(A):
        return narrow(rule.root(widen(A), operation == "inv_sqrt", domain), A.dtype)


def _function(A: Tensor, operation: str, f: scalar_functions.Function, method: str | Method, domain: Domain) -> Tensor:
    rule = resolve(method, operation)
    with full_precision(A):
        return narrow(rule.function(widen(A), f, domain), A.dtype)


def _whole_power(A: Tensor, n: int, method: str | Method, rtol: float | None) -> Tensor:
    """Compute an integer power, for eigenvalues of either sign; of the pseudo-inverse for n < 0."""
    if n < 0 and rtol is None:
        rtol = rank_tolerance(A.shape[-1], A.dtype)
    domain = _any_sign(A, "matrix_power", rtol)
    return _function(A, "power", scalar_functions.whole_power(n), method, domain)
