"""The whitening and colouring transform as a layer."""

from __future__ import annotations

from torch import Tensor

from ..dispatch.arguments import check_count, check_range, checked
from ..errors import ShapeError, check_features
from ..rules import Method
from .base import SpectralModule
from .functional.coloring import wct

__all__ = ["WhiteningColoring2d"]


class WhiteningColoring2d(SpectralModule):
    r"""Whitening and colouring transform: give content features the mean and covariance of a style.

    .. math:: y=\alpha\bigl(S_cS_w(x-\mu)+\mu_c\bigr)+(1-\alpha)\,x .

    The layer has no parameters and no running statistics. The colouring matrix :math:`S_c` is computed from a style
    feature map or passed as ``matrix``; in GD-WCT a style network produces it.

    Args:
        groups: number of groups G; each group of d = C/G channels is transformed independently.
        strength: α, from 0 (content unchanged) to 1 (full transform).
        eps: ε, added to both covariances; the papers' transfer network uses 1e-2.
        method: method for the gradient of the square roots, one of ``methods("sqrt")``.
        per_sample: compute the statistics of each sample separately, as is usual in style transfer; otherwise over the
            whole batch, as in TPAMI 2021.

    Shape:
        content (N, C, H, W) with style (N or 1, C, H', W'), or with matrix (N or 1, G, d, d) and mean (N or 1, C)
        → (N, C, H, W).

    Raises:
        ArgumentError: ``groups`` or ``eps`` is out of range, or not exactly one of ``style`` and ``matrix`` is given.
        ShapeError: an input has the wrong shape or type.
        NonFiniteError: an input contains NaN or infinity.

    Example:
        >>> layer = WhiteningColoring2d(groups=2)
        >>> content, style = torch.randn(2, 4, 8, 8), torch.randn(1, 4, 5, 5)
        >>> layer(content, style).mean((2, 3)).sub(style.mean((2, 3))).abs().max() < 1e-6
        tensor(True)
        >>> layer(content, matrix=torch.randn(2, 2, 2, 2), mean=torch.randn(2, 4)).shape
        torch.Size([2, 4, 8, 8])

    Reference: Li et al., NeurIPS 2017; Cho et al., GD-WCT, CVPR 2019; Wang et al., TPAMI 2021, section 5.3.
    """

    groups: int
    strength: float
    eps: float
    per_sample: bool

    operation = "sqrt"

    @checked
    def __init__(
        self,
        groups: int = 1,
        *,
        strength: float = 1.0,
        eps: float = 1e-5,
        method: str | Method = "exact",
        per_sample: bool = True,
    ) -> None:
        super().__init__(method)
        check_count(groups, "groups", self.where)
        check_range(eps, "eps", self.where, 0)
        check_range(strength, "strength", self.where)
        self.groups, self.strength, self.eps, self.per_sample = groups, strength, eps, per_sample

    def forward(
        self, content: Tensor, style: Tensor | None = None, *, matrix: Tensor | None = None, mean: Tensor | None = None
    ) -> Tensor:
        for name, X in (("content", content), ("style", style)):
            if X is None:
                continue
            check_features(X, f"{self.where}, {name}")
            if X.dim() != 4:
                raise ShapeError(f"{self.where}: expected 4D {name} (N, C, H, W), got shape {tuple(X.shape)}")
        return wct(
            content,
            style,
            matrix=matrix,
            mean=mean,
            strength=self.strength,
            groups=self.groups,
            eps=self.eps,
            method=self.method,
            per_sample=self.per_sample,
            watch=self.shown,
            where=self.where,
        )

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return f"groups={self.groups}, strength={self.strength}, eps={self.eps}, method={self._method_text()!r}"
