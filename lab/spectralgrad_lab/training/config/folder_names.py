"""Folder names of runs: readable, and different for runs with different results."""

from __future__ import annotations

import hashlib
import re

from ..storage.resuming import CHANGEABLE_FIELDS
from .run_config import FIELDS, Config

FREE_FIELDS = CHANGEABLE_FIELDS - {"epochs", "patience"}  # no result depends on these
_IN_PREFIX = {"method", "hybrid", "group_size", "seed"}  # fields that the first part of the name shows
_LONGEST = 80  # characters of the `field=value` part


def label(config: Config) -> str:
    """The name of a run in tables: its method; ``batchnorm`` or ``bcnn`` if it has no spectral layer.

    Example:
        >>> label(Config(method="svd-pi")), label(Config(layer="batchnorm"))
        ('svd-pi', 'batchnorm')
        >>> label(Config(method="newton-schulz", hybrid="svd-pade", milestones=(3,)))
        'newton-schulz → svd-pade'
    """
    if config.layer == "batchnorm" and config.pooling == "average":
        return "batchnorm"
    if not config.spectral:
        return config.pooling
    method, hybrid = config.text("method"), config.text("hybrid")
    return f"{method} → {hybrid}" if hybrid else str(method)


def run_name(config: Config, start: str, base: Config) -> str:
    """The folder name of a run that starts from a preset.

    It consists of preset, method, group size and seed, followed by ``field=value`` for every other value that differs
    from the preset and affects the results. Long lists of values are replaced by a hash of eight digits.

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
    shown = {*_IN_PREFIX, *(["layer"] if label(config) == "batchnorm" else [])}
    free = FREE_FIELDS - ({"data"} if config.depends_on_folder else set())
    values = {name: getattr(config, name) for name in FIELDS if name not in shown | free}
    other = "-".join(f"{n}={_said(value)}" for n, value in values.items() if value != getattr(base, n))
    if len(other) > _LONGEST or file_name_safe(other) != other:
        other = short_hash(other)
    return "-".join([start, *_parts(config), *([other] if other else [])])


def job_name(config: Config, digits: str) -> str:
    """The folder name of a run of a comparison; ``digits`` is a hash of its other values.

    Example:
        >>> job_name(Config(method="svd-taylor:degree=19", seed=3), "0123abcd")
        'svd-taylor-degree=19-seed3-0123abcd'
    """
    return "-".join([*_parts(config), digits])


def short_hash(text: str) -> str:
    """The first eight hexadecimal digits of the SHA-256 of a text.

    Example:
        >>> short_hash("lr=0.5")
        'fcc6aec7'
    """
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]


def file_name_safe(text: str) -> str:
    """The text with everything replaced that a file name cannot contain on some system.

    Example:
        >>> file_name_safe("newton-schulz → svd-taylor:degree=19")
        'newton-schulz-to-svd-taylor-degree=19'
    """
    return re.sub(r"[^\w.,=+-]+", "-", text.replace(" → ", "-to-"), flags=re.ASCII)


def _parts(config: Config) -> list[str]:
    size = [f"d{config.group_size}"] if config.group_size and config.spectral else []
    return [file_name_safe(label(config)), *size, f"seed{config.seed}"]


def _said(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
