r"""The affine map that gives colours the mean and covariance of others.

.. math:: y=S_cS_w(x-\mu)+\mu_c,\qquad S_w=\Sigma^{-1/2},\quad S_c=\Sigma_c^{1/2} .

This is the whitening and colouring transform with ε = 0. What is particular to pictures is their rank: a grey picture
varies along one direction only, a picture of one colour along none, and rounding to 8 bits adds a little noise along
the others, which whitening would blow up. Directions along which the standard deviation is at most ``noise`` count as
absent. With Q the projector onto them, the root is taken of :math:`\Sigma-Q\Sigma Q`, which has the same eigenvectors
and is singular; its derivative is the one at constant rank. Along Q itself, colours keep their distance from the mean,
so that the map of a picture onto itself is the identity. That part, whose share of a picture is noise or nothing, has
no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spectralgrad import matrix_inv_sqrt, matrix_sqrt
from spectralgrad.precision import rank_tolerance
from spectralgrad.rules import Method

from ..moments import Moments

# Eigenvalues below this share of the largest count as absent: 64 times what the solver's rounding may leave of a zero.
_RANK = 64 * rank_tolerance(3, torch.float64)


class ColorMap(NamedTuple):
    """The map :math:`y=S(x-\\mu)+\\mu_c`, with S = ``matrix`` + ``rest``; matrices are (*, 3, 3), means (*, 3, 1)."""

    matrix: Tensor
    rest: Tensor
    before: Tensor
    after: Tensor

    def __call__(self, colors: Tensor) -> Tensor:
        """Apply the map to colours (*, 3, n)."""
        centered = colors - self.before
        return self.matrix @ centered + self.rest @ centered.detach() + self.after


def coloring_map(
    content: Moments,
    style: Moments,
    method: Method,
    noise: float,
    watch: Callable[[Tensor], Tensor] = lambda matrices: matrices,
) -> ColorMap:
    """Compute the map that gives colours with the moments ``content`` the moments ``style``.

    If the content has a lower rank than the style, only the mean is the style's, and the covariance becomes
    :math:`S_cPS_c` with P the projector onto the range of the content.

    Args:
        content, style: moments, float64.
        method: method for the gradient of both square roots.
        noise: standard deviation up to which a direction counts as absent.
        watch: called with the matrices to decompose; its result is decomposed instead.

    Raises:
        NonFiniteError: the moments contain NaN or infinity.

    Example:
        >>> import spectralgrad as sg
        >>> from spectralgrad_lab.transfer.moments import color_moments
        >>> x, y = torch.rand(2, 3, 50, dtype=torch.float64)
        >>> a, b = color_moments(x), color_moments(y)
        >>> mapped = color_moments(coloring_map(a, b, sg.Exact(), noise=0.0)(x))
        >>> torch.allclose(mapped.covariance, b.covariance), torch.allclose(mapped.mean, b.mean)
        (True, True)

    Reference: Li et al., Universal Style Transfer via Feature Transforms, NeurIPS 2017; Wang et al., TPAMI 2021,
    section 5.3.1.
    """
    sigma, absent = _without_noise(watch(content.covariance), noise)
    colors, _ = _without_noise(watch(style.covariance), noise)
    matrix = matrix_sqrt(colors, method=method, rtol=_RANK / 2) @ matrix_inv_sqrt(sigma, method=method, rtol=_RANK / 2)
    return ColorMap(matrix, absent, content.mean.unsqueeze(-1), style.mean.unsqueeze(-1))


def _without_noise(sigma: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """The covariance (*, 3, 3) without the directions that count as absent, and the projector onto those."""
    w, V = torch.linalg.eigh(sigma.detach())
    absent = w <= (_RANK * w[..., -1:]).clamp_min(noise**2)
    Q = (V * absent.to(V.dtype).unsqueeze(-2)) @ V.mT
    # What rounding leaves of σ − QσQ is small beside the largest eigenvalue, unless that is absent too.
    return torch.where(absent[..., -1, None, None], 0, sigma - Q @ sigma @ Q), Q
