"""Iterations for the polar factor: Polar Express, and the quintic of the optimiser Muon."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from ..autograd.functions.rescaling import homogeneous
from ..autograd.polar.iterations import Quintic, composed_quintics
from ..errors import MethodError
from .base import POLAR, Method, require

__all__ = ["PolarExpress", "Muon"]

_LISTED = 8  # number of steps in the paper's listing; only its last one is without the safety factor


def minimax_quintic(low: float, high: float) -> Quintic:
    r"""Return (a, b, c) that minimise :math:`\max|1-p|` on [low, high] for the odd :math:`p(x)=ax+bx^3+cx^5`.

    By the Remez exchange algorithm in float64. The error of the best p takes its maximum with alternating signs at four
    points: both ends and two in between. Each round solves the linear system :math:`p(x_i)=1-(-1)^iE` for a, b, c and E
    and moves the inner points to the zeros of :math:`p'`, which is quadratic in :math:`x^2`, until E no longer grows.

    Example:
        >>> a, b, c = minimax_quintic(0.5, 1.0)
        >>> [round(1 - (a * x + b * x**3 + c * x**5), 6) for x in (0.5, 1.0)]
        [0.024047, -0.024047]
    """
    if high - low <= 1e-5 * high:  # the limit: value 1 and two vanishing derivatives at x = high
        return 15 / 8 / high, -10 / 8 / high**3, 3 / 8 / high**5
    points, error = np.linspace(low, high, 4), 0.0
    for _ in range(100):
        system = np.stack([points, points**3, points**5, np.array([1, -1, 1, -1])], 1)
        a, b, c, found = np.linalg.solve(system, np.ones(4))
        if abs(found) <= abs(error) * (1 + 1e-15):
            break
        error = found
        root = np.sqrt(9 * b * b - 20 * a * c)
        inner = np.sqrt([(-3 * b - root) / (10 * c), (-3 * b + root) / (10 * c)])
        points = np.array([low, *inner, high])
    return float(a), float(b), float(c)


def polar_express_quintics(
    steps: int, lowest: float, cushion: float, safety: float, faithful: bool = False
) -> tuple[Quintic, ...]:
    """Return the coefficients of each step of Polar Express; the arguments are the fields of :class:`PolarExpress`.

    Each step is the best for the interval onto which the steps before it map [lowest, 1]: [l, 2 − l] after rescaling.
    This is the construction of the paper's appendix G.

    Example:
        >>> (a, b, c), *_ = polar_express_quintics(5, 1e-3, 0.02407327424182761, safety=1.0)
        >>> round(a, 9), round(b, 9), round(c, 9)     # the first line of the paper's listing
        (8.287212018, -23.595886519, 17.300387313)
    """
    low, high, quintics = lowest, 1.0, []
    for _ in range(steps):
        a, b, c = minimax_quintic(max(low, cushion * high), high)
        least, most = (a * x + b * x**3 + c * x**5 for x in (low, high))
        scale = 2 / (least + most)  # a cushioned p is not centred around 1 on [low, high]
        quintics.append((scale * a, scale * b, scale * c))
        low = scale * least
        high = 2 - low
    guarded = _LISTED - 1 if faithful else steps - 1
    return *((a / safety, b / safety**3, c / safety**5) for a, b, c in quintics[:guarded]), *quintics[guarded:]


def _at_any_scale(M: Tensor, quintics: tuple[Quintic, ...], margin: float = 1) -> Tensor:
    """Return :func:`composed_quintics`, which does not change with the scale of M, by :func:`homogeneous`."""
    result: Tensor = homogeneous(lambda M: composed_quintics(M, quintics, margin), (M,), ((1,), (0,)))
    return result


class _Iteration(Method):
    """What the iterations have in common."""

    operations: ClassVar[frozenset[str]] = POLAR

    def _refuse_rotations(self, special: bool) -> None:
        if special:
            raise MethodError(f"method {self.name!r} is not available for polar with special=True; choose from: exact")


@dataclass(frozen=True)
class PolarExpress(_Iteration):
    r"""``polar-express``: composed quintics, each the best one for the interval that the steps before it leave.

    Without cushion and safety, the composition minimises the largest error :math:`\max|1-p(\sigma)|` for singular
    values in [``lowest``, 1] among all compositions of that many odd quintics. Coefficients are computed in float64 by
    :func:`minimax_quintic`. The matrix is divided by 1.01 times its Frobenius norm; singular values below ``lowest``
    times that are not yet near 1 after the steps. Autograd differentiates the steps: the result is near the polar
    factor, but its gradient is not near the polar factor's gradient, since p oscillates around 1.

    The defaults come from the paper: it recommends 5 or 6 steps with ``lowest=1e-3`` (section 4) and has 5 in its
    experiments (section 5); ``cushion`` is the default of the code in its appendix G; ``safety`` and the factor 1.01 of
    the norm come from its listing (section 1). Its pseudocode has a cushion of 1/10, and the file
    ``polar_express.py`` of the released code has 0.02.

    Args:
        steps: number of steps, three products each.
        lowest: the smallest singular value for which the steps are optimal.
        cushion: a step is the best one for [cushion·u, u] if its interval [l, u] is wider; this costs little accuracy
            and is more stable.
        safety: all steps but the last are computed for an interval larger by this factor, against rounding errors.
        faithful: apply ``safety`` as the paper's listing does, which cuts a list of eight steps: to every step but
            those from the eighth on. The paper's text suggests to omit it in the final step, which is the default here.

    Example:
        >>> PolarExpress()
        PolarExpress(steps=5, lowest=0.001, cushion=0.02407327424182761, safety=1.01, faithful=False)

    Reference: Amsel, Persson, Musco and Gower, The Polar Express, arXiv 2505.16932; released code:
    NoahAmsel/PolarExpress, where ``polar_express/basic.py`` is the listing.
    """

    name: ClassVar[str] = "polar-express"
    summary: ClassVar[str] = "5 optimal odd quintics for singular values above 1e-3 of the norm"
    reference: ClassVar[str] = "Amsel et al. 2025, arXiv 2505.16932"
    steps: int = 5
    lowest: float = 1e-3
    cushion: float = 0.02407327424182761
    safety: float = 1.01
    faithful: bool = False
    quintics: tuple[Quintic, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.steps >= 1, self, "steps", "≥ 1")
        require(0 < self.lowest < 1, self, "lowest", "between 0 and 1")
        require(0 <= self.cushion < 1, self, "cushion", "from 0 to 1")
        require(1 <= self.safety < math.inf, self, "safety", "≥ 1 and finite")
        found = polar_express_quintics(self.steps, self.lowest, self.cushion, self.safety, self.faithful)
        object.__setattr__(self, "quintics", found)

    def orthogonal(self, M: Tensor, rtol: float | None, special: bool) -> Tensor:
        self._refuse_rotations(special)
        return _at_any_scale(M, self.quintics, margin=1.01)


@dataclass(frozen=True)
class Muon(_Iteration):
    r"""``muon``: five steps of one fixed quintic, the Newton–Schulz variant of the optimiser Muon.

    Its coefficients (3.4445, −4.7750, 2.0315) raise small singular values quickly and do not converge: the singular
    values of the result lie between 0.68 and 1.14 for those above 0.01 of the Frobenius norm. Coefficients and number
    of steps come from ``muon.py`` in the released code, which computes in bfloat16 and adds 1e-7 to the norm; here
    the input's type is used, and nothing is added.

    Args:
        steps: number of steps, three products each.

    Example:
        >>> Muon()
        Muon(steps=5)

    Reference: Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024); released code:
    KellerJordan/Muon.
    """

    name: ClassVar[str] = "muon"
    summary: ClassVar[str] = "5 steps of Muon's fixed quintic: singular values from 0.68 to 1.14"
    reference: ClassVar[str] = "Jordan et al. 2024"
    steps: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.steps >= 1, self, "steps", "≥ 1")

    def orthogonal(self, M: Tensor, rtol: float | None, special: bool) -> Tensor:
        self._refuse_rotations(special)
        return _at_any_scale(M, ((3.4445, -4.7750, 2.0315),) * self.steps)
