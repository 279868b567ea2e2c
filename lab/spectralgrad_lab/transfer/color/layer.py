"""Colour transfer on tensors: give an image the mean and the covariance of the colours of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from spectralgrad.errors import ArgumentError, ShapeError, check_choice, check_features
from spectralgrad.nn import SpectralModule
from spectralgrad.precision import full_precision
from spectralgrad.rules import Method

from ..moments import Moments, color_moments
from .affine_map import coloring_map
from .spaces import lab_to_srgb, linear_to_lab, srgb_to_linear

SpaceName = Literal["rgb", "lab"]


class Space(NamedTuple):
    """A colour space.

    Attributes:
        curve: what is applied to each sample of sRGB first.
        mix: from the samples after the curve to the space.
        leave: from the space to sRGB.
        stretch: the largest factor by which the way from sRGB to the space increases distances.
    """

    curve: Callable[[Tensor], Tensor]
    mix: Callable[[Tensor], Tensor]
    leave: Callable[[Tensor], Tensor]
    stretch: float

    def enter(self, x: Tensor) -> Tensor:
        """From sRGB to the space."""
        return self.mix(self.curve(x))


def _same(x: Tensor) -> Tensor:
    return x


SPACES = {
    "rgb": Space(_same, _same, _same, 1.0),
    "lab": Space(srgb_to_linear, linear_to_lab, lab_to_srgb, 330.0),
}


class ColorTransfer(SpectralModule):
    r"""Give images the mean and covariance of the colours of other images.

    .. math:: y=\alpha\bigl(S_cS_w(x-\mu)+\mu_c\bigr)+(1-\alpha)\,x,\qquad
              S_w=\Sigma^{-1/2},\quad S_c=\Sigma_c^{1/2} ,

    with mean and covariance of the colours of the content (:math:`\mu,\Sigma`) and of the style
    (:math:`\mu_c,\Sigma_c`). For images whose colours vary in all three directions this is
    :class:`spectralgrad.nn.WhiteningColoring2d` with ``eps=0`` on pixels. No ε is needed for the others: a direction
    of colour space along which the content does not vary cannot be whitened, and is left out. So grey content is tinted
    along one line of the style's colours, content of one colour becomes the style's mean, and the gradients of both are
    finite.

    Everything is computed in float64 and returned in the dtype of the content.

    Args:
        space: ``"rgb"`` for sRGB values as in a file, ``"lab"`` for CIELAB, in which distances are closer to what is
            seen.
        strength: α, from 0 (content unchanged, bit for bit) to 1.
        method: method for the gradient of the square roots, one of ``methods("sqrt")``. Methods that compute the roots
            by an iteration, such as ``newton-schulz``, reach mean and covariance approximately.
        noise: standard deviation, as a share of the range 0..1, up to which colours count as constant along a
            direction. Default: the precision of the input. For images read from files, half a level is sensible:
            ``0.5 / 255``.

    Shape:
        content (3, H, W) or (N, 3, H, W), style (3, H', W') or (N or 1, 3, H', W'); values from 0 to 1. The result has
        the shape of the content, and is not clipped to 0..1.

    Raises:
        ArgumentError: ``space``, ``strength`` or ``noise`` is invalid, or an image is transparent everywhere.
        ShapeError: an input has the wrong shape or type.
        NonFiniteError: an input contains NaN or infinity.

    Example:
        >>> content, style = torch.rand(2, 3, 8, 8), torch.rand(3, 5, 6)
        >>> result = ColorTransfer("lab", strength=0.5)(content, style)
        >>> result.shape
        torch.Size([2, 3, 8, 8])

    Reference: Reinhard et al., Color Transfer between Images, 2001 (mean and variance in a space like CIELAB); Li et
    al., NeurIPS 2017; Wang et al., TPAMI 2021, section 5.3.1 and Fig. 2(d).
    """

    operation = "sqrt"

    def __init__(
        self,
        space: SpaceName = "rgb",
        *,
        strength: float = 1.0,
        method: str | Method = "exact",
        noise: float | None = None,
    ) -> None:
        super().__init__(method)
        check_choice(space, tuple(SPACES), "space", self.where)
        if not 0 <= strength <= 1:
            raise ArgumentError(f"{self.where}: expected strength from 0 to 1, got {strength!r}")
        if noise is not None and not 0 <= noise < 1:
            raise ArgumentError(f"{self.where}: expected noise from 0 to 1, got {noise!r}")
        self.space, self.strength, self.noise = space, strength, noise

    def forward(
        self,
        content: Tensor,
        style: Tensor,
        *,
        content_alpha: Tensor | None = None,
        style_alpha: Tensor | None = None,
    ) -> Tensor:
        """Transfer the colours; opacities (1, H, W) or (N, 1, H, W) weigh the pixels in mean and covariance."""
        for name, X in (("content", content), ("style", style)):
            check_features(X, self.where)
            if X.dim() not in (3, 4) or X.shape[-3] != 3 or 0 in X.shape[-2:]:
                shape = tuple(X.shape)
                raise ShapeError(f"{self.where}: expected {name} (3, H, W) or (N, 3, H, W), got shape {shape}")
        if style.dim() == 4 and style.shape[0] != 1 and (content.dim() == 3 or style.shape[0] != content.shape[0]):
            count = content.shape[0] if content.dim() == 4 else 1
            raise ShapeError(f"{self.where}: expected 1 or {count} style images, got {style.shape[0]}")
        if self.strength == 0:
            return content
        single = content.dim() == 3 and style.dim() == 4
        with full_precision(content):
            result = self._transferred(content[None] if single else content, style, content_alpha, style_alpha)
        return (result[0] if single else result).to(content.dtype)

    def _transferred(self, content: Tensor, style: Tensor, alpha: Tensor | None, style_alpha: Tensor | None) -> Tensor:
        space = SPACES[self.space]
        x = space.enter(content.double()).flatten(-2)
        y = space.enter(style.double()).flatten(-2)
        noise = torch.finfo(content.dtype).eps if self.noise is None else self.noise
        mapped = coloring_map(
            self._moments(x, alpha, content, "content_alpha"),
            self._moments(y, style_alpha, style, "style_alpha"),
            self.method,
            space.stretch * noise,
            self.watched,
        )(x)
        return space.leave(torch.lerp(x, mapped, self.strength).reshape(content.shape))

    def _moments(self, colors: Tensor, alpha: Tensor | None, image: Tensor, name: str) -> Moments:
        if alpha is None:
            return color_moments(colors)
        fitting = [(1, *image.shape[-2:]), (*image.shape[:-3], 1, *image.shape[-2:])]
        if tuple(alpha.shape) not in fitting:
            raise ShapeError(f"{self.where}: expected {name} of shape {fitting[-1]}, got {tuple(alpha.shape)}")
        moments = color_moments(colors, alpha.to(colors.dtype).flatten(-2).expand(*colors.shape[:-2], 1, -1))
        if not bool((moments.total > 0).all()):
            raise ArgumentError(f"{self.where}: expected a positive {name} somewhere, got an image without any")
        return moments

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return f"{self.space!r}, strength={self.strength}, method={self._method_text()!r}"


def transfer_color(
    content: Tensor,
    style: Tensor,
    *,
    strength: float = 1.0,
    method: str | Method = "exact",
    space: SpaceName = "rgb",
    noise: float | None = None,
    content_alpha: Tensor | None = None,
    style_alpha: Tensor | None = None,
) -> Tensor:
    """Give images the mean and covariance of the colours of other images; see :class:`ColorTransfer`.

    Args:
        content: images (3, H, W) or (N, 3, H, W), values from 0 to 1.
        style: images (3, H', W') or (N or 1, 3, H', W').
        strength, method, space, noise: as in :class:`ColorTransfer`.
        content_alpha, style_alpha: opacities (1, H, W) or (N, 1, H, W), by which pixels are weighted.

    Returns:
        images with the shape and dtype of the content, not clipped to 0..1.

    Raises:
        ArgumentError, ShapeError, NonFiniteError: as in :class:`ColorTransfer`.

    Example:
        >>> content, style = torch.rand(3, 8, 8), torch.rand(3, 5, 6) / 2
        >>> result = transfer_color(content, style)
        >>> torch.allclose(result.mean((1, 2)), style.mean((1, 2)))
        True
    """
    layer = ColorTransfer(space, strength=strength, method=method, noise=noise)
    return layer(content, style, content_alpha=content_alpha, style_alpha=style_alpha)
