"""The runs of a comparison: poolings × methods × group sizes × seeds. Each is carried out once, if interrupted too."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spectralgrad.rules import Method

from ..networks import NETWORKS
from ..networks.user_network import accepts
from ..training.config.folder_names import job_name, label, short_hash
from ..training.config.run_config import Config, ConfigError
from ..training.storage.records import Result
from .jobs import Engine, InProcess, Job
from .results import RESULTS, ResultsFile, run_key

BATCHNORM = "batchnorm"
METHODS = ("svd", "pi", "svd-clip", "svd-pi", "svd-taylor", "svd-pade", "newton-schulz", "exact", BATCHNORM)
"""The methods of a comparison with a preset: TPAMI's Table 4, and the others that whitening can use."""
DEMO_METHODS = tuple(name for name in METHODS if name != "pi")
"""The methods of a comparison without a preset."""
GROUP_SIZES: tuple[int | None, ...] = (16,)
SEEDS = (0, 1)

# Gray images have one channel, so each of the 64 channels after the first 3 × 3 convolution is a weighted sum of 9
# pixels. The covariance of a group of 16 has rank 9, and its other 7 eigenvalues all equal ε: a tie that no training
# step removes.
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
    methods: Sequence[str | Method] = DEMO_METHODS,
    group_sizes: Sequence[int | None] = GROUP_SIZES,
    seeds: Sequence[int] = SEEDS,
    eps_of: Mapping[str, float] | None = None,
    poolings: Sequence[str] = (),
) -> list[Config]:
    """The configurations of a comparison, ordered by seed, then pooling, then method, then group size.

    Args:
        base: the values that all runs share.
        methods: names or objects; ``batchnorm`` is a network without a spectral layer, one run per seed.
        group_sizes: channels whitened together; None for all channels.
        seeds: of initial weights, order and augmentation.
        eps_of: ε of the layer by method, where it differs from ``base``: TPAMI's Table 4 has 1e-4 for power
            iteration and 1e-2 for the Taylor series.
        poolings: before the classifier (default: the one of ``base``); one that has no method is one run per seed.

    Returns:
        one configuration per run.

    Raises:
        ConfigError: a method does not support the layer, ``eps_of`` names a method that is not compared, or a user's
            own network has no parameter ``method``.

    Example:
        >>> runs = grid(methods=("svd", "batchnorm"), group_sizes=(8, 16), seeds=(0,))
        >>> [(run.method, run.group_size) if run.spectral else "batchnorm" for run in runs]
        [('svd', 8), ('svd', 16), 'batchnorm']
        >>> [run.eps for run in grid(methods=("svd-pi", "svd-taylor"), seeds=(0,), eps_of={"svd-pi": 1e-4})]
        [0.0001, 0.01]
        >>> base = DEFAULT.replaced(layer="batchnorm")
        >>> runs = grid(base, ("exact", "newton-schulz"), seeds=(0,), poolings=("covariance", "seb", "dropcov"))
        >>> [(run.pooling, run.method) for run in runs if run.spectral]
        [('covariance', 'exact'), ('covariance', 'newton-schulz'), ('seb', 'exact'), ('seb', 'newton-schulz')]
        >>> [run.pooling for run in runs if not run.spectral]
        ['dropcov']
    """
    if ":" in base.network and not accepts(base.network, "method"):
        raise ConfigError(
            f"network: a comparison sets the method of the spectral layer; expected {base.network} to have a parameter "
            f"`method`, or one of {', '.join(NETWORKS)}"
        )
    own, names = eps_of or {}, [str(method) for method in methods]
    unknown = [name for name in own if name == BATCHNORM or name not in names]
    if unknown:
        raise ConfigError(f"eps_of: expected spectral methods of this comparison, got {', '.join(unknown)}")
    bases = [base.replaced(eps=own.get(name, base.eps)) for name in names]
    runs = [
        _config(shared.replaced(pooling=pooling), method, size, seed, bool(poolings))
        for seed in seeds
        for pooling in poolings or (base.pooling,)
        for shared, method in zip(bases, methods, strict=True)
        for size in group_sizes
    ]
    return list({run_key(run): run for run in runs}.values())


def _config(base: Config, method: str | Method, group_size: int | None, seed: int, poolings: bool) -> Config:
    if method != BATCHNORM and not base.spectral and poolings:
        return base.replaced(method="exact", group_size=None, seed=seed)
    if method != BATCHNORM and not base.spectral:
        raise ConfigError(f"methods: {method} needs a spectral layer; expected --layer whitening or denoising")
    if method == BATCHNORM:
        if ":" in base.network and not accepts(base.network, "layer"):
            raise ConfigError(
                f"methods: batchnorm needs a parameter `layer` of {base.network}; add it, or leave batchnorm out: "
                f"--methods {','.join(name for name in METHODS if name != BATCHNORM)}"
            )
        plain = {"pooling": "average", "weights": "plain", "nog": False, "olr": False, "hybrid": None}
        return base.replaced(layer="batchnorm", method="exact", group_size=None, seed=seed, **plain)
    groups = base.layer != "batchnorm" or ":" in base.network  # with covariance pooling alone there are no groups
    return base.replaced(method=method, group_size=group_size if groups else None, seed=seed)


def sort_key(result: Result) -> tuple[int, str, float, int]:
    """The sort key for lists of results; all channels together come after the largest group size.

    Example:
        >>> runs = [Result(Config(method=name)) for name in ("exact", "svd-taylor:degree=19", "svd-taylor")]
        >>> [result.config.method for result in sorted(runs, key=sort_key)]
        ['svd-taylor', 'svd-taylor:degree=19', 'exact']
    """
    name, config = label(result.config), result.config
    base = name.partition(":")[0]
    place = METHODS.index(base) if base in METHODS else len(METHODS)
    return place, name, config.group_size or math.inf, config.seed


def job_for(config: Config, folder: Path) -> Job:
    """The job of a run, with its own folder in ``folder/runs``.

    Example:
        >>> job_for(Config(method="svd-pi", group_size=16, seed=1), Path("out")).name.rpartition("-")[0]
        'svd-pi-d16-seed1'
    """
    fixed = {
        **json.loads(run_key(config)),
        "epochs": None,
    }  # a run with more epochs keeps its folder, and resumes there
    name = job_name(config, short_hash(json.dumps(fixed, sort_keys=True)))
    return Job(name, config, folder / "runs" / name)


class Comparison:
    """The runs of a comparison: those that ``folder/results.jsonl`` already holds, and those still to be carried out.

    Args:
        configs: as :func:`grid` returns them.
        folder: receives results.jsonl and one folder per run; it is created if it does not exist.

    Attributes:
        configs: all runs.
        results: all of results.jsonl by :func:`~spectralgrad_lab.comparison.results.run_key`, including results of
            other comparisons in the same folder.
        jobs: the runs without a result when the object was made.

    Example:
        >>> import tempfile
        >>> comparison = Comparison(grid(methods=("svd", "exact"), seeds=(0,)), tempfile.mkdtemp())
        >>> first = comparison.configs[0]
        >>> comparison.add(first, Result(first, "failed"))
        >>> comparison.finished, len(comparison.jobs)
        (1, 2)
    """

    def __init__(self, configs: Sequence[Config], folder: str | Path) -> None:
        self.configs, self.folder = list(configs), Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = ResultsFile(self.folder / RESULTS)
        self.results = {run_key(result.config): result for result in self._file.read()}
        self.jobs = [job_for(config, self.folder) for config in self.configs if self.result_of(config) is None]

    def result_of(self, config: Config) -> Result | None:
        """The result of a run; None if it has none yet."""
        return self.results.get(run_key(config))

    @property
    def finished(self) -> int:
        """Number of runs with a result."""
        return sum(self.result_of(config) is not None for config in self.configs)

    def add(self, config: Config, result: Result) -> None:
        """Append the result of a run to the file.

        A run that failed earlier keeps its own configuration, which may ask for fewer epochs than ``config``.
        """
        self._file.append(result)
        self.results[run_key(config)] = result

    def run(self, engine: Engine | None = None, on_result: Callable[[Result], None] | None = None) -> list[Result]:
        """Carry out the missing runs; see :func:`compare`."""
        for finished, result in (engine or InProcess()).run(self.jobs):
            self.add(finished.config, result)
            if on_result is not None:
                on_result(result)
        return [self.results[run_key(config)] for config in self.configs]


def compare(
    configs: Sequence[Config],
    folder: str | Path,
    *,
    engine: Engine | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Carry out the runs that ``folder/results.jsonl`` does not hold yet.

    A run that diverges is a result like any other. If the process is killed, the same call continues: finished runs are
    in the file, and an unfinished run resumes from its checkpoint.

    Args:
        configs: as :func:`grid` returns them.
        folder: receives results.jsonl and one folder per run.
        engine: where to run (default: one run after another in this process).
        on_result: callback that receives each new result (default: none).

    Returns:
        one result per configuration, in the same order.

    Raises:
        JobError: a run could not be carried out.
        ConfigError: a configuration does not fit its network or its images.
        DataError: the images are missing or damaged.

    Example:
        >>> import tempfile
        >>> small = Config(train_size=64, batch_size=16, epochs=1, tensorboard=False)
        >>> runs = grid(small, methods=("svd", "exact"), group_sizes=(32,), seeds=(0,))
        >>> [result.status for result in compare(runs, tempfile.mkdtemp())]
        ['failed', 'done']
    """
    return Comparison(configs, folder).run(engine, on_result)
