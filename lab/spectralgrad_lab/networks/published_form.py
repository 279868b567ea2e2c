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

    ``"sound"`` is the library's: skew-symmetric rules, no eigenvalue changed. ``"published"`` is the form in the paper
    that proposes the layer. Parameters in the name take precedence, and a method object is used as it is.

    * Whitening and denoising (NeurIPS 2019, TPAMI 2021): eigenvalues are raised to the layer's ε (TPAMI Algorithm 2,
      line 5, and Algorithm 3, line 3), which makes exact ties; SVD-Taylor has the sign of Eq. 61 there. The baselines
      are as released: plain SVD raises nothing, and in a layer that whitens it keeps the eigenvectors that the released
      layers keep, one if all eigenvalues exceed ε; PI starts from new random vectors at each step.
    * Second-order pooling: eigenvalues are raised to the layer's ε (TPAMI 2021, Algorithm 3), or to 2.2e-16 if it has
      none (ICCV 2021), and infinite gaps replaced by the largest finite one, also for plain SVD (MPN-COV); SVD-Padé is
      the [50/50] approximant.

    Example:
        >>> from spectralgrad.nn import DecorrelatedBatchNorm2d
        >>> layer = DecorrelatedBatchNorm2d(8, eps=0.01)
        >>> str(in_form("published", "svd-taylor", layer)), str(in_form("sound", "svd-taylor", layer))
        ('svd-taylor:faithful=True:clamp=0.01', 'svd-taylor')
        >>> str(in_form("published", "svd", layer)), str(in_form("published", "pi", layer))
        ('svd:stop=0.01', 'pi:eps=0.01:faithful=True')
        >>> str(in_form("published", "svd", CovariancePooling(8)))
        'svd:faithful=True:clamp=2.220446049250313e-16'
    """
    own: Defaults = layer.method_defaults()
    if form == "sound":
        return resolve(method, layer.operation, own)
    published = _published(float(getattr(layer, "eps", 0.0)), layer)
    names = {*own, *published}
    return resolve(method, layer.operation, {name: {**own.get(name, {}), **published.get(name, {})} for name in names})


def _published(eps: float, layer: SpectralModule) -> dict[str, Mapping[str, Any]]:
    """The parameters of each method; eigenvalues are raised to ε, or in pooling to 2.2e-16 if it is zero."""
    pooling = isinstance(layer, CovariancePooling)
    smallest = eps or (MACHINE_EPSILON if pooling else 0.0)
    clamp = {"clamp": smallest} if smallest > 0 else {}
    faithful = {"faithful": True, **clamp}
    whitened = {"stop": eps} if layer.operation == "inv_sqrt" else {}
    baselines: dict[str, Mapping[str, Any]]
    baselines = {"svd": faithful} if pooling else {"svd": whitened, "pi": {"faithful": True}}
    return {
        **baselines,
        "svd-clip": clamp,
        "svd-topn": clamp,
        **dict.fromkeys(("svd-trunc", "svd-taylor", "svd-pade"), faithful),
    }
