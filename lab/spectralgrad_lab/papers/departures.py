"""Where training runs depart from the published protocol, read from the configurations that were run."""

from __future__ import annotations

from collections.abc import Sequence

from ..training.config.presets import preset
from ..training.config.run_config import METHOD_FIELDS, Config

_LEFT_OUT = Config.changeable - {"epochs"} | {*METHOD_FIELDS, "group_size"}
_ALL = {"train_size": "all", "test_size": "all", "width": "its own"}


def departures(name: str, configs: Sequence[Config]) -> list[str]:
    """The fields in which all runs have one value that is not the preset's, each as a phrase.

    Methods, the size d of the groups, and fields in which the runs differ from each other are what an item compares.
    They are left out, and so are fields that have no effect on the results of an epoch.

    Args:
        name: of the preset that has the published protocol.
        configs: of the runs.

    Example:
        >>> published = preset("tpami-cifar10")
        >>> runs = [published.replaced(lr=0.05, network="resnet8", seed=seed) for seed in range(3)]
        >>> departures("tpami-cifar10", runs)
        ['network resnet8 instead of resnet18-cifar', 'lr 0.05 instead of 0.1']
    """
    published = preset(name)
    found = []
    for field in Config.fields():
        values = {_text(field, config) for config in configs}
        if len(values) == 1 and field not in _LEFT_OUT and values != {_text(field, published)}:
            found.append(f"{field} {values.pop()} instead of {_text(field, published)}")
    return found


def _text(field: str, config: Config) -> str:
    value = config.text(field)
    if value is None:
        return _ALL.get(field, "none")
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
