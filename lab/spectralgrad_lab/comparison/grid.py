"""Methods × group sizes × seeds: the runs of a comparison, carried out once each whatever happens in between."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from spectralgrad.rules import Method

from ..networks import NETWORKS
from ..networks.user_network import asks_for
from ..training.config import Config, ConfigError
from ..training.folder_names import job_name, label, mark
from ..training.records import Result
from .jobs import Engine, Here, Job
from .results import RESULTS, ResultsFile, key

BATCHNORM = "batchnorm"
METHODS = ("svd", "svd-clip", "svd-pi", "svd-taylor", "svd-pade", "newton-schulz", "exact", BATCHNORM)
GROUP_SIZES: tuple[int | None, ...] = (16,)
SEEDS = (0, 1)

# Grey pictures have one channel, so each of the 64 channels after the first 3 × 3 convolution is a sum of 9 numbers. A
# group of 16 has rank 9, and its 7 other eigenvalues are all ε: a tie that no training step removes.
DEFAULT = Config(
    train_size=2000,
    augmentation="none",
    eps=1e-2,
    epochs=3,
    batch_size=32,
    lr=0.05,
    milestones=(2,),
    monitor_every=10,
    tensorboard=False,
)


def grid(
    base: Config = DEFAULT,
    methods: Sequence[str | Method] = METHODS,
    group_sizes: Sequence[int | None] = GROUP_SIZES,
    seeds: Sequence[int] = SEEDS,
) -> list[Config]:
    """The runs, all methods of a seed before the next seed.

    Args:
        base: what all have in common.
        methods: names or objects; ``batchnorm`` is a network with nothing spectral, once a seed.
        group_sizes: None for all channels.
        seeds: of weights, order and augmentation.

    Returns:
        a configuration a run.

    Raises:
        ConfigError: a method does not serve the layer, or the network is your own and takes no ``method``.

    Example:
        >>> runs = grid(methods=("svd", "batchnorm"), group_sizes=(8, 16), seeds=(0,))
        >>> [(run.method, run.group_size) if run.spectral else "batchnorm" for run in runs]
        [('svd', 8), ('svd', 16), 'batchnorm']
    """
    if ":" in base.network and not asks_for(base.network, "method"):
        raise ConfigError(
            f"network: a comparison sets the method of the spectral layer; expected {base.network} to have a parameter "
            f"`method`, or one of {', '.join(NETWORKS)}"
        )
    runs = [_config(base, method, size, seed) for seed in seeds for method in methods for size in group_sizes]
    return list({key(run): run for run in runs}.values())


def _config(base: Config, method: str | Method, group_size: int | None, seed: int) -> Config:
    if method != BATCHNORM and not base.spectral:
        raise ConfigError(f"methods: {method} needs a spectral layer; expected --layer whitening or denoising")
    if method == BATCHNORM:
        if ":" in base.network and not asks_for(base.network, "layer"):
            raise ConfigError(
                f"methods: expected {base.network} to have a parameter `layer` for batchnorm; or leave it out: "
                f"--methods {','.join(name for name in METHODS if name != BATCHNORM)}"
            )
        plain = {"pooling": "average", "weights": "plain", "nog": False, "olr": False, "hybrid": None}
        return base.replaced(layer="batchnorm", method="exact", group_size=None, seed=seed, **plain)
    groups = base.layer != "batchnorm" or ":" in base.network  # covariance pooling alone has none
    return base.replaced(method=method, group_size=group_size if groups else None, seed=seed)


def order(result: Result) -> tuple[int, str, float, int]:
    """As a comparison lists them, whichever ended first; all channels together come after the largest group size.

    Example:
        >>> runs = [Result(Config(method=name)) for name in ("exact", "svd-taylor:degree=19", "svd-taylor")]
        >>> [result.config.method for result in sorted(runs, key=order)]
        ['svd-taylor', 'svd-taylor:degree=19', 'exact']
    """
    name, config = label(result.config), result.config
    base = name.partition(":")[0]
    place = METHODS.index(base) if base in METHODS else len(METHODS)
    return place, name, config.group_size or math.inf, config.seed


def job(config: Config, folder: Path) -> Job:
    """The job of a run: a folder of its own in ``folder/runs``, whose name says what it is.

    Example:
        >>> job(Config(method="svd-pi", group_size=16, seed=1), Path("out")).name.rpartition("-")[0]
        'svd-pi-d16-seed1'
    """
    fixed = {**json.loads(key(config)), "epochs": None}  # a run that is made longer stays where it is
    name = job_name(config, mark(json.dumps(fixed, sort_keys=True)))
    return Job(name, config, folder / "runs" / name)


def compare(
    configs: Sequence[Config],
    folder: str | Path,
    *,
    engine: Engine | None = None,
    told: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Carry out the runs that ``folder/results.jsonl`` does not hold yet.

    A run that diverges is a result like any other. Killed at any moment, the same call goes on: finished runs are in
    the file, and an unfinished one continues from its checkpoint.

    Args:
        configs: as :func:`grid` makes them.
        folder: gets results.jsonl and a folder a run.
        engine: where to run; by default one after another in this process.
        told: is called with each new result.

    Returns:
        a result for each configuration, in their order.

    Raises:
        JobError: a run could not be carried out.
        ConfigError: one makes no sense for its network or pictures.
        DataError: the pictures are missing or damaged.

    Example:
        >>> import tempfile
        >>> small = Config(train_size=64, batch_size=16, epochs=1, tensorboard=False)
        >>> runs = grid(small, methods=("svd", "exact"), group_sizes=(32,), seeds=(0,))
        >>> [result.status for result in compare(runs, tempfile.mkdtemp())]
        ['failed', 'done']
    """
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    file = ResultsFile(where / RESULTS)
    known = {key(result.config): result for result in file.read()}
    missing = [job(config, where) for config in configs if key(config) not in known]
    for done, result in (engine or Here()).run(missing):
        file.append(result)
        known[key(done.config)] = result
        told(result)
    return [known[key(config)] for config in configs]
