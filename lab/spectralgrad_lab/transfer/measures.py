"""What the tables of TPAMI 2021 measure of translated pictures: sharpness (Table 9) and time (Table 10).

Table 8, the accuracy of a classifier, is in :mod:`~spectralgrad_lab.transfer.style_classifier`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from spectralgrad.errors import ShapeError

from .pictures.random_crops import RandomCrops
from .translation.config import TranslationConfig
from .translation.networks import Generators
from .translation.translator import Translator

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
METHODS = ("gd", "svd-clip", "svd-pi", "svd-taylor", "exact")
"""The methods of Table 10, and ours."""


def sharpness(pixels: Tensor) -> float:
    r"""The mean norm of the gradient of the intensity, in levels from 0 to 255 per pixel.

    .. math:: \frac1{HW}\sum_{y,x}\sqrt{(\partial_yI)^2+(\partial_xI)^2}

    Derivatives are central differences, one-sided at the borders.

    Args:
        pixels: (3, H, W), RGB, or (1, H, W), grey; from 0 to 1.

    Raises:
        ShapeError: the shape is wrong, or a side is shorter than 2.

    Example:
        >>> ramp = torch.arange(5.0).expand(1, 4, 5) / 255        # one level per pixel
        >>> round(sharpness(ramp), 6)
        1.0

    Reference: Wang et al., TPAMI 2021, section 5.3.3 and Table 9.
    """
    if pixels.dim() != 3 or pixels.shape[0] not in (1, 3) or min(pixels.shape[1:]) < 2:
        raise ShapeError(f"sharpness: expected (3, H, W) or (1, H, W), sides of at least 2, got {tuple(pixels.shape)}")
    weights = pixels.new_tensor(_LUMA if pixels.shape[0] == 3 else (1.0,))
    intensity = 255 * (weights.view(-1, 1, 1) * pixels).sum(0)
    down, right = torch.gradient(intensity)
    return float(torch.hypot(down, right).mean())


def translations(
    translator: Translator, contents: RandomCrops, styles: RandomCrops, count: int, to: Literal["a", "b"] = "b"
) -> Tensor:
    """Translate random crops with random styles.

    Args:
        translator: a trained network.
        contents: crops of the other domain than ``to``.
        styles: crops of the domain ``to``.
        count: number of crops.
        to: the domain of the results.

    Returns:
        (count, 3, size, size), from 0 to 1.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> crops = RandomCrops(art_path("cat").parent, size=32, resize=48)
        >>> translations(Translator(Generators(TranslationConfig(width=2))), crops, crops, 3).shape
        torch.Size([3, 3, 32, 32])
    """
    pairs = zip(contents.batch(0, count), styles.batch(0, count), strict=True)
    return torch.stack([translator(content, style, to) for content, style in pairs])


def reference_times(
    methods: Iterable[str] = METHODS, *, width: int = 64, size: int = 256, form: str = "published", rounds: int = 5
) -> dict[str, float]:
    """The time to translate one picture, by whitening method.

    It includes both encoders, the five hops and the rest of the decoder. All methods have the same weights.

    Args:
        methods: names of methods, and ``gd``.
        width: of the network.
        size: side of the picture.
        form: of the methods.
        rounds: number of runs of each method, after one to warm up.

    Returns:
        method → seconds.

    Example:
        >>> times = reference_times(["exact", "gd"], width=2, size=32, rounds=1)
        >>> list(times), min(times.values()) > 0
        (['exact', 'gd'], True)

    Reference: Wang et al., TPAMI 2021, Table 10.
    """
    weights = Generators(TranslationConfig(width=width)).state_dict()
    picture = torch.rand(3, size, size, generator=torch.Generator().manual_seed(0))
    translators = {method: _with_weights(method, form, width, weights) for method in methods}
    return fastest(
        {method: partial(translator, picture, picture) for method, translator in translators.items()}, rounds
    )


def fastest(jobs: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """The shortest time of each job, run alternately so that a busy machine slows all of them.

    Args:
        jobs: what to time, by name.
        rounds: number of runs of each, after one to warm up.

    Returns:
        name → seconds.

    Example:
        >>> list(fastest({"nothing": lambda: None, "sum": lambda: sum(range(9))}))
        ['nothing', 'sum']
    """
    best = dict.fromkeys(jobs, float("inf"))
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start) if turn else best[name]
    return best


def _with_weights(method: str, form: str, width: int, weights: dict[str, Tensor]) -> Translator:
    generators = Generators(TranslationConfig(method=method, form=form, width=width))
    generators.load_state_dict(weights)
    return Translator(generators)
