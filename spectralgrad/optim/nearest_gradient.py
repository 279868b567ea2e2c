r"""The nearest orthogonal gradient (NOG).

The matrix nearest to G among those with orthonormal rows (m ≤ n) or columns (m ≥ n) is the polar factor
:math:`UV^T` of :math:`G=U\Sigma V^T`. If G has rank r < min(m, n), it is not unique. The partial isometry
:math:`U_rV_r^T` is unique: it is the limit of :math:`G(G^TG+\delta I)^{-1/2}` for :math:`\delta\to0`. It is zero in the
directions in which the gradient is zero, and zero if G is zero.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import solvers
from ..dispatch import status
from ..dispatch.arguments import check_tolerance, checked
from ..errors import MethodError, SpectralError, check_matrix
from ..precision import full_precision, magnitude, rank_tolerance, widen, widest
from ..solvers.products import composed
from .parameters import Chosen
from .step_hook import Treatment

__all__ = ["NearestOrthogonalGradient", "nearest_orthogonal"]

# Odd polynomials a x + b x³ + c x⁵ of the singular values. The first multiplies small values by up to 3.44 per step and
# leaves the others in 0.68…1.13 (Jordan et al., Muon, 2024); the second then converges to 1 with order three.
_LIFT, _SETTLE = (3.4445, -4.7750, 2.0315), (15 / 8, -10 / 8, 3 / 8)
_SCHEDULE = (_LIFT,) * 7 + (_SETTLE,) * 4


@checked
def nearest_orthogonal(G: Tensor, *, method: str = "gram", rtol: float | None = None) -> Tensor:
    r"""The partial isometry :math:`U_rV_r^H` of :math:`G=U\Sigma V^H`, without gradient.

    For full rank it equals :func:`spectralgrad.polar`. Directions with singular values below ``rtol`` times the largest
    are set to zero.

    Args:
        G: finite matrices (*, m, n).
        method: ``"gram"`` uses the eigendecomposition of the smaller Gram matrix in float64, and the SVD for matrices
            for which that would lose digits. ``"svd"`` always uses the SVD. ``"polynomial"`` uses matrix products only,
            7 + 4 odd polynomials of degree five, and is approximate: singular values above 1/1000 of the Frobenius norm
            are mapped to within 1e-3 of 1, smaller ones to between 0 and 1; ``rtol`` is not used.
        rtol: relative rank tolerance (default: :math:`\epsilon\max(8,3\sqrt{\max(m,n)})` with the ε of the precision
            of the computation, and at least the ε of a half type, so that its rounding errors do not count as
            directions).

    Returns:
        (*, m, n), with the dtype of ``G``.

    Raises:
        ShapeError: ``G`` is not a dense floating-point or complex tensor of matrices.
        MethodError: ``method`` is unknown.
        NonFiniteError: ``G`` contains NaN or infinity (``"polynomial"`` returns NaN instead).

    Example:
        >>> nearest_orthogonal(torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
        tensor([[1., 0., 0.],
                [0., 0., 0.]])

    Reference: Song, Sebe and Wang, ECCV 2022, Eq. 14–17; Higham, Functions of Matrices (2008), section 8.1.
    """
    check_matrix(G, "nearest_orthogonal")
    _check_method(method, "nearest_orthogonal")
    check_tolerance(rtol, "nearest_orthogonal")
    if G.numel() == 0:
        return torch.zeros_like(G)
    with torch.no_grad(), full_precision(G):
        A = widen(G.detach())
        A = A / magnitude(A)  # otherwise the tolerance may underflow, or a singular value overflow
        tolerance = _tolerance(A, G.dtype) if rtol is None else rtol
        if A.shape[-2] < A.shape[-1]:
            return _METHODS[method](A.mH.contiguous(), tolerance).mH.to(G.dtype)
        return _METHODS[method](A, tolerance).to(G.dtype)


class NearestOrthogonalGradient(Treatment):
    r"""Replace the gradient of chosen parameters by the nearest orthogonal matrix before every step (NOG).

    .. math:: G=U\Sigma V^T\quad\mapsto\quad U_rV_r^T,\qquad \lVert U_rV_r^T\rVert_F=\sqrt r .

    Filters (out, in, k, k) are treated as matrices (out, in·k·k). The result is again a descent direction, because
    :math:`\langle G,UV^T\rangle=\sum\sigma_i>0`, but a different one. Its norm does not depend on the norm of the
    gradient. Gradient clipping therefore has no effect on a treated parameter unless ``keep_norm`` is set, and the
    step size is determined by the learning rate alone. A gradient that is not finite is left unchanged.

    Args:
        optimizer: any torch optimiser except LBFGS.
        parameters: a layer, a parameter, an iterable of these, or the result of :func:`pre_spectral_layers`. For a
            layer, its weight is treated; for a parametrised weight, the tensor from which it is computed.
        method: as in :func:`nearest_orthogonal`.
        keep_norm: scale the result to the Frobenius norm of the gradient.
        rtol: as in :func:`nearest_orthogonal`.

    Raises:
        SpectralError: a parameter is not in the optimiser or is already treated, or the optimiser is not supported.
        ShapeError: a parameter has fewer than two dimensions.
        MethodError: ``method`` is unknown.

    Example:
        >>> layer = torch.nn.Linear(3, 2, bias=False)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> nog = NearestOrthogonalGradient(optimizer, layer)
        >>> layer(torch.randn(8, 3)).square().sum().backward()
        >>> optimizer.step()
        >>> torch.allclose(layer.weight.grad @ layer.weight.grad.T, torch.eye(2), atol=1e-6)
        True
        >>> nog.remove()

    Reference: Song, Sebe and Wang, Improving Covariance Conditioning of the SVD Meta-layer by Orthogonality,
    ECCV 2022, section 5.1.
    """

    method: str
    keep_norm: bool
    rtol: float | None

    order: ClassVar[int] = 0

    @checked
    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Chosen,
        *,
        method: str = "gram",
        keep_norm: bool = False,
        rtol: float | None = None,
    ) -> None:
        _check_method(method, "NearestOrthogonalGradient")
        check_tolerance(rtol, "NearestOrthogonalGradient")
        self.method, self.keep_norm, self.rtol = method, keep_norm, rtol
        super().__init__(optimizer, parameters)

    def before(self, optimizer: Optimizer) -> None:
        """Replace the gradients. In place, because they may be views into DDP's buckets."""
        for target in self.targets:
            G = target.parameter.grad
            if G is None or G.numel() == 0:
                continue
            if G.layout != torch.strided:
                raise SpectralError(
                    f"NearestOrthogonalGradient: expected a dense gradient, got layout {G.layout}; "
                    "for an embedding, set sparse=False"
                )
            finite = torch.isfinite(G).all()
            if status.accelerated(G) or bool(finite):
                self._replace(G, getattr(optimizer, "grad_scale", None), finite)

    def _replace(self, G: Tensor, grad_scale: Tensor | None, finite: Tensor) -> None:
        """Overwrite the gradient ``G`` if it is finite, which the host does not know of an accelerator.

        A fused optimiser with a GradScaler divides by ``grad_scale`` itself, so the result is multiplied by it here.
        With ``keep_norm`` the norm of ``G`` already contains the scale.
        """
        M = G.flatten(1) if G.is_cpu else torch.where(finite, G, 0).flatten(1)
        R = widen(nearest_orthogonal(M, method=self.method, rtol=self.rtol))
        if self.keep_norm:
            size, wanted = (torch.linalg.vector_norm(x, dtype=widest(x)).real for x in (R, M))
            R = R * torch.where(size > 0, wanted / size, 0).to(R.dtype)
        elif grad_scale is not None:
            R = R * grad_scale.to(R)
        R = R.reshape(G.shape)
        G.copy_(R if G.is_cpu else torch.where(finite, R, G))


def _check_method(method: str, where: str) -> None:
    if method not in _METHODS:
        raise MethodError(f"{where}: expected method {' or '.join(map(repr, _METHODS))}, got {method!r}")


def _tolerance(A: Tensor, stored: torch.dtype) -> float:
    return max(rank_tolerance(max(A.shape[-2:]), A.dtype), torch.finfo(stored).eps)


def _svd(A: Tensor, tolerance: float) -> Tensor:
    U, S, Vh = solvers.svd(A, "nearest_orthogonal")
    return composed(U, _kept(S, tolerance), Vh)


def _gram(A: Tensor, tolerance: float) -> Tensor:
    Q, S, Vh = solvers.polar_factors(A)
    kept = _kept(S, tolerance)
    if not status.optimistic(kept) and bool(kept.all()):
        return Q
    whole = kept.all(-1)[..., None, None]  # a full-rank matrix must not depend on its neighbours in the batch
    return torch.where(whole, Q, Q @ composed(Vh.mH, kept, Vh))


def _kept(S: Tensor, tolerance: float) -> Tensor:
    return (S > tolerance * S[..., :1]) & (S > 0)


def _polynomial(A: Tensor, tolerance: float) -> Tensor:
    length = torch.linalg.matrix_norm(A, keepdim=True)
    X = A / torch.where(length > 0, length, 1)
    for a, b, c in _SCHEDULE:
        gram = X.mH @ X
        X = a * X + X @ (b * gram + c * (gram @ gram))
    return X


_METHODS = {"svd": _svd, "gram": _gram, "polynomial": _polynomial}
