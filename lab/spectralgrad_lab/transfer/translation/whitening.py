"""How the hops whiten: the choice of a run, which generator, decoder and hops share."""

from __future__ import annotations

from dataclasses import dataclass

from spectralgrad.nn import WhiteningColoring2d

from ...networks import in_form
from .learned_whitening import LearnedWhiteningColoring2d

GD = "gd"
Transform = WhiteningColoring2d | LearnedWhiteningColoring2d


@dataclass(frozen=True)
class Whitening:
    """How features are whitened.

    Attributes:
        method: one of ``methods("inv_sqrt")``, or ``"gd"`` for GD-WCT's learned whitening.
        form: of the method, ``"sound"`` or ``"published"``.
        eps: ε, added to the covariance.
        per_sample: compute the statistics of each sample separately; otherwise over the whole batch.

    Example:
        >>> Whitening("svd-taylor").layer(groups=2)
        WhiteningColoring2d(groups=2, strength=1.0, eps=0.01, method='svd-taylor')
        >>> Whitening("gd").layer(groups=2)
        LearnedWhiteningColoring2d(groups=2, per_sample=True)
    """

    method: str = "exact"
    form: str = "sound"
    eps: float = 1e-2
    per_sample: bool = True

    def layer(self, groups: int) -> Transform:
        """The layer that whitens and colours this number of groups of channels."""
        if self.method == GD:
            return LearnedWhiteningColoring2d(groups, per_sample=self.per_sample)
        layer = WhiteningColoring2d(groups, eps=self.eps, per_sample=self.per_sample)
        layer.method = in_form(self.form, self.method, layer)  # type: ignore[assignment]
        return layer


EXACT = Whitening()
