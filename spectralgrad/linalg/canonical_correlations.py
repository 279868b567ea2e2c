r"""Canonical correlations of two sets of features, from the smaller side of each.

Derivation. With centred samples in the rows of X, divided by :math:`\sqrt{n-1}`, and :math:`C=X^HX`, canonical
correlations are the singular values of :math:`T=A^HB` with :math:`A=X(C_x+\epsilon I)^{-1/2}` and B likewise. They
depend on A through :math:`AA^H` only, so A may be replaced by its Hermitian root

.. math:: (AA^H)^{1/2}=f(K),\qquad K=XX^H,\qquad f(\lambda)=\sqrt{\frac{\lambda}{\lambda+\epsilon}} ,

of as many rows and columns as there are samples. On the range, and with :math:`g=f^2`,

.. math:: f[a,b]=\frac{g[a,b]}{f(a)+f(b)},\qquad g[a,b]=\frac{\epsilon}{(a+\epsilon)(b+\epsilon)} .

Centred samples are orthogonal to constants, which K maps to zero. So that K need not be singular, it is computed with
another eigenvalue for constants, and the result is centred again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd.functions.divided_differences import Differences
from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.functions.scalar_functions import Function
from ..dispatch.arguments import check_count, check_range
from ..dispatch.host import on_host_without_double
from ..dispatch.overrides import overridable
from ..errors import ShapeError, broadcast, check_matrix
from ..precision import doubled, full_precision, narrow, widen, working_dtype
from ..rules import Exact
from .covariances import scaled_features
from .eigenvalues import singular_values_of

__all__ = ["canonical_correlations"]


@overridable
def canonical_correlations(X: Tensor, Y: Tensor, k: int | None = None, *, eps: float = 0.0) -> Tensor:
    r"""Compute the canonical correlations of two sets of features of the same samples, in descending order.

    .. math:: \sigma\bigl((C_x+\epsilon I)^{-1/2}\,C_{xy}\,(C_y+\epsilon I)^{-1/2}\bigr)

    Without ε the inverse roots are taken on the range, so features may be linearly dependent, constant or zero. Of each
    set the smaller side is decomposed, features or samples: 256 samples of 512 features take matrices of 256 rows.
    Products are computed in double precision. Derivatives are exact where correlations are equal, and within features
    of the same rank; at a tie across the cut at ``k`` they treat the tied correlations as :func:`svdvals` does.

    With no more samples than features and without ε, all correlations are 1, whatever the samples are, and their
    gradients are 0: linear functions of the features take any values on so few samples. A loss needs a positive ε then.

    Args:
        X: samples (*, n, p): n ≥ 2 samples of p features, real or complex.
        Y: samples (*, n, q) of the same dtype; batch dimensions broadcast.
        k: number of correlations, from 1 to min(n − 1, p, q), by default all of these.
        eps: ε ≥ 0, added to the diagonals of both covariances, which are divided by n − 1.

    Returns:
        the correlations (*, k), real, from 0 to 1.

    Raises:
        ShapeError: the shapes or dtypes do not fit together, or there are less than two samples.
        ArgumentError: ``k`` or ``eps`` is out of range.
        NonFiniteError: the input contains NaN or Inf.

    Example:
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> Y = torch.stack([X[:, 0] - X[:, 1], torch.ones(4)], -1)    # one direction is shared, the other constant
        >>> canonical_correlations(X, Y).round(decimals=4)
        tensor([1., 0.])

    Reference: Hotelling, Relations between two sets of variates (1936); Andrew et al., Deep canonical correlation
    analysis (2013).
    """
    return correlations(X, Y, k, eps, "canonical_correlations")


@on_host_without_double
def correlations(X: Tensor, Y: Tensor, k: int | None, eps: float, where: str) -> Tensor:
    """:func:`canonical_correlations`; errors begin with ``where``."""
    _check(X, Y, where)
    most = min(X.shape[-2] - 1, X.shape[-1], Y.shape[-1])
    check_count(k, "k", where, min(1, most), most)
    check_range(eps, "eps", where, 0)
    kept, working = most if k is None else int(k), working_dtype(X.dtype)

    def call(X: Tensor, Y: Tensor, *shifts: Tensor) -> Tensor:
        near, far = [scaled_features(P.mT, True, 1).mT for P in (X, Y)]
        first, second = shifts or (None, None)
        A, B = _whitened(near, first, where), _whitened(far, second, where)
        return singular_values_of((A.mH @ B).to(working), where)[..., :kept]

    with full_precision(X):
        wide = [doubled(widen(P)) for P in (X, Y)]
        shifts = [wide[0].real.new_full((), eps)] * (2 if eps else 0)
        powers = ((1, 0, 2, 0), (0, 1, 0, 2))
        scales = [(p[: 2 + len(shifts)], (0,)) for p in powers]
        found: Tensor = homogeneous(call, (*wide, *shifts), *scales, trailing=(2, 2, 0, 0)[: 2 + len(shifts)])
        return narrow(found, X.dtype)


def _whitened(X: Tensor, shift: Tensor | None, where: str) -> Tensor:
    """Return a matrix of n rows whose product with its adjoint is X(XᴴX + ε)⁻¹Xᴴ, from the smaller side of X."""
    n, d = X.shape[-2:]
    if n < d:
        K = X @ X.mH
        level = K.diagonal(dim1=-2, dim2=-1).real.mean(-1).detach()
        A = Exact().function(K + level[..., None, None] / n, _whitening(shift), Domain(where))
        return A - A.mean(-2, keepdim=True)
    C = X.mH @ X
    if shift is not None:
        C = C + shift[..., None, None] * torch.eye(d, dtype=C.dtype, device=C.device)
    return X @ Exact().root(C, True, Domain(where))


def _whitening(shift: Tensor | None) -> Function:
    """The function f of the module's derivation."""

    def offset(w: Tensor) -> Tensor:
        return w.new_zeros(()) if shift is None else shift.unsqueeze(-1)

    def value(w: Tensor) -> Tensor:
        return (w / (w + offset(w))).sqrt()

    def slope(w: Tensor) -> Tensor:
        return offset(w) / (2 * value(w) * (w + offset(w)).square())

    def differences(w: Tensor) -> Differences:
        f, e = value(w), offset(w)
        near = w + e
        gamma = (e / near).unsqueeze(-1) / near.unsqueeze(-2) / (f.unsqueeze(-1) + f.unsqueeze(-2))
        return f, gamma, -e * (4 * w + e) / (4 * f * w * near**3)

    return Function(value, slope, differences)


def _check(X: Tensor, Y: Tensor, where: str) -> None:
    for name, P in (("X", X), ("Y", Y)):
        check_matrix(P, f"{where}, {name}", "samples (*, n, d)")
    fit = X.shape[-2] == Y.shape[-2] and X.shape[-2] >= 2 and broadcast(X.shape[:-2], Y.shape[:-2])
    if not fit or X.dtype != Y.dtype:
        raise ShapeError(
            f"{where}: expected X (*, n, p) and Y (*, n, q) of the same dtype, with the same n ≥ 2 samples, "
            f"got {tuple(X.shape)} of {X.dtype} and {tuple(Y.shape)} of {Y.dtype}"
        )
