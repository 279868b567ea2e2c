r"""Square roots by a Taylor polynomial or a Padé approximant, with the gradient of the root by a Lyapunov iteration.

Derivation. With :math:`Y=A/\|A\|_F`, whose spectrum is in [0, 1], and :math:`Z=I-Y`, the roots are
:math:`\|A\|_F^{\pm1/2}(I-Z)^{\pm1/2}`. The polynomial is the Taylor polynomial of :math:`(1-z)^{\pm1/2}`.

The [n/n] Padé approximant of :math:`(1-z)^{1/2}` in powers of :math:`y=1-z=s^2` is

.. math:: \frac{P(y)}{Q(y)}=\frac{\sum_k\binom{2n+1}{2k}y^k}{\sum_k\binom{2n+1}{2k+1}y^k}
          =s\,\frac{(1+s)^{2n+1}+(1-s)^{2n+1}}{(1+s)^{2n+1}-(1-s)^{2n+1}},

because it equals s up to :math:`O((1-s)^{2n+1})`. All coefficients are positive, so that P(Y) and Q(Y) are positive
definite even if A is singular, and no digits cancel; the papers evaluate the same function in powers of z.

The derivative of the root S solves :math:`S\,dS+dS\,S=dA`. The derivative of the inverse root B solves
:math:`B\,dB+dB\,B=d(A^{-1})=-A^{-1}dA\,A^{-1}`, with :math:`B^2` in place of :math:`A^{-1}`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import comb

import torch
from torch import Tensor

from ...precision import full_precision
from .newton_schulz import inverse_given, lyapunov_derivative, magnitude_and_norm

Approximant = Callable[[Tensor, bool], Tensor]


def taylor(degree: int) -> Approximant:
    """Return the Taylor polynomial of the root of Y around the identity, as a function of Y and of ``inverse``."""
    return partial(_taylor, degree=degree)


def pade(degree: int) -> Approximant:
    """Return the [n/n] Padé approximant of the root of Y around the identity, as a function of Y and ``inverse``."""
    return partial(_pade, degree=degree)


def taylor_coefficients(degree: int, inverse: bool) -> list[float]:
    r"""Return the coefficients of :math:`(1-z)^{1/2}`, or of :math:`(1-z)^{-1/2}`, from the constant one up.

    Example:
        >>> taylor_coefficients(3, False), taylor_coefficients(3, True)
        ([1.0, -0.5, -0.125, -0.0625], [1.0, 0.5, 0.375, 0.3125])
    """
    central = [comb(2 * k, k) / 4**k for k in range(degree + 1)]
    return central if inverse else [c / (1 - 2 * k) for k, c in enumerate(central)]


def pade_coefficients(degree: int) -> tuple[list[float], list[float]]:
    r"""Return the coefficients of P and Q in powers of :math:`y=1-z`, from the constant ones up.

    Example:
        >>> pade_coefficients(1)  # (1 + 3y)/(3 + y)
        ([1.0, 3.0], [3.0, 1.0])
    """
    odd = 2 * degree + 1
    both = [[float(comb(odd, 2 * k + parity)) for k in range(degree + 1)] for parity in (0, 1)]
    return both[0], both[1]


def approximate_root(A: Tensor, inverse: bool, approximant: Approximant, lyapunov_steps: int) -> Tensor:
    """Return an approximate root of positive semi-definite ``A``, with the gradient of the root by :func:`lyapunov`.

    Args:
        A: matrices (*, d, d).
        inverse: compute the inverse root; zero for a zero matrix.
        approximant: :func:`taylor` or :func:`pade`.
        lyapunov_steps: number of iterations of the backward pass.
    """
    with full_precision(A):
        size, norm = magnitude_and_norm(A.detach())
        live = norm > 0
        root = torch.where(live, norm, 1).sqrt() * size.sqrt()
        R = approximant(A.detach() / size / torch.where(live, norm, 1), inverse)
        if not inverse:
            S, scale = torch.where(live, R * root, 0), torch.where(live, root, 0)[..., 0, 0]
            return lyapunov_derivative(A, S, lyapunov_steps, scale=scale)
        # The derivative is taken at a matrix of ordinary size, so that no product overflows before the last one.
        B = torch.where(live, R / torch.where(live, norm, 1).sqrt(), 0)
        return lyapunov_derivative(inverse_given(A / size, B @ B), B, lyapunov_steps) / size.sqrt()


def _taylor(Y: Tensor, inverse: bool, degree: int) -> Tensor:
    Z = torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device) - Y
    return _polynomial(taylor_coefficients(degree, inverse), Z)


def _pade(Y: Tensor, inverse: bool, degree: int) -> Tensor:
    powers = _powers(Y, degree)
    above, below = (_combined(c, powers) for c in pade_coefficients(degree))
    if inverse:
        above, below = below, above
    factor = torch.linalg.cholesky_ex(below).L  # positive definite, so it cannot fail
    return torch.cholesky_solve(above, factor)


def _polynomial(coefficients: Sequence[float], Z: Tensor) -> Tensor:
    """Return the polynomial by the method of Paterson and Stockmeyer: 5 products instead of 9 for degree 10."""
    length = max(1, round(len(coefficients) ** 0.5))
    powers = _powers(Z, length)
    chunks = [coefficients[i : i + length] for i in range(0, len(coefficients), length)]
    result = _combined(chunks[-1], powers)
    for chunk in chunks[-2::-1]:
        result = result @ powers[length] + _combined(chunk, powers)
    return result


def _powers(Y: Tensor, degree: int) -> list[Tensor]:
    powers = [torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device).expand_as(Y), Y]
    for _ in range(degree - 1):
        powers.append(powers[-1] @ Y)
    return powers


def _combined(coefficients: Sequence[float], powers: Sequence[Tensor]) -> Tensor:
    result = coefficients[0] * powers[0]
    for c, power in zip(coefficients[1:], powers[1:]):  # noqa: B905
        result = result + c * power
    return result
