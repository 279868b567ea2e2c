"""The commands ``spectralgrad compare`` and ``spectralgrad report``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spectralgrad.io.files import path_argument, require_writable, said, write_json
from spectralgrad.rules import methods

from ..comparison.grid import BATCHNORM, DEFAULT, DEMO_METHODS, GROUP_SIZES, METHODS, SEEDS, Comparison, grid, sort_key
from ..comparison.jobs import KEPT, Engine, InProcess, Processes, Submitit, available_cores
from ..comparison.table import as_text, live_progress
from ..data import load_for
from ..machine import machine
from ..networks import NetworkError, build
from ..report import SESSION, report, session
from ..training.config.flags import add_fields, with_flags
from ..training.config.presets import preset
from ..training.config.run_config import FIELDS, Config, ConfigError
from ..training.loop.exit_status import short_warnings
from ..training.loop.steps import batches
from ..training.processes.process_group import Group
from ..training.storage.records import plural
from .train import EIGENVECTORS, TITLES, check_flags, unreached_milestones

_DESCRIPTION = """\
Train one network with several methods, group sizes and seeds, and compare success rates, test errors, speed and the
accuracy of the gradients. Prints a table and writes report.html, a page that works offline.
Finished runs are kept in results.jsonl; run the same command again to continue after an interruption. A run that
diverges is a result, not an error."""
_EXAMPLES = """\
examples:
  spectralgrad compare                                   the default: a minute or two on two cores
  spectralgrad compare --methods svd,exact --group-sizes 4,8,16,64 --seeds 3
  spectralgrad compare --layer batchnorm --reduce-to 16 --methods exact --poolings average,covariance,seb,tokens,dropcov
  spectralgrad compare --preset tpami-cifar10 --data DIR --group-sizes 4,8,16,32,64 --seeds 15 --jobs 1 \\
      --methods svd,pi,svd-clip,svd-pi,svd-taylor --eps-of pi=1e-4,svd-pi=1e-4           TPAMI's Table 4
  spectralgrad compare --preset tpami-cifar10 --data DIR --cluster slurm \\
      --cluster-options slurm_partition=gpu,gpus_per_node=1,timeout_min=1440

exit status: 0 all runs were carried out, including failed ones; 1 error; 2 wrong usage; 130 stopped by Ctrl-C"""
_REPORT = """\
examples:
  spectralgrad report comparison                         writes comparison/report.html
  spectralgrad report results.jsonl --out page.html"""
_VARIED = ("method", "group_size", "seed")  # fields that a comparison sets itself


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad compare``."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.usage = (
        "spectralgrad compare [--methods NAME,…] [--poolings NAME,…] [--group-sizes N,…] [--seeds N] [--jobs N] "
        "[--out DIR] [any flag of spectralgrad train]"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    _add_grid(parser)
    _add_running(parser)
    parser.add_argument("--preset", metavar="NAME", help="start from this preset of `spectralgrad train`")
    parser.add_argument(
        "--config", type=path_argument, metavar="FILE", help="TOML file whose values replace the preset's"
    )
    add_fields(parser, DEFAULT, TITLES, _VARIED)
    parser.set_defaults(run=short_warnings()(_compare))


def _add_grid(parser: argparse.ArgumentParser) -> None:
    """Which runs to compare."""
    add = parser.add_argument
    add(
        "--methods",
        type=_names,
        metavar="NAME,…",
        help=f"default: {','.join(DEMO_METHODS)}; with --preset or --config, pi too",
    )
    add(
        "--eps-of",
        type=_eps_of,
        default={},
        metavar="NAME=X,…",
        help="ε for some of the methods, such as pi=1e-4,svd-pi=1e-4 (default: --eps for all)",
    )
    add("--poolings", type=_names, default=(), metavar="NAME,…", help="poolings to compare (default: --pooling only)")
    add(
        "--group-sizes",
        type=_sizes,
        metavar="N,…",
        help="channels whitened together, or `all` (default: 16, or the group size of the preset)",
    )
    add("--seeds", type=_seeds, default=SEEDS, metavar="N", help="number of seeds, or a list such as 3,4 (default: 2)")


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Where the runs are carried out, and where their results go."""
    add = parser.add_argument
    add("--jobs", type=_count, metavar="N", help="parallel runs on this machine (default: one per core; 1 with a GPU)")
    add(
        "--cluster",
        metavar="NAME",
        help="run on a cluster with submitit: slurm, local or auto; --out must be on a shared disk",
    )
    add("--cluster-options", type=_pairs, default={}, metavar="NAME=VALUE,…", help="options for submitit")
    folder = Path("comparison")
    add(
        "--out", type=path_argument, default=folder, metavar="DIR", help=f"folder of the comparison (default: {folder})"
    )
    add("--note", default="", metavar="TEXT", help="a remark to print on the page, such as other load on the machine")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad report``."""
    parser.description = "Write the report of a comparison, finished or not."
    parser.epilog, parser.formatter_class = _REPORT, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "source", type=path_argument, metavar="DIR", help="folder of a comparison, or its results.jsonl"
    )
    parser.add_argument(
        "--out", type=path_argument, metavar="FILE", help="page to write (default: report.html beside the results)"
    )
    parser.set_defaults(run=short_warnings()(_report))


def _compare(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    try:
        base = _base(options)
        varied = _methods(options, base), _group_sizes(options, base), options.seeds, options.eps_of, options.poolings
        configs = grid(base, *varied)
        engine = _engine(options, len(configs))
        _check(configs)
    except (ConfigError, NetworkError) as problem:
        options.parser.error(with_flags(problem, FIELDS))
    out: Path = options.out
    comparison = Comparison(configs, out)
    print(_plan(comparison, engine), flush=True)
    _remember(out, engine, options)
    try:
        with live_progress(comparison) as on_result:
            comparison.run(engine, on_result)
    except KeyboardInterrupt:
        print("\nstopped; run the same command again to continue.", file=sys.stderr)
        return 130
    except OSError as problem:
        print(f"spectralgrad compare: {said(problem)}; {KEPT}", file=sys.stderr)
        return 1
    print(f"\n{as_text(sorted(comparison.results.values(), key=sort_key))}\n")
    page = report(out)
    print(f"{page.headline}\n\n{time.perf_counter() - began:.0f} s; report: {page.path}")
    return 0


def _report(options: argparse.Namespace) -> int:
    require_writable(options.out)
    page = report(options.source, options.out)
    print(f"{page.headline}\n\nreport: {page.path}")
    return 0


def _base(options: argparse.Namespace) -> Config:
    """The values that all runs share: from the preset, then the file, then the flags."""
    given = {name: value for name, value in vars(options).items() if name in FIELDS and name not in _VARIED}
    config = preset(options.preset) if options.preset else Config() if options.config else DEFAULT
    if config is DEFAULT and given.get("dataset", config.dataset) != DEFAULT.dataset:
        config = config.replaced(train_size=None, augmentation=None)  # these defaults are for the embedded images
    if options.config is not None:
        config = Config.from_toml(options.config, config)
    if given.get("layer") == "denoising":
        given = {"method": EIGENVECTORS, **given}
    config = config.replaced(**given)
    flags = {name: value for name, value in given.items() if name not in _VARIED}
    check_flags(config, {**flags, "eps": options.eps_of} if options.eps_of else flags)
    return config


def _methods(options: argparse.Namespace, base: Config) -> tuple[str, ...]:
    """The given methods, or by default all those that support the layer."""
    if options.methods is not None:
        return tuple(options.methods)
    bases = [base.replaced(pooling=name) for name in options.poolings or (base.pooling,)]
    supported = [set(methods(operation)) for config in bases for operation in config.operations]
    offered = METHODS if options.preset or options.config else DEMO_METHODS
    return tuple(name for name in offered if name == BATCHNORM or all(name in names for names in supported))


def _group_sizes(options: argparse.Namespace, base: Config) -> tuple[int | None, ...]:
    """The given group sizes, or the one of the preset or file, or the demo's."""
    if options.group_sizes is not None:
        return tuple(options.group_sizes)
    return (base.group_size,) if options.preset or options.config else GROUP_SIZES


def _check(configs: Sequence[Config]) -> None:
    """Report missing images, and group sizes that do not fit the network, before the first run."""
    base = configs[0]
    data = load_for(base)
    shape = batches(base, data, Group())[0].shape
    for config in {(config.group_size, config.pooling): config for config in configs}.values():
        build(config, shape[0], shape[1], len(data.classes))


def _engine(options: argparse.Namespace, runs: int) -> Engine:
    if options.cluster:
        name = None if options.cluster == "auto" else options.cluster
        return Submitit(options.out / "submitit", name, options.cluster_options)
    import torch

    automatic = 1 if torch.cuda.is_available() else min(available_cores(), runs)
    count = options.jobs or automatic
    return Processes(count) if count > 1 else InProcess()


def _plan(comparison: Comparison, engine: Engine) -> str:
    configs, finished = comparison.configs, comparison.finished
    base = configs[0]
    kept = f", {finished} of them already finished" if finished else ""
    what = f"{plural(len(configs), 'run')} of {base.network} on {base.dataset}{kept}"
    schedule = f"{plural(base.epochs, 'epoch')}{_rates(base)}{unreached_milestones(base)}"
    return f"{what}; {schedule}; {_described(engine)}; in {comparison.folder}"


def _rates(config: Config) -> str:
    drops = ",".join(map(str, config.milestones))
    return f", learning rate {config.lr:g}" + (f" × {config.gamma:g} after epoch {drops}" if drops else "")


def _described(engine: Engine) -> str:
    if isinstance(engine, Processes):
        return f"{engine.count} at a time, {engine.threads} thread{'s' if engine.threads > 1 else ''} each"
    return "with submitit" if isinstance(engine, Submitit) else "one at a time"


def _remember(out: Path, engine: Engine, options: argparse.Namespace) -> None:
    """Record the command and the machine for the report."""
    before = session(out)
    commands = [*before["commands"], _text(shlex.join(["spectralgrad", *options.arguments]))]
    note = _text(options.note) or before["note"]
    content = {"commands": list(dict.fromkeys(commands)), "running": _described(engine), "note": note}
    write_json(out / SESSION, {**content, "machine": machine()})


def _text(argument: str) -> str:
    """An argument as valid UTF-8; bytes of a file name that are not valid are escaped."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _sizes(text: str) -> tuple[int | None, ...]:
    return tuple(dict.fromkeys(None if part == "all" else _count(part) for part in _names(text)))


def _seeds(text: str) -> tuple[int, ...]:
    if "," not in text:
        return tuple(range(_count(text)))
    try:
        return tuple(dict.fromkeys(int(part) for part in _names(text)))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number of seeds, or a list such as 3,4, got {text!r}") from None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got {text!r}")
    return int(text)


def _eps_of(text: str) -> dict[str, float]:
    pairs = [part.rpartition("=") for part in _names(text)]
    try:
        found = {name: float(value) for name, _, value in pairs}
    except ValueError:
        found = {"": 0.0}
    if "" in found:
        raise argparse.ArgumentTypeError(f"expected NAME=X,… such as svd-pi=1e-4, got {text!r}")
    return found


def _pairs(text: str) -> dict[str, Any]:
    pairs = [part.partition("=") for part in _names(text)]
    if any(not separator for _, separator, _ in pairs):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,…, got {text!r}")
    return {name: int(value) if value.isdecimal() else value for name, _, value in pairs}
