r"""The polar factor, and the nearest rotation, with exact derivatives that involve no gap.

Derivation. :math:`M=QH` with :math:`H=(M^HM)^{1/2}` and :math:`Q^HQ=I`. Writing
:math:`dQ=Q\Omega+(I-QQ^H)dM\,H^{-1}` with skew :math:`\Omega`, the skew part of :math:`Q^HdM=\Omega H+dH`
gives :math:`H\Omega+\Omega H=Q^HdM-dM^HQ`, a Lyapunov equation in H. Its weights are
:math:`1/(\sigma_i+\sigma_j)`, so the derivative exists at equal singular values.

The nearest rotation of a real matrix is :math:`Q=UDV^\top` with :math:`D=\mathrm{diag}(1,\dots,1,\det UV^\top)`.
Then :math:`M=QH` again, with the symmetric :math:`H=V\,D\Sigma\,V^\top`, so the equation is the same with the
eigenvalues :math:`h=(\sigma_1,\dots,\sigma_{n-1},\pm\sigma_n)`. Its weights :math:`1/(h_i+h_j)`, :math:`i\ne j`,
exist as long as :math:`\sigma_{n-1}\pm\sigma_n>0`, also where :math:`\sigma_n=0`: the right-hand side is skew and has
no diagonal.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ... import solvers
from ...dispatch import function, status
from ...precision import full_precision, reciprocal
from ...solvers.symmetry import hermitian
from .. import usual
from ..functions import frechet_derivative, rescaling
from ..functions.divided_differences import integer_power, on_range
from ..functions.square_root import solve_lyapunov


def exact(M: Tensor, rtol: float | None, special: bool) -> Tensor:
    """Return the polar factor (*, m, n) of matrices in working precision, or with ``special`` the nearest rotation."""
    if M.shape[-2] < M.shape[-1]:
        return exact(M.mH, rtol, special).mH
    return with_eigenvalues(M, -1.0 if rtol is None else float(rtol), special)[0]


def at_once(M: Any, special: bool) -> Tensor | None:
    """Return the factor of the caller's matrices if the kernel computes it and nothing but reverse mode observes it.

    ``M`` may be anything; for what is not such matrices, wide ones included, the result is None.
    """
    found = (solvers.rotations if special else solvers.polar_factors).at_once(M)
    if found is None and solvers.prepared_svd(M):
        m, n = M.shape[-2:]
        if m == n or (m > n and not special):
            found = _Polar.run(M, -1.0, special, "polar", False)
    return None if found is None else found[0]


def with_eigenvalues(M: Tensor, rtol: float, special: bool, operation: str = "polar") -> tuple[Tensor, Tensor]:
    """Return the factor Q of tall matrices (*, m, n), and the eigenvalues h (*, n) of H = QᴴM without gradient.

    A negative ``rtol`` stands for the default tolerance.
    """
    Q, h, _ = function.apply(_Polar, M, rtol, special, operation, not M.is_cpu and status.assumed(M))
    return Q, h


def decompose(M: Tensor, rtol: float, special: bool, operation: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, h and Vh, without gradient, with M = Q V diag(h) Vh for tall matrices (*, m, n).

    :func:`spectralgrad.solvers.decompose.polar_algorithms.rotations` says which of h are zero or negative.
    """
    return (solvers.rotations if special else solvers.polar_factors)(M, operation, rtol)


def derivative(G: Tensor, h: Tensor, Vh: Tensor, Q: Tensor, known: bool = False) -> Tensor:
    """Return the derivative of M ↦ Q in the direction G, which cannot be differentiated; it is self-adjoint.

    ``known`` is as in :func:`spectralgrad.autograd.functions.rescaling.derivative`.
    """
    return rescaling.derivative(lambda h, G: _plain(G, h, Vh, Q), h, G, -1, known)


def _plain(G: Tensor, h: Tensor, Vh: Tensor, Q: Tensor) -> Tensor:
    if function.eager(Q, G, anywhere=True):
        fused = solvers.polar_gradient(Q, h, Vh, G)
        if fused is not None:
            return fused
    V = Vh.mH
    U, GV = Q @ V, G @ V
    P = U.mH @ GV
    # The diagonal of the difference has exactly no real part, so a small eigenvalue amplifies no rounding error.
    inner = U @ (solvers.inverse_sums(h) * (P - P.mH))
    if Q.shape[-2] > Q.shape[-1]:
        inner = inner + (GV - U @ P) * reciprocal(h, h > 0).unsqueeze(-2)
    return inner @ Vh


class _Polar(function.DerivativeRule):
    results = "Q h Vh"
    non_differentiable = "h Vh"
    keeps = "M h Vh Q assumed"
    materialize_grads = False

    @staticmethod
    def forward(M: Tensor, rtol: float, special: bool, operation: str, assumed: bool) -> tuple[Tensor, Tensor, Tensor]:
        Q, h, Vh = decompose(M, rtol, special, operation)
        if assumed:
            usual.moderate(h, 1)
        return Q, h, Vh

    @staticmethod
    def backward(ctx, gQ, *_):  # type: ignore[no-untyped-def]
        if gQ is None:
            return None, None, None, None, None
        M, h, Vh, Q = ctx.saved_tensors
        with full_precision(Q):
            composed = function.differentiating()
            gM = _composed(M, h, Vh, Q, gQ) if composed else derivative(gQ, h, Vh, Q, ctx.assumed)
            return gM, None, None, None, None

    @staticmethod
    def jvp(ctx, dM, *_):  # type: ignore[no-untyped-def]
        M, h, Vh, Q = ctx.saved_tensors
        with full_precision(Q):
            return _composed(M, h, Vh, Q, dM), None, None


def _composed(M: Tensor, h: Tensor, Vh: Tensor, Q: Tensor, G: Tensor) -> Tensor:
    """Compute :func:`derivative` from differentiable operations, for derivatives of higher order."""
    H = hermitian(Q.mH @ M)
    W = Q.mH @ G
    X = solve_lyapunov(H, W - W.mH, h, Vh.mH)
    rotation = Q @ (X - X.mH) / 2  # removes rounding errors on the diagonal, which a small eigenvalue amplifies
    if Q.shape[-2] == Q.shape[-1]:
        return rotation
    return rotation + (G - Q @ W) @ _inverse(H, h, Vh.mH)


def _inverse(H: Tensor, h: Tensor, V: Tensor) -> Tensor:
    """The pseudo-inverse of H = V diag(h) Vᴴ, differentiable in ``H``."""
    values, gamma, curvature = on_range(lambda w: integer_power(w, -1), h, h > 0)
    return frechet_derivative.exact(H, h, V, values, gamma, curvature)
