"""Projectors onto leading eigenspaces."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ..autograd.functions import frechet_derivative, kernel_functions
from ..autograd.functions.divided_differences import Differences
from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.functions.scalar_functions import Function
from ..autograd.pairwise import differences
from ..dispatch import function
from ..dispatch.arguments import check_count
from ..dispatch.overrides import shortened
from ..errors import check_square
from ..precision import full_precision, narrow, rounded_to, widen
from ..rules import Pade
from ..solvers.products import composed

__all__ = ["spectral_projector"]


def _at_once(A: Tensor, k: int) -> Tensor | None:
    """Return the projector in one kernel call, or None; the arguments may be anything."""
    if type(A) is not Tensor or type(k) is not int or A.is_nested or not 0 <= k <= A.shape[-1:].numel():
        return None
    return kernel_functions.at_once(A, _leading(k), False)


@shortened(_at_once)
def spectral_projector(A: Tensor, k: int) -> Tensor:
    r"""Compute the projector :math:`P=V_kV_k^H` onto the eigenvectors of the k largest eigenvalues.

    .. math:: \bar A=V\bigl(\Gamma\circ V^H\bar PV\bigr)V^H,\qquad
              \Gamma_{ij}=\frac{1}{|\lambda_i-\lambda_j|}\ \text{for one of } i,j \text{ leading and the other not},
              \quad 0\text{ otherwise.}

    Equal eigenvalues on the same side of the cut have no effect. A tie across the cut leaves the subspace undefined;
    the gradient is then bounded as in :class:`Pade`, and :func:`diagnostics.inspect` reports it.

    Args:
        A: Hermitian matrices (*, d, d).
        k: number of leading eigenvectors, from 0 to d.

    Returns:
        the projector (*, d, d), Hermitian, of rank k.

    Raises:
        ArgumentError: ``k`` is not an integer from 0 to d.

    Example:
        >>> spectral_projector(torch.diag(torch.tensor([3.0, 1.0, 2.0])), 2).diagonal()
        tensor([1., 0., 1.])

    Reference: Kato, Perturbation Theory for Linear Operators, II.2.
    """
    check_square(A, "spectral_projector")
    domain = Domain("spectral_projector", positive=False, dtype=rounded_to(A))
    check_count(k, "k", "spectral_projector", 0, A.shape[-1])
    f = _leading(int(k))

    def projector(A: Tensor) -> Tensor:
        w, V, _ = domain.spectrum(A)
        if function.needs_no_gradient(A):
            return composed(V, f.value(w), V.mH)
        return frechet_derivative.exact(A, w, V, *f.differences(w))

    with full_precision(A):
        wide = widen(A)
        result = kernel_functions.by_kernel(wide, f, domain, lambda: homogeneous(projector, (wide,), ((1,), (0,))))
        return narrow(result, A.dtype)


@lru_cache(maxsize=256)
def _leading(k: int) -> Function:
    """Return the function that is 1 for the k largest eigenvalues and 0 for the others, with bounded gaps between."""

    def value(w: Tensor) -> Tensor:
        d = w.shape[-1]
        return (torch.arange(d, device=w.device) >= d - k).to(w.dtype).expand(w.shape)

    def all_differences(w: Tensor) -> Differences:
        chosen = value(w)
        return chosen, Pade().gaps(w) * differences(chosen), torch.zeros_like(w)

    return Function(value, torch.zeros_like, all_differences, kernel=("leading", float(k)))
