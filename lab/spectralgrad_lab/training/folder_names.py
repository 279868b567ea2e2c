"""Names of the folders of runs: what a run is, readable, and another name for every other run."""

from __future__ import annotations

import hashlib
import re

from .config import FIELDS, Config
from .resuming import FREE

FREE_FIELDS = FREE - {"epochs", "patience"}  # what no number depends on
_TOLD = {"method", "hybrid", "group_size", "seed"}  # by the first part of the name
_LONGEST = 80


def label(config: Config) -> str:
    """What a run is called in tables: its method, or ``batchnorm`` if nothing in it is spectral.

    Example:
        >>> label(Config(method="svd-pi")), label(Config(layer="batchnorm"))
        ('svd-pi', 'batchnorm')
        >>> label(Config(method="newton-schulz", hybrid="svd-pade", milestones=(3,)))
        'newton-schulz → svd-pade'
    """
    if config.layer == "batchnorm" and config.pooling == "average":
        return "batchnorm"
    method, hybrid = config.text("method"), config.text("hybrid")
    return f"{method} → {hybrid}" if hybrid else str(method)


def run_name(config: Config, start: str, base: Config) -> str:
    """The name of a run that begins with a preset.

    First come the preset, the method, the group size and the seed; then every other value that is not the preset's and
    that a number of the run depends on, as ``field=value``, or eight digits that stand for them if that is long.

    Args:
        config: of the run.
        start: name of the preset.
        base: the preset.

    Example:
        >>> run_name(Config(group_size=16, lr=0.5, threads=2), "small", Config())
        'small-exact-d16-seed0-lr=0.5'
        >>> run_name(Config(init="runs/another one"), "small", Config())
        'small-exact-seed0-773c27fe'
    """
    told = {*_TOLD, *(["layer"] if label(config) == "batchnorm" else [])}
    free = FREE_FIELDS - ({"data"} if config.located else set())
    values = {name: getattr(config, name) for name in FIELDS if name not in told | free}
    other = "-".join(f"{n}={_said(value)}" for n, value in values.items() if value != getattr(base, n))
    if len(other) > _LONGEST or safe(other) != other:
        other = mark(other)
    return "-".join([start, *_parts(config), *([other] if other else [])])


def job_name(config: Config, digits: str) -> str:
    """The name of a run of a comparison, whose other values ``digits`` stand for.

    Example:
        >>> job_name(Config(method="svd-taylor:degree=19", seed=3), "0123abcd")
        'svd-taylor-degree=19-seed3-0123abcd'
    """
    return "-".join([*_parts(config), digits])


def mark(text: str) -> str:
    """Eight digits that stand for a text.

    Example:
        >>> mark("lr=0.5")
        'fcc6aec7'
    """
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]


def safe(text: str) -> str:
    """A text as part of a file name, on any system.

    Example:
        >>> safe("newton-schulz → svd-taylor:degree=19")
        'newton-schulz-to-svd-taylor-degree=19'
    """
    return re.sub(r"[^\w.,=+-]+", "-", text.replace(" → ", "-to-"), flags=re.ASCII)


def _parts(config: Config) -> list[str]:
    size = [f"d{config.group_size}"] if config.group_size and config.spectral else []
    return [safe(label(config)), *size, f"seed{config.seed}"]


def _said(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
