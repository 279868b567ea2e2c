"""The gap rule of SVD-inv: the solution of minimum norm where singular vectors are not determined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..autograd.pairwise import differences
from ..autograd.singular import vectors as singular_vectors
from ..precision import reciprocal
from .base import GapMethod

__all__ = ["SVDInv"]


@dataclass(frozen=True)
class SVDInv(GapMethod):
    r"""``svd-inv``: the textbook gaps, and the Moore–Penrose solution (zero) at exact ties.

    The rotations of the singular vectors solve linear systems, one for each pair,

    .. math:: \begin{pmatrix}\sigma_j&-\sigma_i\\-\sigma_i&\sigma_j\end{pmatrix}
              \begin{pmatrix}\Omega_{U,ij}\\\Omega_{V,ij}\end{pmatrix}=\begin{pmatrix}D_{ij}\\\bar D_{ji}\end{pmatrix},
              \qquad D=U^HdM\,V,

    which are singular if :math:`\sigma_i=\sigma_j`. The pseudo-inverse then sets the joint rotation
    :math:`\Omega_U+\Omega_V` to zero and leaves the difference, which is determined. This is :math:`\hat K_{ij}=0` at a
    tie. For ``eigh`` the equation :math:`(\lambda_j-\lambda_i)\Omega_{ij}=(V^HdA\,V)_{ij}` has the same solution. There
    is no bound: gaps that are not exactly zero are inverted as they are.

    Args:
        faithful: what the released code computes at a tie with :math:`\sigma>0`: :math:`\Omega_V=0` and
            :math:`\Omega_{U,ij}=D_{ij}/\sigma_j`, a rotation of the left vectors alone, which is not skew-Hermitian.
            It makes a difference for ``svd`` only.

    Example:
        >>> import torch
        >>> SVDInv().gaps(torch.tensor([1.0, 1.0, 3.0]))
        tensor([[ 0.0000,  0.0000, -0.5000],
                [ 0.0000,  0.0000, -0.5000],
                [ 0.5000,  0.5000,  0.0000]])

    Reference: Zhang and Hu, Differentiable SVD based on Moore-Penrose Pseudoinverse for Inverse Imaging Problems,
    arXiv 2411.14141 (2024).
    """

    name: ClassVar[str] = "svd-inv"
    summary: ClassVar[str] = "1/(λi − λj), and the pseudo-inverse (zero) at exact ties"
    reference: ClassVar[str] = "Zhang and Hu, arXiv 2411.14141"
    faithful: bool = False

    def gaps(self, w: Tensor) -> Tensor:
        gap = differences(w)
        return reciprocal(gap, gap != 0)

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        U, S, Vh = super().decompose_svd(M)
        return singular_vectors.one_sided_at_ties(M, U, S, Vh) if self.faithful else (U, S, Vh)
