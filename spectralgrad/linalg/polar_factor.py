"""The orthogonal polar factor: the nearest matrix with orthonormal columns (or rows), or the nearest rotation."""

from __future__ import annotations

from torch import Tensor

from ..autograd.polar import factor
from ..dispatch.arguments import check_tolerance
from ..dispatch.overrides import shortened
from ..errors import check_matrix, check_square
from ..precision import full_precision, narrow, widen
from ..rules import Method, resolve

__all__ = ["polar"]


@shortened(lambda M: factor.at_once(M, False))
def polar(M: Tensor, *, method: str | Method = "exact", rtol: float | None = None, special: bool = False) -> Tensor:
    r"""Compute the orthogonal polar factor :math:`UV^H` of :math:`M=U\Sigma V^H`, for any shape.

    It is the matrix with orthonormal columns (m ≥ n) or rows (m ≤ n) nearest to M in every unitarily
    invariant norm. First and second derivatives are exact, also at equal singular values.

    A rank-deficient matrix has many polar factors. They agree on the range and map the null space of M to any subspace
    orthogonal to the range; the result is the one that belongs to the computed singular vectors. Singular values below
    ``rtol`` times the largest count as zero, and with :math:`P=U^H\bar QV` the gradient is

    .. math:: \bar M=U\Bigl(\frac{P_{ij}-\bar P_{ji}}{\sigma_i+\sigma_j}\Bigr)V^H
              +(I-UU^H)\,\bar Q\,V\,\mathrm{diag}\Bigl(\frac1{\sigma_j}\Bigr)V^H ,

    with zero in place of :math:`1/0`. It is the derivative of the factor along changes of M that keep the rank, for the
    factor whose part on the null space rotates least. A change of M within the null space has no gradient: any such
    change makes the factor jump.

    With ``special=True`` the result is the nearest rotation: among the orthogonal matrices with determinant +1 the one
    nearest to a real square M in the Frobenius norm,

    .. math:: Q=U\,\mathrm{diag}(1,\dots,1,s)\,V^\top,\quad s=\det UV^\top,\qquad
              \bar M=Q\,V\Bigl(\frac{(V^\top(Q^\top\bar Q-\bar Q^\top Q)V)_{ij}}{h_i+h_j}\Bigr)V^\top,\quad
              h=(\sigma_1,\dots,\sigma_{n-1},s\,\sigma_n).

    It is determined, and its derivative exact, if :math:`\sigma_{n-1}+s\,\sigma_n>0`, also for matrices of rank n − 1.
    If this sum is below ``rtol`` times the largest singular value, the pair contributes no gradient. A complex matrix
    has no reflections to exclude: the result is the unitary factor as without ``special``, whose determinant has
    modulus one.

    Args:
        M: matrices (*, m, n), real or complex; half types are computed in float32.
        method: ``"exact"``, or an iteration from ``methods("polar")`` or a method object; iterations approximate the
            factor, do not use ``rtol``, and do not support ``special``.
        rtol: relative rank tolerance; default :math:`\epsilon\max(8,3\sqrt{\max(m,n)})`.
        special: return the nearest rotation; the matrices must be square.

    Returns:
        the polar factor (*, m, n).

    Raises:
        NonFiniteError: the input contains NaN or Inf.
        ShapeError: ``special`` is given and the matrices are not square.
        MethodError: the method is unknown, or not available for ``polar`` or for ``special``.

    Example:
        >>> polar(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
        >>> polar(torch.diag(torch.tensor([3.0, -1.0])), special=True)       # a reflection, and the nearest rotation
        tensor([[1., 0.],
                [0., 1.]])

    Reference: Higham, Functions of Matrices (2008), chapter 8; ECCV 2022, Eq. 17; for rotations Umeyama (1991).
    """
    if special and method == "exact" and rtol is None:
        found = factor.at_once(M, True)
        if found is not None:
            return found
    rule = resolve(method, "polar")
    (check_square if special else check_matrix)(M, "polar")
    check_tolerance(rtol, "polar")
    with full_precision(M):
        return narrow(rule.orthogonal(widen(M), rtol, special), M.dtype)
