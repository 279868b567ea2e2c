"""Whitening and colouring as a layer."""

from __future__ import annotations

from torch import Tensor

from ..errors import ArgumentError, ShapeError, check_features
from ..rules import Method
from .base import SpectralModule
from .functional.coloring import wct


class WhiteningColoring2d(SpectralModule):
    r"""The whitening and colouring transform: content features take on a style's mean and covariance.

    .. math:: y=\alpha\bigl(S_cS_w(x-\mu)+\mu_c\bigr)+(1-\alpha)\,x .

    The layer has no parameters and no memory. The colouring comes from a style map, or from given matrices, which a
    style network makes in GD-WCT.

    Args:
        groups: G groups of C/G channels are transformed each for itself.
        strength: α.
        eps: added to both covariances; the papers' transfer network has 1e-2.
        method: how the gradient of the roots is formed, a name of ``methods("sqrt")``.
        per_sample: statistics of each sample alone, as transfer wants it; otherwise of the batch as a whole, as TPAMI
            2021 writes it.

    Shape:
        content (N, C, H, W) with style (N or 1, C, H', W'), or with matrix (N or 1, G, d, d) and mean (N or 1, C)
        → (N, C, H, W).

    Example:
        >>> layer = WhiteningColoring2d(groups=2)
        >>> content, style = torch.randn(2, 4, 8, 8), torch.randn(1, 4, 5, 5)
        >>> layer(content, style).mean((2, 3)).sub(style.mean((2, 3))).abs().max() < 1e-6
        tensor(True)
        >>> layer(content, matrix=torch.randn(2, 2, 2, 2), mean=torch.randn(2, 4)).shape
        torch.Size([2, 4, 8, 8])

    Reference: Li et al., NeurIPS 2017; Cho et al., GD-WCT, CVPR 2019; Wang et al., TPAMI 2021, section 5.3.
    """

    operation = "sqrt"

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
        if groups < 1:
            raise ArgumentError(f"{self.where}: expected groups ≥ 1, got {groups}")
        if not eps >= 0:
            raise ArgumentError(f"{self.where}: expected eps ≥ 0, got {eps!r}")
        self.groups, self.strength, self.eps, self.per_sample = groups, strength, eps, per_sample

    def forward(
        self, content: Tensor, style: Tensor | None = None, *, matrix: Tensor | None = None, mean: Tensor | None = None
    ) -> Tensor:
        for name, X in (("content", content), ("style", style)):
            if X is None:
                continue
            check_features(X, self.where)
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
            watch=self.watched,
            where=self.where,
        )

    def extra_repr(self) -> str:
        """The settings."""
        return f"groups={self.groups}, strength={self.strength}, eps={self.eps}, method={str(self.method)!r}"
