r"""Orthogonal weights: a loss that asks for them, and a convolution that is orthogonal as an operator.

Derivation of the convolution. Let :math:`L_{ab}=F_{ab}-F_{-a,-b}^T` for the taps (a, b) of a filter F of odd size. The
operator J that convolves with L, at zero or circular padding, has the block :math:`L_{y-x}` between positions x and y,
so :math:`J^T=-J` and :math:`e^J` is orthogonal. Its series cut after k terms errs by at most
:math:`r=\lVert J\rVert^{k+1}/(k+1)!` (J is normal with imaginary eigenvalues), so for the sum S

.. math:: \lVert SS^T-I\rVert\le2r+r^2 .

The symbol :math:`\sum_{ab}e^{i(a\omega_1+b\omega_2)}L_{ab}` of k×k taps is a block row of k phases times the matrix R
with blocks :math:`L_{ab}` times a block column of k phases, so :math:`\lVert J\rVert\le k\lVert R\rVert_2`. Other ways
to lay out the taps give more such bounds (Singla and Feizi, Fantastic Four, 2021).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import ArgumentError, NonFiniteError, ShapeError, check_choice, check_matrix
from ..precision import full_precision, widen

_FARTHEST = 4.0  # a series at a larger norm loses more than two digits to cancellation; it is applied in parts


def orthogonality_loss(W: Tensor, *, side: str = "smaller", squared: bool = False) -> Tensor:
    r"""The distance of a weight from orthogonal (OL), to be added to a loss.

    .. math:: \lVert WW^T-I_m\rVert_F=\sqrt{\lVert W^TW-I_n\rVert_F^2+m-n} .

    The paper's form, ``side="rows"``, cannot vanish for m > n: its minimum is :math:`\sqrt{m-n}` (6.08 for a first
    convolution of 64×27), at matrices with orthonormal columns. ``side="smaller"`` takes the smaller Gram matrix and
    has the same minimisers and minimum 0 for every shape.

    Args:
        W: a matrix (m, n), or a filter (out, in, ...) taken as (out, in · ...).
        side: ``"smaller"`` or ``"rows"``.
        squared: the square, whose gradient is smooth at the minimum; the norm itself has a kink there.

    Returns:
        a scalar; the gradient is zero where the norm is zero.

    Raises:
        ShapeError: W has fewer than two dimensions.
        ArgumentError: the side is unknown.

    Example:
        >>> W = torch.nn.init.orthogonal_(torch.empty(64, 3, 3, 3, dtype=torch.float64).flatten(1))
        >>> round(float(orthogonality_loss(W)), 6), round(float(orthogonality_loss(W, side="rows")), 4)
        (0.0, 6.0828)

    Reference: ECCV 2022, Eq. 12. A small norm does not make a convolution orthogonal as an operator;
    :class:`OrthogonalConv2d` is.
    """
    check_matrix(W, "orthogonality_loss")
    check_choice(side, ("smaller", "rows"), "side", "orthogonality_loss")
    with full_precision(W):
        M = widen(W).flatten(1)
        M = M.mH if M.shape[0] > M.shape[1] else M
        gram = M @ M.mH
        defect = gram - torch.eye(M.shape[0], dtype=M.dtype, device=M.device)
        constant = max(0, W.shape[0] - W[0].numel()) if side == "rows" and W.shape[0] else 0
        if squared:
            return (defect.abs().square().sum() + constant).to(M.real.dtype)
        if constant:
            return (defect.abs().square().sum() + constant).sqrt()
        return torch.linalg.matrix_norm(defect)


class OrthogonalConv2d(nn.Module):
    r"""A convolution that is orthogonal as an operator: the exponential of a skew-symmetric convolution (OW).

    .. math:: y=e^Jx+b,\qquad e^J=\sum_{j\le k}\frac{J^j}{j!}+\text{a remainder below the tolerance}.

    With C = max(in, out) channels, input and output are padded with zero channels and cut. So :math:`S^TS=I` for
    in ≤ out (norms are preserved) and :math:`SS^T=I` for in ≥ out. Unlike an orthogonal matrix reshaped to a filter,
    it is an isometry of feature maps. The receptive field grows with the number of terms: that, more than
    orthogonality, is what lifts the rank of the covariance behind it (claim O24).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: odd size of the skew-symmetric filter.
        bias: learn a bias.
        padding_mode: ``"zeros"`` or ``"circular"``; the operator is orthogonal for both.
        tolerance: bound of :math:`\lVert SS^T-I\rVert_2` up to rounding; the number of terms follows from it and from a
            bound of :math:`\lVert J\rVert`. The released code takes 5 terms in training (about 5e-3).
        max_norm: the filter is scaled down when the bound of :math:`\lVert J\rVert` exceeds this. Angles beyond π
            only repeat rotations; None lets the norm, and with it the time, grow.

    Stride 1, no dilation, no groups. For stride s put ``torch.nn.PixelUnshuffle(s)``, an isometry, in front.
    Autocast is switched off inside.

    Shape:
        (B, in_channels, H, W) → (B, out_channels, H, W).

    Example:
        >>> conv = OrthogonalConv2d(3, 8, bias=False)
        >>> x = torch.randn(2, 3, 16, 16)
        >>> abs(conv(x).norm().item() / x.norm().item() - 1) < conv.tolerance
        True

    Reference: Singla and Feizi, Skew Orthogonal Convolutions, ICML 2021; ECCV 2022, section 4.2.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        bias: bool = True,
        padding_mode: str = "zeros",
        tolerance: float = 1e-3,
        max_norm: float | None = math.pi,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check(in_channels, out_channels, kernel_size, padding_mode, tolerance, max_norm)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.padding_mode, self.tolerance, self.max_norm = padding_mode, tolerance, max_norm
        channels = max(in_channels, out_channels)
        self.weight = nn.Parameter(
            torch.empty(channels, channels, kernel_size, kernel_size, device=device, dtype=dtype)
        )
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gaussian filters with the bound of ‖J‖ at ``max_norm`` (π if there is none), bias zero."""
        nn.init.normal_(self.weight)
        with torch.no_grad():
            size = norm_bound(skew(widen(self.weight)))
            self.weight.mul_(torch.where(size > 0, (self.max_norm or math.pi) / size, 1))
            if self.bias is not None:
                self.bias.zero_()

    def extra_repr(self) -> str:
        bias = "" if self.bias is not None else ", bias=False"
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"padding_mode={self.padding_mode}, tolerance={self.tolerance:g}{bias}"
        )

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ShapeError(f"OrthogonalConv2d: expected input (B, {self.in_channels}, H, W), got {tuple(x.shape)}")
        if not torch.compiler.is_compiling() and not bool(torch.isfinite(self.weight).all()):
            raise NonFiniteError([()], (), "OrthogonalConv2d: weight")
        with full_precision(x):
            L = skew(widen(self.weight))
            size = norm_bound(L)
            if self.max_norm is not None:
                L = L * (self.max_norm / torch.clamp(size, min=self.max_norm))
            y = self._exponential(widen(x), L, size)
            y = y[:, : self.out_channels]
            return (y if self.bias is None else y + widen(self.bias)[:, None, None]).to(x.dtype)

    def _exponential(self, x: Tensor, L: Tensor, size: Tensor) -> Tensor:
        parts, terms = self._plan(size)
        y = functional.pad(x, (0, 0, 0, 0, 0, self.weight.shape[0] - self.in_channels))
        for _ in range(parts):
            term = y
            for j in range(1, terms + 1):
                term = self._convolve(term, L) / (parts * j)
                y = y + term
        return y

    def _plan(self, size: Tensor) -> tuple[int, int]:
        """In how many parts, of how many terms each; from the largest norm allowed when there is no value to read."""
        fixed = self.max_norm is not None and torch.compiler.is_compiling()
        largest = float(self.max_norm or math.inf) if fixed else min(float(size.detach()), self.max_norm or math.inf)
        return series(largest, self.tolerance)

    def _convolve(self, x: Tensor, L: Tensor) -> Tensor:
        reach = self.kernel_size // 2
        if self.padding_mode == "zeros" or reach == 0:
            return functional.conv2d(x, L, padding=reach)
        return functional.conv2d(functional.pad(x, (reach,) * 4, mode="circular"), L)


def skew(F: Tensor) -> Tensor:
    """The filter F minus its flipped transpose: its convolution is a skew-symmetric operator."""
    return F - F.transpose(0, 1).flip(2, 3)


def norm_bound(L: Tensor) -> Tensor:
    """An upper bound of ‖J‖ for filters (c, c, k, k), any image size, zero or circular padding."""
    c, _, k, _ = L.shape
    layouts = (
        L.permute(0, 2, 1, 3).reshape(c * k, c * k),
        L.permute(0, 3, 1, 2).reshape(c * k, c * k),
        L.reshape(c, c * k * k),
    )
    return k * torch.stack([torch.linalg.matrix_norm(M, 2) for M in layouts]).amin()


def series(norm: float, tolerance: float) -> tuple[int, int]:
    """Parts n and terms k each, so that the product of n series at norm/n is orthogonal to the tolerance.

    At least one term: without it a small filter would get no gradient and could never grow.
    """
    parts = max(1, math.ceil(norm / _FARTHEST))
    wanted, remainder, terms = math.log1p(tolerance) / parts, norm / parts, 0  # (1 + δ)ⁿ − 1 ≤ tolerance
    while 2 * remainder + remainder**2 > wanted:
        terms += 1
        remainder *= norm / parts / (terms + 1)
    return parts, max(terms, 1)


def _check(
    in_channels: int, out_channels: int, kernel_size: int, padding_mode: str, tolerance: float, max_norm: float | None
) -> None:
    if in_channels < 1 or out_channels < 1:
        raise ArgumentError(f"OrthogonalConv2d: expected at least one channel, got {in_channels} and {out_channels}")
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ArgumentError(
            f"OrthogonalConv2d: expected an odd kernel_size, got {kernel_size}; "
            "an even filter has no centre to be skew about"
        )
    check_choice(padding_mode, ("zeros", "circular"), "padding_mode", "OrthogonalConv2d")
    if not 0 < tolerance < 1:
        raise ArgumentError(f"OrthogonalConv2d: expected a tolerance between 0 and 1, got {tolerance}")
    if max_norm is not None and not max_norm > 0:
        raise ArgumentError(f"OrthogonalConv2d: expected max_norm > 0 or None, got {max_norm}")
