"""Functions of Hermitian matrices: what a user calls. The method does the work."""

from __future__ import annotations

from dataclasses import replace
from typing import SupportsIndex

import torch
from torch import Tensor

from ..autograd import frechet_derivative, scalar_functions, user_functions
from ..autograd.divided_differences import Scalar
from ..autograd.pairwise import differences
from ..autograd.spectra import Domain
from ..dispatch.overrides import overridable
from ..errors import ArgumentError, ShapeError, check_square, check_tolerance
from ..precision import full_precision, rank_tolerance, real_dtype, widen, working_dtype
from ..rules import Method, Pade, resolve


@overridable
def matrix_sqrt(A: Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False) -> Tensor:
    r"""The positive semi-definite square root :math:`A^{1/2}`, with an exact gradient by default.

    .. math:: \bar A = V\Bigl(\frac{(V^H\bar SV)_{ij}}{\sqrt{\lambda_i}+\sqrt{\lambda_j}}\Bigr)V^H .

    No eigenvalue gap appears: equal eigenvalues are harmless, at second order too. Eigenvalues below
    ``rtol`` times the largest count as zero, and the derivative is that of matrices of constant rank.

    Args:
        A: positive semi-definite matrices (*, d, d), real or complex; the lower triangle decides.
        method: ``"exact"``, or any method of ``methods("sqrt")``.
        rtol: relative rank tolerance; default :math:`\epsilon\max(8,3\sqrt d)`.
        clamp: set negative eigenvalues to zero instead of raising.

    Returns:
        the root (*, d, d), Hermitian.

    Raises:
        IndefiniteError: an eigenvalue is more negative than rounding explains.

    Example:
        >>> A = torch.eye(3, requires_grad=True)
        >>> matrix_sqrt(A).sum().backward()
        >>> A.grad                                   # f'(1) G = G/2; autograd through eigh gives NaN
        tensor([[0.5000, 0.5000, 0.5000],
                [0.5000, 0.5000, 0.5000],
                [0.5000, 0.5000, 0.5000]])

    Reference: Higham, Functions of Matrices (2008), sections 3.2 and 6; :mod:`spectralgrad.autograd.square_root`.
    """
    return _root(A, "sqrt", method, _positive(A, "matrix_sqrt", rtol, clamp))


@overridable
def matrix_inv_sqrt(
    A: Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""The inverse square root :math:`A^{-1/2}` (of the pseudo-inverse if A is singular), exact gradient by default.

    .. math:: \Gamma_{ij}=\frac{-1}{\sqrt{\lambda_i}\sqrt{\lambda_j}(\sqrt{\lambda_i}+\sqrt{\lambda_j})} .

    Args, Raises: as in :func:`matrix_sqrt`.

    Returns:
        (*, d, d); zero on the null space of a singular matrix.

    Example:
        >>> matrix_inv_sqrt(torch.diag(torch.tensor([4.0, 1.0, 0.0]))).diagonal()
        tensor([0.5000, 1.0000, 0.0000])

    Reference: as in :func:`matrix_sqrt`.
    """
    return _root(A, "inv_sqrt", method, _positive(A, "matrix_inv_sqrt", rtol, clamp))


@overridable
def matrix_power(
    A: Tensor, p: float | Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False
) -> Tensor:
    r"""The power :math:`A^p`, differentiable in A and, if ``p`` is a tensor, in the exponent.

    .. math:: \bar p=\sum_i(V^H\bar SV)_{ii}\,\lambda_i^p\ln\lambda_i .

    A singular A is handled on its range: negative powers are those of the pseudo-inverse, the zeroth power is the
    projector on the range, and the null space contributes nothing to the gradient. Whole Python numbers as
    exponents are polynomials instead (or, if negative, powers of the pseudo-inverse): they take indefinite
    matrices too, and :math:`A^0=I`. While a tensor exponent requires a gradient, second derivatives are exact
    away from ties only.

    Args:
        A: positive semi-definite matrices (*, d, d).
        p: the exponent; a tensor must broadcast against the batch (*,) and may require a gradient.
        method: as in :func:`matrix_sqrt`.
        rtol: as in :func:`matrix_sqrt`.
        clamp: as in :func:`matrix_sqrt`.

    Returns:
        (*, d, d), Hermitian.

    Example:
        >>> p = torch.tensor(0.25, requires_grad=True)
        >>> S = matrix_power(torch.diag(torch.tensor([16.0, 1.0])), p)
        >>> S.diagonal().detach()
        tensor([2., 1.])
        >>> S.diagonal().sum().backward()
        >>> p.grad                                   # 2 ln 16
        tensor(5.5452)

    Reference: as in :func:`matrix_sqrt`.
    """
    domain = _positive(A, "matrix_power", rtol, clamp)
    if not isinstance(p, (Tensor, float, int)):
        raise ArgumentError(f"matrix_power: expected a number or a tensor as exponent, got {type(p).__name__}")
    if not isinstance(p, Tensor):
        if abs(p) == 0.5:
            return _root(A, "sqrt" if p > 0 else "inv_sqrt", method, domain)
        if float(p).is_integer() and not clamp:
            return _whole_power(A, int(p), method, rtol)
    elif p.dtype.is_complex or not _broadcasts(p, A):
        raise ShapeError(
            f"matrix_power: expected a real exponent that broadcasts against the batch {tuple(A.shape[:-2])}, "
            f"got {p.dtype} of shape {tuple(p.shape)}"
        )
    exponent = torch.as_tensor(p, dtype=real_dtype(working_dtype(A.dtype)), device=A.device)
    return _function(A, "power", scalar_functions.real_power(exponent), method, domain)


@overridable
def matrix_log(A: Tensor, *, method: str | Method = "exact", rtol: float | None = None, clamp: bool = False) -> Tensor:
    r"""The logarithm :math:`\log A` of positive definite matrices; zero on the null space of a singular one.

    .. math:: \Gamma_{ij}=\frac{\ln\lambda_i-\ln\lambda_j}{\lambda_i-\lambda_j},\qquad \Gamma_{ii}=1/\lambda_i .

    Args, Returns, Raises: as in :func:`matrix_sqrt`.

    Example:
        >>> matrix_log(torch.eye(2) * torch.e)
        tensor([[1., 0.],
                [0., 1.]])

    Reference: as in :func:`matrix_sqrt`.
    """
    return _function(A, "log", scalar_functions.LOG, method, _positive(A, "matrix_log", rtol, clamp))


@overridable
def matrix_exp(A: Tensor, *, method: str | Method = "exact") -> Tensor:
    r"""The exponential :math:`e^A` of Hermitian matrices, definite or not.

    .. math:: \Gamma_{ij}=e^{\lambda_i}\,\frac{1-e^{-(\lambda_i-\lambda_j)}}{\lambda_i-\lambda_j}
              \quad(\lambda_i\ge\lambda_j).

    Args:
        A: Hermitian matrices (*, d, d).
        method: as in :func:`matrix_sqrt`.

    Returns:
        (*, d, d), Hermitian.

    Example:
        >>> matrix_exp(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])

    Reference: as in :func:`matrix_sqrt`. For matrices that are not Hermitian see torch.linalg.matrix_exp.
    """
    return _function(A, "exp", scalar_functions.EXP, method, _any_sign(A, "matrix_exp"))


@overridable
def matrix_function(
    A: Tensor, f: Scalar, df: Scalar | None = None, *, method: str | Method = "exact", rtol: float | None = None
) -> Tensor:
    r"""Any smooth function of Hermitian matrices, :math:`f(A)=V\,\mathrm{diag}f(\lambda)\,V^H`.

    f may have parameters that learn; their gradient flows (second derivatives are then exact away from ties
    only). Close pairs get the mean of :math:`f'` between them instead of a quotient, so ties cost no accuracy.

    Args:
        A: Hermitian matrices (*, d, d).
        f: elementwise function of a real tensor.
        df: its derivative, elementwise; torch.func.grad takes it if left out.
        method: as in :func:`matrix_sqrt`.
        rtol: if given, f is applied on the range only (eigenvalues above ``rtol`` times the norm).

    Returns:
        (*, d, d), Hermitian.

    Example:
        >>> slope = torch.tensor(2.0, requires_grad=True)
        >>> S = matrix_function(torch.eye(2), lambda x: torch.tanh(slope * x))
        >>> S.diagonal().sum().backward()
        >>> slope.grad                               # 2 (1 - tanh² 2)
        tensor(0.1413)

    Reference: as in :func:`matrix_sqrt`.
    """
    return _function(A, "function", user_functions.smooth(f, df), method, _any_sign(A, "matrix_function", rtol))


@overridable
def spectral_projector(A: Tensor, k: int) -> Tensor:
    r"""The projector :math:`P=V_kV_k^H` onto the k leading eigenvectors, with a gradient across the cut only.

    .. math:: \Gamma_{ij}=\frac{1}{\lambda_i-\lambda_j}\quad(i\le k<j),\qquad 0\text{ otherwise.}

    Ties on one side of the cut do not matter. A tie across it leaves the subspace undefined; the gradient is
    then bounded as in :class:`Pade`, and :func:`diagnostics.inspect` shows it.

    Args:
        A: Hermitian matrices (*, d, d).
        k: how many, 0 to d.

    Returns:
        (*, d, d), Hermitian, of rank k.

    Example:
        >>> spectral_projector(torch.diag(torch.tensor([3.0, 1.0, 2.0])), 2).diagonal()
        tensor([1., 0., 1.])

    Reference: Kato, Perturbation Theory for Linear Operators, II.2.
    """
    domain = _any_sign(A, "spectral_projector")
    d = A.shape[-1]
    if not isinstance(k, SupportsIndex) or not 0 <= int(k) <= d:
        raise ArgumentError(f"spectral_projector: expected a whole number 0 ≤ k ≤ {d}, got {k!r}")
    with full_precision(A):
        wide = widen(A)
        w, V, _ = domain.spectrum(wide)
        chosen = (torch.arange(d, device=A.device) >= d - k).to(w.dtype).expand(w.shape)
        gamma = Pade().gaps(w) * differences(chosen)
        return frechet_derivative.exact(wide, w, V, chosen, gamma, torch.zeros_like(w)).to(A.dtype)


def _broadcasts(p: Tensor, A: Tensor) -> bool:
    """True if ``p`` expands to the batch of ``A``."""
    batch = A.shape[:-2]
    return p.dim() <= len(batch) and all(
        size in (1, wanted) for size, wanted in zip(reversed(p.shape), reversed(batch), strict=False)
    )


def _positive(A: Tensor, operation: str, rtol: float | None, clamp: bool) -> Domain:
    """The domain of a function of positive semi-definite matrices. Shape and tolerance are checked here, once."""
    check_square(A, operation)
    check_tolerance(rtol, operation)
    return Domain(operation, True, rtol, clamp)


def _any_sign(A: Tensor, operation: str, rtol: float | None = None) -> Domain:
    """The same for a function of all Hermitian matrices."""
    return replace(_positive(A, operation, rtol, clamp=False), positive=False)


def _root(A: Tensor, operation: str, method: str | Method, domain: Domain) -> Tensor:
    rule = resolve(method, operation)
    with full_precision(A):
        return rule.root(widen(A), operation == "inv_sqrt", domain).to(A.dtype)


def _function(A: Tensor, operation: str, f: scalar_functions.Function, method: str | Method, domain: Domain) -> Tensor:
    rule = resolve(method, operation)
    with full_precision(A):
        return rule.function(widen(A), f, domain).to(A.dtype)


def _whole_power(A: Tensor, n: int, method: str | Method, rtol: float | None) -> Tensor:
    """A whole power: polynomial for n ≥ 0, of the pseudo-inverse for n < 0; any sign of eigenvalue."""
    if n < 0 and rtol is None:
        rtol = rank_tolerance(A.shape[-1], working_dtype(A.dtype))
    domain = Domain("matrix_power", positive=False, rtol=rtol)
    return _function(A, "power", scalar_functions.whole_power(n), method, domain)
