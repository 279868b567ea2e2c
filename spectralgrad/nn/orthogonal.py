r"""Orthogonal weights: a loss that encourages them, and a convolution that is an orthogonal operator.

Derivation of the convolution. Let :math:`L_{ab}=F_{ab}-F_{-a,-b}^T` for the taps (a, b) of a filter F of odd size. The
operator J that convolves with L, at zero or circular padding, has the block :math:`L_{y-x}` between positions x and y,
so :math:`J^T=-J` and :math:`e^J` is orthogonal. Truncating its series after k terms causes an error of at most
:math:`r=\lVert J\rVert^{k+1}/(k+1)!` (J is normal with imaginary eigenvalues), so for the sum S

.. math:: \lVert SS^T-I\rVert\le2r+r^2 .

The symbol :math:`\sum_{ab}e^{i(a\omega_1+b\omega_2)}L_{ab}` of k×k taps is a block row of k phases times the matrix R
with blocks :math:`L_{ab}` times a block column of k phases, so :math:`\lVert J\rVert\le k\lVert R\rVert_2`. Other
arrangements of the taps give further bounds of this kind (Singla and Feizi, Fantastic Four, 2021).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..dispatch import status
from ..dispatch.arguments import check_count, check_range, checked
from ..dispatch.host import on_host_without_double
from ..errors import ArgumentError, NonFiniteError, ShapeError, check_features, check_matrix
from ..precision import full_precision, widen

__all__ = ["OrthogonalConv2d", "orthogonality_loss"]

# A series at a larger norm loses more than two digits to cancellation. Beyond it, exp(J) is applied as exp(J/n)ⁿ.
_FARTHEST = 4.0


@checked
def orthogonality_loss(W: Tensor, *, side: Literal["smaller", "rows"] = "smaller", squared: bool = False) -> Tensor:
    r"""Distance of a weight from orthogonality, to be added to a training loss (OL).

    .. math:: \lVert WW^T-I_m\rVert_F=\sqrt{\lVert W^TW-I_n\rVert_F^2+m-n} .

    The paper's form, ``side="rows"``, cannot vanish for m > n: its minimum is :math:`\sqrt{m-n}` (6.08 for a first
    convolution of 64×27), attained at matrices with orthonormal columns. ``side="smaller"`` uses the smaller of the two
    Gram matrices; it has the same minimisers, and its minimum is 0 for every shape.

    Args:
        W: a matrix (m, n), or a filter (out, in, ...), which is flattened to (out, in · ...).
        side: ``"smaller"`` or ``"rows"``.
        squared: return the square, which is smooth at the minimum; the norm itself is not differentiable there.

    Returns:
        a scalar. If the norm is zero, so is the gradient.

    Raises:
        ShapeError: ``W`` has fewer than two dimensions.
        ArgumentError: ``side`` is unknown.

    Example:
        >>> W = torch.nn.init.orthogonal_(torch.empty(64, 3, 3, 3, dtype=torch.float64).flatten(1))
        >>> round(float(orthogonality_loss(W)), 6), round(float(orthogonality_loss(W, side="rows")), 4)
        (0.0, 6.0828)

    Reference: Song, Sebe and Wang, ECCV 2022, Eq. 12. A small norm of the flattened filter does not make the
    convolution an orthogonal operator; :class:`OrthogonalConv2d` is one.
    """
    check_matrix(W, "orthogonality_loss")
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
    r"""Convolution that is an orthogonal operator: the exponential of a skew-symmetric convolution (OW).

    .. math:: y=e^Jx+b,\qquad e^J=\sum_{j\le k}\frac{J^j}{j!}+\text{a remainder below the tolerance}.

    The operator S acts on max(in, out) channels: the input is padded with zero channels if in < out, and surplus output
    channels are dropped if in > out. So :math:`S^TS=I` for in ≤ out (norms are preserved) and :math:`SS^T=I` for
    in ≥ out. Unlike an orthogonal matrix reshaped to a filter, it preserves the norm of feature maps. The receptive
    field grows with the number of terms. This, more than orthogonality, raises the rank of the covariance after the
    layer (claim O24).

    Stride is 1, without dilation or groups. For stride s, put ``torch.nn.PixelUnshuffle(s)``, which is an isometry, in
    front. Autocast is disabled inside the layer.

    Args:
        in_channels: number of input channels.
        out_channels: number of output channels.
        kernel_size: size of the skew-symmetric filter, an odd number, or a pair of equal ones as in torch.
        bias: learn a bias.
        padding_mode: ``"zeros"`` or ``"circular"``; the operator is orthogonal in both cases.
        tolerance: upper bound for :math:`\lVert SS^T-I\rVert_2`, up to rounding. The number of terms follows from it
            and from a bound for :math:`\lVert J\rVert`. The released code uses 5 terms in training (about 5e-3).
        max_norm: the filter is scaled down if the bound for :math:`\lVert J\rVert` exceeds this value. Angles beyond π
            only repeat rotations. With None the norm, and with it the computing time, can grow without limit.
        device: device of the parameters.
        dtype: type of the parameters.

    Shape:
        (B, in_channels, H, W) → (B, out_channels, H, W).

    Raises:
        ArgumentError: a setting is out of range.
        ShapeError: the input has the wrong shape.
        NonFiniteError: the weight contains NaN or infinity.

    Example:
        >>> conv = OrthogonalConv2d(3, 8, bias=False)
        >>> x = torch.randn(2, 3, 16, 16)
        >>> abs(conv(x).norm().item() / x.norm().item() - 1) < conv.tolerance
        True

    Reference: Singla and Feizi, Skew Orthogonal Convolutions, ICML 2021; ECCV 2022, section 4.2.
    """

    kernel_size: int
    in_channels: int
    out_channels: int
    tolerance: float
    max_norm: float | None
    weight: nn.Parameter
    bias: nn.Parameter | None

    @checked
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int] = 3,
        *,
        bias: bool = True,
        padding_mode: Literal["zeros", "circular"] = "zeros",
        tolerance: float = 1e-3,
        max_norm: float | None = math.pi,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count(in_channels, "in_channels", "OrthogonalConv2d")
        check_count(out_channels, "out_channels", "OrthogonalConv2d")
        check_range(tolerance, "tolerance", "OrthogonalConv2d", 0, 1, ends="()")
        check_range(max_norm, "max_norm", "OrthogonalConv2d", 0, ends="()")
        self.kernel_size = _square(kernel_size)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.padding_mode, self.tolerance, self.max_norm = padding_mode, tolerance, max_norm
        channels = max(in_channels, out_channels)
        self.weight = nn.Parameter(
            torch.empty(channels, channels, self.kernel_size, self.kernel_size, device=device, dtype=dtype)
        )
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Gaussian filters whose bound for ‖J‖ is ``max_norm`` (π if None), and set the bias to zero."""
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
        check_features(x, "OrthogonalConv2d")
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ShapeError(f"OrthogonalConv2d: expected input (B, {self.in_channels}, H, W), got {tuple(x.shape)}")
        away = not torch.compiler.is_compiling() and status.accelerated(self.weight)
        if not (torch.compiler.is_compiling() or away or bool(torch.isfinite(self.weight).all())):
            raise NonFiniteError([()], (), "OrthogonalConv2d: weight")
        with full_precision(x):
            L = skew(widen(self.weight))
            size = self._size_without_check(L) if away else norm_bound(L)
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

    def _size_without_check(self, L: Tensor) -> Tensor:
        """The bound for ‖J‖ on an accelerator; NaN for a weight that is not finite, which no driver gets to see."""
        finite = torch.isfinite(self.weight).all()
        return torch.where(finite, norm_bound(torch.where(finite, L, 0)), torch.nan)

    def _plan(self, size: Tensor) -> tuple[int, int]:
        """The number of factors exp(J/n) and of terms in each.

        A compiled graph must not depend on the value of the norm, so it plans for the largest norm allowed; so does
        unchecked code, which must not read it.
        """
        unread = torch.compiler.is_compiling() or (status.accelerated(size) and not status.checking())
        if self.max_norm is not None and unread:
            return series(float(self.max_norm), self.tolerance)
        largest = float(size.detach())
        if math.isnan(largest):
            raise NonFiniteError([()], (), "OrthogonalConv2d: weight")
        return series(min(largest, self.max_norm or math.inf), self.tolerance)

    def _convolve(self, x: Tensor, L: Tensor) -> Tensor:
        reach = self.kernel_size // 2
        if self.padding_mode == "zeros" or reach == 0:
            return functional.conv2d(x, L, padding=reach)
        return functional.conv2d(functional.pad(x, (reach,) * 4, mode="circular"), L)


def skew(F: Tensor) -> Tensor:
    """The filter F minus its flipped transpose; convolution with the result is a skew-symmetric operator."""
    return F - F.transpose(0, 1).flip(2, 3)


@on_host_without_double
def norm_bound(L: Tensor) -> Tensor:
    """An upper bound for ‖J‖ of filters (c, c, k, k), valid for any image size and for zero or circular padding."""
    c, _, k, _ = L.shape
    layouts = (
        L.permute(0, 2, 1, 3).reshape(c * k, c * k),
        L.permute(0, 3, 1, 2).reshape(c * k, c * k),
        L.reshape(c, c * k * k),
    )
    return k * torch.stack([torch.linalg.matrix_norm(M, 2) for M in layouts]).amin()


def series(norm: float, tolerance: float) -> tuple[int, int]:
    """The number of factors n and of terms k, so that the product of n series of J/n is orthogonal to ``tolerance``.

    There is at least one term: without it a small filter would receive no gradient and could never grow.
    """
    parts = max(1, math.ceil(norm / _FARTHEST))
    wanted, remainder, terms = math.log1p(tolerance) / parts, norm / parts, 0  # (1 + δ)ⁿ − 1 ≤ tolerance
    while 2 * remainder + remainder**2 > wanted:
        terms += 1
        remainder *= norm / parts / (terms + 1)
    return parts, max(terms, 1)


def _square(kernel_size: int | tuple[int, int]) -> int:
    """Return the size of a square filter of odd size, given as a number or as a pair."""
    sizes = {kernel_size} if isinstance(kernel_size, int) else set(kernel_size)
    (size,) = sizes if len(sizes) == 1 else (0,)
    if size < 1 or size % 2 == 0:
        raise ArgumentError(
            f"OrthogonalConv2d: expected an odd kernel_size ≥ 1, the same for rows and columns, got {kernel_size}; "
            "a filter of even size has no center tap, which skew symmetry requires"
        )
    return int(size)
