r"""sRGB, linear light and CIELAB (D65), as differentiable functions that invert each other.

The curves of sRGB and CIELAB consist of a power and a straight line below a threshold. Here the line also serves
negative values, so every function is a bijection of :math:`\mathbb R^3` and a round trip returns any colour, inside the
gamut or not.

Reference: IEC 61966-2-1 (sRGB), ISO/CIE 11664-4 (CIELAB).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spectralgrad.errors import ShapeError, check_features

_RED, _GREEN, _BLUE, _WHITE = (0.64, 0.33), (0.30, 0.60), (0.15, 0.06), (0.3127, 0.3290)  # chromaticities x, y
_SRGB_THRESHOLD, _SRGB_SLOPE, _SRGB_OFFSET, _SRGB_POWER = 0.04045, 12.92, 0.055, 2.4
_LAB_THRESHOLD = 6 / 29
_LAB_SLOPE, _LAB_OFFSET = 3 * _LAB_THRESHOLD**2, 4 / 29


def _xyz_of_white() -> np.ndarray:
    """The matrix from linear RGB to X, Y and Z relative to white: each row adds up to one."""

    def xyz(chromaticity: tuple[float, float]) -> list[float]:
        x, y = chromaticity
        return [x / y, 1.0, (1 - x - y) / y]

    primaries = np.array([xyz(c) for c in (_RED, _GREEN, _BLUE)]).T
    white = np.array(xyz(_WHITE))
    return primaries * np.linalg.solve(primaries, white) / white[:, None]


# f(X), f(Y), f(Z) to L*, a*, b*; without the 16 that is subtracted from L*.
_OPPONENT = np.array([[0.0, 116.0, 0.0], [500.0, -500.0, 0.0], [0.0, 200.0, -200.0]])
_TO_XYZ = _xyz_of_white()
_FROM_XYZ, _FROM_OPPONENT = np.linalg.inv(_TO_XYZ), np.linalg.inv(_OPPONENT)


def srgb_to_linear(x: Tensor) -> Tensor:
    r"""Return linear light: :math:`((x+0.055)/1.055)^{2.4}`, and :math:`x/12.92` up to 0.04045.

    Example:
        >>> srgb_to_linear(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0.0000, 0.2140, 1.0000])
    """
    power = ((x.clamp_min(_SRGB_THRESHOLD) + _SRGB_OFFSET) / (1 + _SRGB_OFFSET)) ** _SRGB_POWER
    return torch.where(x > _SRGB_THRESHOLD, power, x / _SRGB_SLOPE)


def linear_to_srgb(x: Tensor) -> Tensor:
    """Return the sRGB values of linear light, the inverse of :func:`srgb_to_linear`.

    Example:
        >>> linear_to_srgb(torch.tensor([0.0, 0.2140, 1.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    threshold = _SRGB_THRESHOLD / _SRGB_SLOPE
    power = x.clamp_min(threshold) ** (1 / _SRGB_POWER) * (1 + _SRGB_OFFSET) - _SRGB_OFFSET
    return torch.where(x > threshold, power, x * _SRGB_SLOPE)


def linear_to_lab(x: Tensor) -> Tensor:
    r"""Return CIELAB coordinates: L* from 0 to 100, a* (green to red) and b* (blue to yellow) zero for greys.

    .. math:: L^*=116f(Y)-16,\quad a^*=500\,(f(X)-f(Y)),\quad b^*=200\,(f(Y)-f(Z)) ,

    with X, Y, Z relative to the white of D65 and f the cube root, linear below :math:`(6/29)^3`.

    Args:
        x: linear RGB (*, 3, H, W).

    Returns:
        L*, a*, b* (*, 3, H, W).

    Raises:
        ShapeError: the third dimension from the end does not have size 3.

    Example:
        >>> linear_to_lab(torch.ones(3, 1, 1)).flatten().round(decimals=3).abs()
        tensor([100.,   0.,   0.])
    """
    _check_channels(x, "linear_to_lab")
    t = _mixed(x, _TO_XYZ)
    root = t.clamp_min(_LAB_THRESHOLD**3) ** (1 / 3)
    f = torch.where(t > _LAB_THRESHOLD**3, root, t / _LAB_SLOPE + _LAB_OFFSET)
    return _mixed(f, _OPPONENT) - _lightness(16.0, x)


def lab_to_linear(x: Tensor) -> Tensor:
    """Return linear RGB (*, 3, H, W), the inverse of :func:`linear_to_lab`.

    Example:
        >>> lab_to_linear(torch.tensor([100.0, 0.0, 0.0]).view(3, 1, 1)).flatten()
        tensor([1.0000, 1.0000, 1.0000])
    """
    _check_channels(x, "lab_to_linear")
    f = _mixed(x + _lightness(16.0, x), _FROM_OPPONENT)
    cube = f.clamp_min(_LAB_THRESHOLD) ** 3
    return _mixed(torch.where(f > _LAB_THRESHOLD, cube, (f - _LAB_OFFSET) * _LAB_SLOPE), _FROM_XYZ)


def srgb_to_lab(x: Tensor) -> Tensor:
    """Return the CIELAB coordinates of sRGB colours (*, 3, H, W) in 0..1.

    Example:
        >>> red = torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
        >>> srgb_to_lab(red).flatten().round(decimals=1)
        tensor([53.2000, 80.1000, 67.2000])
    """
    return linear_to_lab(srgb_to_linear(x))


def lab_to_srgb(x: Tensor) -> Tensor:
    """Return the sRGB values of CIELAB colours (*, 3, H, W); outside 0..1 if the colour is out of gamut.

    Example:
        >>> x = torch.rand(3, 4, 5, dtype=torch.float64)
        >>> torch.allclose(lab_to_srgb(srgb_to_lab(x)), x)
        True
    """
    return linear_to_srgb(lab_to_linear(x))


def _mixed(x: Tensor, matrix: np.ndarray) -> Tensor:
    return torch.einsum("ij,...jhw->...ihw", torch.as_tensor(matrix, dtype=x.dtype, device=x.device), x)


def _lightness(value: float, x: Tensor) -> Tensor:
    return torch.tensor([value, 0.0, 0.0], dtype=x.dtype, device=x.device).view(3, 1, 1)


def _check_channels(x: Tensor, where: str) -> None:
    check_features(x, where)
    if x.dim() < 3 or x.shape[-3] != 3:
        raise ShapeError(f"{where}: expected colours (*, 3, H, W), got shape {tuple(x.shape)}")
