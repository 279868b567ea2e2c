"""The gradient methods as the papers publish them, for a given layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spectralgrad.nn import CovariancePooling, SpectralModule
from spectralgrad.rules import Defaults, Method, resolve

FORMS = ("sound", "published")
MACHINE_EPSILON = 2.0**-52
"""What the ICCV code raises small eigenvalues to, in float64."""


def in_form(form: str, method: str | Method, layer: SpectralModule) -> Method:
    """The method of a layer in one of two forms.

    ``"sound"`` is the library's: skew-symmetric rules, no eigenvalue changed. ``"published"`` is that of the paper that
    proposes the layer. Parameters in the name take precedence, and a method object is used as it is.

    * Whitening and denoising (NeurIPS 2019, TPAMI 2021): eigenvalues are raised to the layer's ε (TPAMI Algorithm 2,
      line 5, and Algorithm 3, line 3), which makes exact ties; SVD-Taylor has the sign of Eq. 61 there.
    * Second-order pooling: eigenvalues are raised to the layer's ε (TPAMI 2021, Algorithm 3), or to 2.2e-16 if it has
      none (ICCV 2021), and infinite gaps replaced by the largest finite one, also for plain SVD (MPN-COV); SVD-Padé is
      the [50/50] approximant.

    Example:
        >>> from spectralgrad.nn import DecorrelatedBatchNorm2d
        >>> layer = DecorrelatedBatchNorm2d(8, eps=0.01)
        >>> str(in_form("published", "svd-taylor", layer)), str(in_form("sound", "svd-taylor", layer))
        ('svd-taylor:faithful=True:clamp=0.01', 'svd-taylor')
        >>> str(in_form("published", "svd", CovariancePooling(8)))
        'svd:faithful=True:clamp=2.220446049250313e-16'
    """
    own: Defaults = layer.method_defaults()
    if form == "sound":
        return resolve(method, layer.operation, own)
    pooling = isinstance(layer, CovariancePooling)
    eps = float(getattr(layer, "eps", 0.0))
    published = _published(eps or (MACHINE_EPSILON if pooling else 0.0), pooling)
    names = {*own, *published}
    return resolve(method, layer.operation, {name: {**own.get(name, {}), **published.get(name, {})} for name in names})


def _published(smallest: float, pooling: bool) -> dict[str, Mapping[str, Any]]:
    """The parameters of each method; eigenvalues below ``smallest`` are raised to it, unless it is zero."""
    clamp = {"clamp": smallest} if smallest > 0 else {}
    faithful = {"faithful": True, **clamp}
    return {
        "svd": faithful if pooling else clamp,  # TPAMI's plain SVD fails at a tie, that of ICCV is repaired
        "svd-clip": clamp,
        "svd-topn": clamp,
        **dict.fromkeys(("svd-trunc", "svd-taylor", "svd-pade"), faithful),
    }
