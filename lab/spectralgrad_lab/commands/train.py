"""The command ``spectralgrad train``."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spectralgrad.io import plugins
from spectralgrad.io.files import path_argument

from ..data import DATASETS, known
from ..data.registry import GROUP, unknown_dataset
from ..import_by_name import require_given
from ..networks import NETWORKS, NetworkError
from ..networks.config import SETTINGS
from ..networks.user_network import accepts
from ..training.config.flags import add_fields, with_flags
from ..training.config.folder_names import run_name
from ..training.config.presets import PRESETS, preset
from ..training.config.run_config import CONDITIONING, DATA, FIELDS, NETWORK, RUNNING, TRAINING, Config, ConfigError
from ..training.loop.exit_status import FAILED, STOPPING, print_stop, short_warnings
from ..training.loop.progress import for_terminal
from ..training.loop.run import train
from ..training.processes.memory import keep_memory
from ..training.storage.records import Result, plural
from ..training.storage.resuming import RunExistsError
from ..training.storage.run_files import CONFIG

START = "small"  # the default preset
EIGENVECTORS = "svd-pade"  # the default method for layers that need eigenvectors, which "exact" does not provide
TITLES = {
    DATA: "images",
    NETWORK: "network",
    TRAINING: "training (SGD)",
    CONDITIONING: "conditioning and hybrid training (ECCV 2022, ICCV 2021)",
    RUNNING: "execution",
}
DESCRIPTION = """\
Train a network with a spectral layer. Values come from a preset (default: `small`); each of them is also a flag.
The folder of the run receives config.toml, log.csv, result.json, a checkpoint and TensorBoard events. Ctrl-C saves a
checkpoint; the same command with --resume continues, with the same results as an uninterrupted run."""
_EXAMPLES = """\
examples:
  spectralgrad train                                     the preset small: a small network, embedded images
  spectralgrad train --method svd                        plain SVD, which fails
  spectralgrad train --preset tpami-cifar10 --data DIR --method svd-taylor --group-size 16
  spectralgrad train --preset iccv-resnet50 --data DIR --hybrid svd-pade
  spectralgrad train --out runs/mine --resume            continue a run
  torchrun --nproc-per-node 2 -m spectralgrad train --preset small

exit status: 0 done, 1 error, 2 wrong usage, 3 the run failed (diverged), 130 stopped by Ctrl-C"""


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad train``."""
    parser.usage = "spectralgrad train [--preset NAME] [--config FILE] [--out DIR] [--resume] [any flag listed below]"
    parser.description, parser.epilog = DESCRIPTION, _epilog()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--preset", metavar="NAME", help=f"start from this preset; listed below (default: {START})")
    parser.add_argument(
        "--config", type=path_argument, metavar="FILE", help="TOML file whose values replace the preset's"
    )
    parser.add_argument(
        "--out",
        type=path_argument,
        metavar="DIR",
        help="folder of the run (default: runs/ and a name that describes the run)",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder, if there is one")
    add_fields(parser, preset(START), TITLES)
    parser.set_defaults(run=run)


def _epilog() -> str:
    lists = {
        "presets": {name: _described(config) for name, config in PRESETS.items()},
        "datasets": {name: str(source) for name, source in DATASETS.items()} | _installed(),
        "networks": {name: str(line) for name, line in NETWORKS.items()},
    }
    blocks = []
    for title, rows in lists.items():
        width = max(map(len, rows))
        blocks.append("\n".join([f"{title}:", *(f"  {name:<{width}}  {text}" for name, text in rows.items())]))
    return "\n\n".join([*blocks, _EXAMPLES])


def _installed() -> dict[str, str]:
    return {name: "from an installed package" for name in plugins.names(GROUP) if name not in DATASETS}


def _described(config: Config) -> str:
    return f"{config.network} on {config.dataset}, {_layers(config)}, {plural(config.epochs, 'epoch')}"


def _layers(config: Config) -> str:
    """A description of the spectral layers."""
    if ":" in config.network:
        return f"with {config.text('method')}" if accepts(config.network, "method") else "with its own layers"
    layers = [config.layer] if config.layer != "batchnorm" else []
    layers += [f"{config.pooling} pooling"] if config.pooling != "average" else []
    method = f" with {config.text('method')}" if config.operations else ""
    return f"{' and '.join(layers)}{method}" if layers else "batch normalization"


def config_from(options: argparse.Namespace) -> Config:
    """The configuration that the options describe: values of the preset, then of the file, then of the flags.

    A resumed run starts from its own ``config.toml``, unless a preset or a file is given. A ``module:callable`` in a
    file must be given again as a flag.

    Raises:
        ConfigError: the options are invalid.
    """
    config = preset(options.preset or START)
    file = options.config
    if options.resume and options.out and not (options.preset or file) and (options.out / CONFIG).exists():
        file = options.out / CONFIG
    if file is not None:
        config = Config.from_toml(file, config)
    given = {name: value for name, value in vars(options).items() if name in FIELDS}
    if given.get("layer") == "denoising" and config.method == Config().method:
        given = {"method": EIGENVECTORS, **given}
    config = config.replaced(**given)
    check_flags(config, given)
    return config


def check_flags(config: Config, given: Mapping[str, Any]) -> None:
    """Reject unknown datasets, code that only a file names, and flags that a user's own network would ignore.

    Args:
        config: of the run.
        given: the fields that were given as flags.

    Raises:
        ConfigError: the dataset is unknown, only a file names the user's code, or a flag has no effect.
    """
    for what, name in config.own_names.items():
        require_given(name, what, ConfigError)
    if not known(config.dataset):
        raise ConfigError(f"dataset: {unknown_dataset(config.dataset)}")
    if given.get("postpone") and not config.hybrid:
        raise ConfigError("--postpone: expected together with --hybrid, without which it has no effect")
    if ":" not in config.network and config.pooling != "covariance":
        unused = [f"--{name}" for name in ("normalize", "power") if given.get(name)]
        if unused:
            raise ConfigError(f"{unused[0]}: expected together with --pooling covariance, got {config.pooling!r}")
    if ":" in config.network:
        unused = [name for name in given if name in SETTINGS and not accepts(config.network, name)]
        if unused:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
            raise ConfigError(f"{flags}: {config.network} has no parameter of that name, so it would not be used")


def unreached_milestones(config: Config) -> str:
    """A note on milestones after the last epoch; empty if there are none.

    Example:
        >>> unreached_milestones(Config(epochs=1, milestones=(2,)))
        '; milestone 2 is not reached'
        >>> late = {"method": "newton-schulz", "hybrid": "exact", "postpone": True, "epochs": 2, "milestones": (1,)}
        >>> unreached_milestones(Config(**late))
        '; milestone 2 is not reached'
    """
    *others, last = config.milestones or (0,)
    decays = [*others, last + (config.warmup_epochs if config.hybrid and config.postpone else 0)]
    late = [str(milestone) for milestone in decays if milestone >= config.epochs]
    said = f"milestone{'s' if len(late) > 1 else ''} {', '.join(late)} {'are' if len(late) > 1 else 'is'} not reached"
    return f"; {said}" if late else ""


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    try:
        config, start = config_from(options), options.preset or START
    except (ConfigError, NetworkError) as problem:
        options.parser.error(with_flags(problem, FIELDS))
    out: Path = options.out or Path("runs") / run_name(config, start, preset(start))
    is_leader = os.environ.get("RANK", "0") == "0"
    if is_leader:
        print(f"{_described(config)}{unreached_milestones(config)}; in {out}", flush=True)
    keep_memory()
    try:
        with short_warnings():
            result = train(config, out, resume=options.resume, progress=for_terminal())
    except (ConfigError, RunExistsError, NetworkError) as problem:
        options.parser.error(with_flags(problem, FIELDS))
    except STOPPING as problem:
        again = [word for what, name in config.own_names.items() for word in (f"--{what}", name)]
        return print_stop(problem, "spectralgrad train", out, is_leader, again)
    return _print_result(result, out) if is_leader else _status(result)


def _print_result(result: Result, out: Path) -> int:
    if result.failure is not None:
        print(f"failed at {result.failure}\nkept in {out}")
    else:
        top5 = f", top-5 {result.final_top5:.2f} %, best {result.best_top5:.2f} %"
        print(
            f"done: error {result.final_error:.2f} % after {plural(len(result.epochs), 'epoch')}, "
            f"best {result.best_error:.2f} %{'' if math.isnan(result.final_top5) else top5}, {result.seconds:.0f} s; "
            f"kept in {out}"
        )
        if result.config.time_layers and result.epochs:
            print(_times(result.epochs[-1].measured))
    return _status(result)


def _times(measured: Mapping[str, float]) -> str:
    """The times of forward and backward passes in the last epoch."""
    said = []
    for name, prefix in {"spectral layers": "layer_", "network": ""}.items():
        if f"{prefix}forward_ms" in measured:
            both = (measured.get(f"{prefix}{way}_ms", math.nan) for way in ("forward", "backward"))
            said.append(f"{name} {' + '.join(f'{value:.1f}' for value in both)} ms")
    return f"forward + backward pass, medians of the last epoch: {', '.join(said)}"


def _status(result: Result) -> int:
    return FAILED if result.status == "failed" else 0
