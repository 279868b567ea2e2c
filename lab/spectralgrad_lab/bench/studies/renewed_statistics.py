"""Test the trained networks of a comparison again, with recomputed running statistics.

Running statistics lag behind the weights, and more so the more zero eigenvalues a covariance has (docs/training.md).
This command recomputes the statistics of every finished run over training batches, tests it again, and prints the
errors beside the recorded ones. Nothing is trained.
"""

from __future__ import annotations

import argparse
import dataclasses
from itertools import islice
from pathlib import Path

import torch

from spectralgrad.diagnostics.table import render
from spectralgrad.io.files import PLOTS, path_argument, require_writable, write_json

from ...comparison.paired_differences import against
from ...comparison.results import Summary, summarize
from ...data import Dataset, load_for
from ...import_by_name import give
from ...training.config.run_config import Config
from ...training.loop.components import build
from ...training.loop.failures import FailureWatch
from ...training.loop.steps import Stepper, batches
from ...training.processes.memory import keep_memory
from ...training.processes.process_group import Group
from ...training.storage.checkpoints import load_weights
from ...training.storage.records import Result
from ...training.storage.resuming import read_result


def renewed_test_error(folder: Path, config: Config, data: Dataset) -> float:
    """Test error in per cent of the network in the folder of a run, with recomputed statistics."""
    train, test = batches(config, data, Group())
    components = build(config, train.shape, len(data.classes), Group())
    components.net.load_state_dict(load_weights(folder))
    stepper = Stepper(config, components, FailureWatch(components.net), Group())
    return stepper.evaluate(test, islice(train.epoch(config.epochs), config.renew_batches)).error


def renewed(comparison: Path, data: str | None, count: int) -> tuple[list[Result], list[Result]]:
    """The finished runs as recorded, and the same runs with the new error after the last epoch."""
    before, after = [], []
    datasets: dict[tuple[str, int | None], Dataset] = {}
    for folder in sorted((comparison / "runs").iterdir()):
        result = read_result(folder)
        if result is None or result.status != "done":
            continue
        config = result.config.replaced(renew_batches=count, data=data or result.config.data, init=None)
        wanted = (config.dataset, config.train_size)
        if wanted not in datasets:
            datasets[wanted] = load_for(config)
        last = dataclasses.replace(result.epochs[-1], test_error=renewed_test_error(folder, config, datasets[wanted]))
        before.append(result)
        after.append(dataclasses.replace(result, epochs=[*result.epochs[:-1], last]))
        print(f"{folder.name}: {result.final_error:.2f} %, renewed {last.test_error:.2f} %", flush=True)
    return before, after


def plot(before: list[Result], after: list[Result], path: Path) -> None:
    """Plot mean test errors against the group size, one line per method: as recorded, and renewed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for panel, results, title in zip(panels, (before, after), ("as recorded", "statistics renewed"), strict=True):
        lines: dict[str, list[Summary]] = {}
        for summary in summarize(results):
            lines.setdefault(summary.label, []).append(summary)
        for name, found in lines.items():
            if name == "batchnorm":
                panel.axhline(found[0].mean, color="grey", linestyle=":", label=name)
                continue
            sized = sorted(found, key=lambda s: s.group_size or 0)
            panel.errorbar([s.group_size for s in sized], [s.mean for s in sized], [s.sd for s in sized],
                           marker="o", markersize=4, capsize=2, linewidth=1.2, label=name)  # fmt: skip
        sizes = sorted({r.config.group_size for r in results if r.config.group_size})
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.set_xlabel("channels whitened together")
        panel.set_title(title)
    panels[0].set_ylabel("test error in per cent")
    panels[1].legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(path, dpi=120)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.add_argument("comparison", type=path_argument, help="folder of `spectralgrad compare`")
    parser.add_argument("--data", help="folder of the images, if it has changed")
    for what in ("dataset", "network"):
        said = f"{what} of the runs, if it is your own; a module that only a file names is not imported"
        parser.add_argument(f"--{what}", metavar="MODULE:CALLABLE", help=said)
    parser.add_argument("--batches", type=int, default=20, help="training batches to average over (default: 20)")
    parser.add_argument("--json", type=path_argument, help="also write the errors as JSON")
    parser.add_argument("--plot", type=path_argument, help="also plot the errors (png, svg, pdf)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print both tables."""
    require_writable(options.json)
    require_writable(options.plot, PLOTS)
    give(options.dataset, options.network)
    keep_memory()
    torch.set_num_threads(1)
    before, after = renewed(options.comparison, options.data, options.batches)
    rows = [
        [old.name, str(len(old.done)), f"{old.mean:.2f}", f"{new.mean:.2f}", f"{new.sd:.2f}", f"{new.best:.2f}"]
        for old, new in zip(summarize(before), summarize(after), strict=True)
    ]
    print(f"\n{render(['', 'runs', 'recorded', 'renewed', 'sd', 'best'], rows)}\n")
    pairs = [[p.label, str(len(p.differences)), f"{p.mean:+.2f}", f"{p.standard_error:.2f}"] for p in against(after)]
    print(render(["renewed, against exact", "pairs", "difference", "standard error"], pairs))
    if options.plot:
        plot(before, after, options.plot)
    if options.json:
        names = ("method", "layer", "group_size", "seed")
        runs = [
            {**{name: getattr(a.config, name) for name in names}, "recorded": a.final_error, "renewed": b.final_error}
            for a, b in zip(before, after, strict=True)
        ]
        write_json(options.json, {"batches": options.batches, "runs": runs})
