r"""A smooth function of singular values, :math:`F(M)=Uf(\Sigma)V^H` with :math:`f(s)=s/(1+s)`, and its gradient.

Derivation. With :math:`P=U^H\,dM\,V`, its Hermitian part :math:`P_h` and its skew part :math:`P_s`, the differential is
:math:`U(\Gamma^-\circ P_h+\Gamma^+\circ P_s)V^H`, where :math:`\Gamma^-_{ij}=(f_i-f_j)/(s_i-s_j)` and
:math:`\Gamma^+_{ij}=(f_i+f_j)/(s_i+s_j)`. A tall matrix adds
:math:`(I-UU^H)\,dM\,V\,\mathrm{diag}(f_i/s_i)V^H`. For this f, with :math:`g_i=1/(1+s_i)`,

.. math:: \Gamma^-_{ij}=g_ig_j,\qquad \Gamma^+_{ij}=g_ig_j\Big(1+\frac{2s_is_j}{s_i+s_j}\Big),\qquad f_i/s_i=g_i,

so nothing is divided by a gap. The map is self-adjoint: the gradient of :math:`\langle F,G\rangle` is the same
expression of G.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scalar(s: Tensor) -> Tensor:
    """The function f(s) = s/(1 + s)."""
    return s / (1 + s)


def apply(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
    """The value U f(S) Vᴴ from the factors; differentiating it goes through them."""
    return (U * scalar(S).unsqueeze(-2).to(U.dtype)) @ Vh


def value_and_gradient(M: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """The value at M (*, m, n) and the gradient of ⟨value, G⟩, without dividing by a gap.

    Example:
        >>> M = torch.diag(torch.tensor([1.0, 1.0])).double()  # equal singular values
        >>> value, gradient = value_and_gradient(M, M)
        >>> value[0, 0].item(), round(gradient[0, 0].item(), 12)
        (0.5, 0.25)

    Reference: Noferini, A formula for the Fréchet derivative of a generalized matrix function, 2017.
    """
    if M.shape[-2] < M.shape[-1]:
        value, gradient = value_and_gradient(M.mH, G.mH)
        return value.mH, gradient.mH
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    g, total = 1 / (1 + S), S.unsqueeze(-1) + S.unsqueeze(-2)
    minus = g.unsqueeze(-1) * g.unsqueeze(-2)
    harmonic = torch.where(total > 0, 2 * S.unsqueeze(-1) * S.unsqueeze(-2) / total, 0)
    P = U.mH @ G @ Vh.mH
    inner = minus * (P + P.mH) / 2 + minus * (1 + harmonic) * (P - P.mH) / 2
    outside = (G @ Vh.mH - U @ P) * g.unsqueeze(-2)
    return apply(U, S, Vh), (U @ inner + outside) @ Vh
