"""Projectors onto leading eigenspaces."""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd.functions import frechet_derivative
from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.pairwise import differences
from ..dispatch import function
from ..dispatch.arguments import check_count
from ..dispatch.overrides import overridable
from ..errors import check_square
from ..precision import full_precision, rounded_to, widen
from ..rules import Pade
from ..solvers.products import composed

__all__ = ["spectral_projector"]


@overridable
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
    d = A.shape[-1]
    check_count(k, "k", "spectral_projector", 0, d)

    def projector(A: Tensor) -> Tensor:
        w, V, _ = domain.spectrum(A)
        chosen = (torch.arange(d, device=A.device) >= d - k).to(w.dtype).expand(w.shape)
        if function.needs_no_gradient(A):
            return composed(V, chosen, V.mH)
        gamma = Pade().gaps(w) * differences(chosen)
        return frechet_derivative.exact(A, w, V, chosen, gamma, torch.zeros_like(w))

    with full_precision(A):
        result: Tensor = homogeneous(projector, (widen(A),), ((1,), (0,)))
        return result.to(A.dtype)
