"""``spectralgrad compare`` and ``spectralgrad report``: their options, and what they do."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spectralgrad.io.files import require_folder, said, write_json
from spectralgrad.rules import methods

from ..comparison.grid import BATCHNORM, DEFAULT, GROUP_SIZES, METHODS, SEEDS, Comparison, grid, order
from ..comparison.jobs import KEPT, Engine, Here, Processes, Submitit, cores
from ..comparison.table import shown, text
from ..data import load_for
from ..machine import machine
from ..networks import NetworkError, build
from ..report import SESSION, report, session
from ..training.config import FIELDS, Config, ConfigError
from ..training.presets import preset
from ..training.process_group import Group
from ..training.records import count
from ..training.steps import batches
from .train import EIGENVECTORS, add_fields, check_sense, note

_DESCRIPTION = """\
Train one network by several methods, group sizes and seeds, and say who survives, with what error, how fast, and how
far each gradient is from the true one. Ends with a table and report.html, a page that needs no network.
Finished runs are kept in results.jsonl; the same command goes on where it was stopped. A run that diverges is a
result, not an error."""
_EXAMPLES = """\
examples:
  spectralgrad compare                                   the default: a minute or two on two cores
  spectralgrad compare --methods svd,exact --group-sizes 4,8,16,64 --seeds 3
  spectralgrad compare --preset tpami-cifar10 --data DIR --group-sizes 4,8,16,32,64 --seeds 15 --jobs 1
  spectralgrad compare --preset tpami-cifar10 --data DIR --cluster slurm \\
      --cluster-options slurm_partition=gpu,gpus_per_node=1,timeout_min=1440

exit status: 0 all runs were carried out, failed ones included, 1 an error told in one line, 2 wrong usage,
130 stopped by Ctrl-C"""
_REPORT = """\
examples:
  spectralgrad report comparison                         writes comparison/report.html
  spectralgrad report results.jsonl --out page.html"""
_OWN = ("method", "group_size", "seed")


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser of ``spectralgrad compare`` its arguments."""
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.usage = (
        "spectralgrad compare [--methods NAME,…] [--group-sizes N,…] [--seeds N] [--jobs N] [--out DIR] "
        "[any value of spectralgrad train as a flag]"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--methods", type=_names, metavar="NAME,…", help=f"default: {','.join(METHODS)}")
    add("--group-sizes", type=_sizes, default=GROUP_SIZES, metavar="N,…", help="default: 16; `all` for all channels")
    add("--seeds", type=_seeds, default=SEEDS, metavar="N", help="so many from 0 on, or a list: `3,4`, or `3,` (2)")
    add(
        "--jobs", type=_count, metavar="N", help="runs at a time on this machine (default: one a core on a CPU, else 1)"
    )
    add(
        "--cluster",
        metavar="NAME",
        help="many machines by submitit: slurm, local or auto; then --out is on a shared disk",
    )
    add("--cluster-options", type=_pairs, default={}, metavar="NAME=VALUE,…", help="passed to submitit")
    add("--out", type=Path, default=Path("comparison"), metavar="DIR", help="folder of the comparison (comparison)")
    add("--note", default="", metavar="TEXT", help="a sentence that the page prints, such as what else the machine did")
    add("--preset", metavar="NAME", help="start from this protocol of `spectralgrad train`")
    add("--config", type=Path, metavar="FILE", help="then take what this TOML file says")
    add_fields(parser, DEFAULT, _OWN)
    parser.set_defaults(run=_compare)


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser of ``spectralgrad report`` its arguments."""
    parser.description = "Make the page of a comparison from its results, finished or not."
    parser.epilog, parser.formatter_class = _REPORT, argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", type=Path, metavar="DIR", help="folder of a comparison, or its results.jsonl")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: report.html beside the results)")
    parser.set_defaults(run=_report)


def _compare(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    try:
        base = _base(options)
        configs = grid(base, _methods(options, base), options.group_sizes, options.seeds)
        engine = _engine(options, len(configs))
        _check(configs)
    except (ConfigError, NetworkError) as problem:
        options.parser.error(str(problem))
    out: Path = options.out
    comparison = Comparison(configs, out)
    print(_plan(comparison, engine), flush=True)
    _remember(out, engine, options)
    try:
        with shown(comparison) as on_result:
            comparison.run(engine, on_result)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on where it was.", file=sys.stderr)
        return 130
    except OSError as problem:
        print(f"spectralgrad compare: {said(problem)}; {KEPT}", file=sys.stderr)
        return 1
    print(f"\n{text(sorted(comparison.results.values(), key=order))}\n")
    page = report(out)
    print(f"{page.headline}\n\n{time.perf_counter() - began:.0f} s; the page: {page.path}")
    return 0


def _report(options: argparse.Namespace) -> int:
    require_folder(options.out)
    page = report(options.source, options.out)
    print(f"{page.headline}\n\nthe page: {page.path}")
    return 0


def _base(options: argparse.Namespace) -> Config:
    """What all runs have in common: preset or default, then file, then flags."""
    given = {name: value for name, value in vars(options).items() if name in FIELDS and name not in _OWN}
    config = preset(options.preset) if options.preset else Config() if options.config else DEFAULT
    if config is DEFAULT and given.get("dataset", config.dataset) != DEFAULT.dataset:
        config = config.replaced(train_size=None, augmentation=None)  # those are for the embedded images
    if options.config is not None:
        config = Config.from_toml(options.config, config)
    if given.get("layer") == "denoising":
        given = {"method": EIGENVECTORS, **given}
    config = config.replaced(**given)
    check_sense(config, {name: value for name, value in given.items() if name not in _OWN})
    return config


def _methods(options: argparse.Namespace, base: Config) -> tuple[str, ...]:
    """Those asked for, by default those that serve the layer."""
    if options.methods is not None:
        return tuple(options.methods)
    serving = [set(methods(operation)) for operation in base.operations]
    return tuple(name for name in METHODS if name == BATCHNORM or all(name in found for found in serving))


def _check(configs: Sequence[Config]) -> None:
    """Missing images, and groups that do not fit the network, are told before the first run."""
    base = configs[0]
    data = load_for(base)
    shape = batches(base, data, Group())[0].shape
    for config in {config.group_size: config for config in configs}.values():
        build(config, shape[0], shape[1], len(data.classes))


def _engine(options: argparse.Namespace, runs: int) -> Engine:
    if options.cluster:
        name = None if options.cluster == "auto" else options.cluster
        return Submitit(options.out / "submitit", name, options.cluster_options)
    import torch

    automatic = 1 if torch.cuda.is_available() else min(cores(), runs)
    count = options.jobs or automatic
    return Processes(count) if count > 1 else Here()


def _plan(comparison: Comparison, engine: Engine) -> str:
    configs, finished = comparison.configs, comparison.finished
    base = configs[0]
    kept = f", {finished} of them kept from before" if finished else ""
    what = f"{count(len(configs), 'run')} of {base.network} on {base.dataset}{kept}"
    return f"{what}; {count(base.epochs, 'epoch')}{_rates(base)}{note(base)}; {_said(engine)}; in {comparison.folder}"


def _rates(config: Config) -> str:
    drops = ",".join(map(str, config.milestones))
    return f", rate {config.lr:g}" + (f" × {config.gamma:g} after epoch {drops}" if drops else "")


def _said(engine: Engine) -> str:
    if isinstance(engine, Processes):
        return f"{engine.count} at a time, {engine.threads} thread{'s' if engine.threads > 1 else ''} each"
    return "by submitit" if isinstance(engine, Submitit) else "one at a time"


def _remember(out: Path, engine: Engine, options: argparse.Namespace) -> None:
    """What made the results: the commands and the machine."""
    before = session(out)
    commands = [*before["commands"], _text(shlex.join(["spectralgrad", *options.arguments]))]
    note = _text(options.note) or before["note"]
    content = {"commands": list(dict.fromkeys(commands)), "running": _said(engine), "note": note}
    write_json(out / SESSION, {**content, "machine": machine()})


def _text(argument: str) -> str:
    """An argument as UTF-8 has it, whatever the encoding of file names."""
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
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return int(text)


def _pairs(text: str) -> dict[str, Any]:
    pairs = [part.partition("=") for part in _names(text)]
    if any(not separator for _, separator, _ in pairs):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,…, got {text!r}")
    return {name: int(value) if value.isdecimal() else value for name, _, value in pairs}
