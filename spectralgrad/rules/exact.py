"""The default method of matrix functions and polar factors: the true gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..autograd.functions import kernel_functions, spectral_function, square_root
from ..autograd.functions.domain import Domain, Spectrum
from ..autograd.functions.scalar_functions import Function
from ..autograd.polar import factor as polar_factor
from .base import FUNCTIONS, POLAR, Method
from .pade import Pade

__all__ = ["Exact"]


@dataclass(frozen=True)
class Exact(Method):
    r"""``exact``: the true gradient of a matrix function or polar factor, also at ties.

    .. math:: \partial L/\partial A = V\bigl(\Gamma\circ V^H\bar S V\bigr)V^H,\qquad
              \Gamma_{ij}=\frac{f(\lambda_i)-f(\lambda_j)}{\lambda_i-\lambda_j},\quad \Gamma_{ii}=f'(\lambda_i).

    Example:
        >>> Exact()
        Exact()

    Reference: Daleckiĭ and Kreĭn (1965); Higham, Functions of Matrices (2008), theorem 3.11.
    """

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "divided differences: the true gradient, also at ties"
    reference: ClassVar[str] = "Daleckiĭ–Kreĭn 1965"
    operations: ClassVar[frozenset[str]] = FUNCTIONS | POLAR
    exact: ClassVar[bool] = True

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        return square_root.exact_root(A, inverse, domain)

    def function(self, A: Tensor, f: Function, domain: Domain) -> Tensor:
        return kernel_functions.by_kernel(A, f, domain, lambda: Method.function(self, A, f, domain))

    def compose(self, A: Tensor, f: Function, spectrum: Spectrum) -> Tensor:
        return spectral_function.exact(A, f, spectrum, eigenpairs=Pade())

    def orthogonal(self, M: Tensor, rtol: float | None, special: bool) -> Tensor:
        return polar_factor.exact(M, rtol, special)
