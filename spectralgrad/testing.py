r"""Test matrices with prescribed eigenvalues, and high-precision reference gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def random_orthogonal(d: int, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return a Haar-distributed orthogonal matrix (d, d), unitary for a complex dtype.

    Example:
        >>> Q = random_orthogonal(3)
        >>> torch.allclose(Q.T @ Q, torch.eye(3, dtype=torch.float64))
        True
    """
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    Q, R = torch.linalg.qr(torch.randn(d, d, dtype=wide, generator=generator))
    phase = R.diagonal() / R.diagonal().abs()
    return (Q * phase).to(dtype)


def with_spectrum(w: Any, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return a Hermitian matrix (d, d) with eigenvalues ``w`` (a sequence of numbers) and random eigenvectors.

    Example:
        >>> torch.linalg.eigvalsh(with_spectrum([1.0, 2.0])).round(decimals=6)
        tensor([1., 2.], dtype=torch.float64)
    """
    values = torch.as_tensor(w, dtype=torch.float64)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    Q = random_orthogonal(len(values), dtype=wide, seed=seed)
    A = (Q * values) @ Q.mH
    return ((A + A.mH) / 2).to(dtype)


def paired_spectrum(d: int, condition: float, gap: float) -> np.ndarray:
    """Return d/2 pairs of eigenvalues: log-spaced from 1 to 1/condition, the second of each pair smaller by ``gap``.

    The gap is relative: a pair is (λ, λ(1 − gap)).

    Example:
        >>> paired_spectrum(4, 100.0, 0.5).tolist()
        [1.0, 0.5, 0.01, 0.005]
    """
    leaders = np.logspace(0, -np.log10(condition), d // 2)
    return np.stack([leaders, leaders * (1 - gap)], 1).reshape(-1)


def paired_matrix(d: int, condition: float, gap: float, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return a symmetric matrix (d, d) with the eigenvalues of :func:`paired_spectrum`.

    Its eigenvectors are random for a positive gap. For gap 0 the matrix is diagonal, because in any other basis
    rounding would separate the equal eigenvalues.

    Example:
        >>> torch.linalg.eigvalsh(paired_matrix(4, 100.0, 0.0)).diff()[::2]
        tensor([0., 0.], dtype=torch.float64)
    """
    w = paired_spectrum(d, condition, gap)
    return with_spectrum(w, dtype=dtype, seed=seed) if gap else torch.diag(torch.from_numpy(w)).to(dtype)


def gradient_of(function: Callable[[Tensor], Tensor], A: Tensor, G: Tensor) -> Tensor:
    """Return the symmetric part of the gradient of ⟨G, function(A)⟩ with respect to A, shape (..., d, d).

    Example:
        >>> gradient_of(torch.linalg.inv, 2 * torch.eye(2), torch.eye(2))
        tensor([[-0.2500, -0.0000],
                [-0.0000, -0.2500]])
    """
    X = A.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((function(X) * G).sum(), X)
    return (gradient + gradient.mT) / 2


def relative_error(x: Tensor, reference: Tensor) -> float:
    """Return ‖x − reference‖ / ‖reference‖ in the Frobenius norm; infinite if ``x`` is not finite.

    Example:
        >>> relative_error(torch.tensor([1.1]), torch.tensor([1.0]))  # doctest: +ELLIPSIS
        0.10...
    """
    wide = torch.complex128 if reference.dtype.is_complex else torch.float64
    x, reference = x.detach().to(wide), reference.detach().to(wide)
    error = torch.linalg.vector_norm(x - reference) / torch.linalg.vector_norm(reference)
    return float(error) if bool(torch.isfinite(error)) else float("inf")


class Reference:
    r"""High-precision values and gradients of :math:`f(A)` for one real symmetric matrix (requires mpmath).

    The stored matrix is taken as exact. Its eigenpairs are computed once with ``digits`` digits; the gradient is
    :math:`V(\Gamma\circ V^TGV)V^T` with divided differences evaluated at the same precision.

    Args:
        A: symmetric matrix (d, d), float32 or float64.
        digits: number of decimal digits.

    Example:
        >>> reference = Reference(torch.eye(2, dtype=torch.float64))
        >>> reference.gradient("sqrt", torch.ones(2, 2))
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]], dtype=torch.float64)
    """

    matrix: Any
    eigenvalues: Any
    eigenvectors: Any

    def __init__(self, A: Tensor, digits: int = 50) -> None:
        self._mp = _high_precision(digits)
        lower = A.detach().to(torch.float64).tril().tolist()
        d = A.shape[-1]
        self.matrix = self._mp.matrix(d, d)
        for i in range(d):
            for j in range(i + 1):
                self.matrix[i, j] = self.matrix[j, i] = self._mp.mpf(lower[i][j])
        self.eigenvalues, self.eigenvectors = self._mp.eigsy(self.matrix)

    def gradient(self, function: str, G: Tensor) -> Tensor:
        """Return the gradient (d, d) of ⟨f(A), G⟩ in float64; ``function`` is sqrt, inv_sqrt, log or exp."""
        f, df = self._scalar(function)
        d = len(self.eigenvalues)
        V = self.eigenvectors
        T = V.T * self._mp.matrix(((G + G.mT) / 2).to(torch.float64).tolist()) * V
        values = [f(x) for x in self.eigenvalues]
        for i in range(d):
            for j in range(d):
                gap = self.eigenvalues[i] - self.eigenvalues[j]
                size = max(abs(self.eigenvalues[i]), abs(self.eigenvalues[j]))
                tied = abs(gap) <= size * self._mp.mpf(10) ** (-self._mp.dps // 2)
                mean = (self.eigenvalues[i] + self.eigenvalues[j]) / 2
                T[i, j] *= df(mean) if tied else (values[i] - values[j]) / gap
        return _tensor(V * T * V.T)

    def value(self, function: str) -> Tensor:
        """Return f(A) (d, d) in float64; ``function`` as in :meth:`gradient`."""
        f, _ = self._scalar(function)
        V = self.eigenvectors
        return _tensor(V * self._mp.diag([f(x) for x in self.eigenvalues]) * V.T)

    def _scalar(self, name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        mp = self._mp
        half = mp.mpf(1) / 2
        known: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
            "sqrt": (mp.sqrt, lambda x: half / mp.sqrt(x)),
            "inv_sqrt": (lambda x: 1 / mp.sqrt(x), lambda x: -half / mp.sqrt(x) ** 3),
            "log": (mp.log, lambda x: 1 / x),
            "exp": (mp.exp, mp.exp),
        }
        if name not in known:
            raise ValueError(f"function: expected one of {', '.join(known)}, got {name!r}")
        return known[name]


class PolarReference:
    r"""High-precision value and gradient of the polar factor of one real square regular matrix (requires mpmath).

    With the singular value decomposition :math:`M=U\Sigma V^T` in ``digits`` digits the factor is :math:`UV^T`, and the
    gradient of :math:`\langle UV^T,G\rangle` is :math:`UXV^T` with

    .. math:: X_{ij}=\frac{H_{ij}-H_{ji}}{\sigma_i+\sigma_j},\qquad H=U^TGV .

    Args:
        M: matrix (d, d), float32 or float64.
        digits: number of decimal digits.

    Example:
        >>> reference = PolarReference(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
        >>> reference.value()
        tensor([[ 0., -1.],
                [ 1.,  0.]], dtype=torch.float64)
        >>> reference.gradient(torch.eye(2))      # of the trace: (1 + 1) / (2 + 3) for each entry of the diagonal
        tensor([[0.4000, 0.0000],
                [0.0000, 0.4000]], dtype=torch.float64)
    """

    U: Any
    singular_values: Any
    Vh: Any

    def __init__(self, M: Tensor, digits: int = 50) -> None:
        self._mp = _high_precision(digits)
        self.U, self.singular_values, self.Vh = self._mp.svd_r(self._mp.matrix(M.detach().to(torch.float64).tolist()))

    def value(self) -> Tensor:
        """Return the polar factor (d, d) in float64."""
        return _tensor(self.U * self.Vh)

    def gradient(self, G: Tensor) -> Tensor:
        """Return the gradient (d, d) of ⟨polar factor, G⟩ in float64."""
        H = self.U.T * self._mp.matrix(G.detach().to(torch.float64).tolist()) * self.Vh.T
        X, s = H.copy(), self.singular_values
        for i in range(H.rows):
            for j in range(H.cols):
                X[i, j] = (H[i, j] - H[j, i]) / (s[i] + s[j])
        return _tensor(self.U * X * self.Vh)


def _high_precision(digits: int) -> Any:
    """Return an mpmath context of its own with this many digits."""
    try:
        import mpmath
    except ImportError as missing:
        raise ImportError("Reference requires mpmath: pip install -e '.[plots]'") from missing
    mp = mpmath.mp.clone() if hasattr(mpmath.mp, "clone") else mpmath.mp
    mp.dps = digits
    return mp


def _tensor(M: Any) -> Tensor:
    rows = [[float(M[i, j]) for j in range(M.cols)] for i in range(M.rows)]
    return torch.tensor(rows, dtype=torch.float64)
