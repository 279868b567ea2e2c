"""The command ``spectralgrad transfer train``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ...training.loop.step_command import add_step_arguments, run_step_command
from ...training.loop.step_progress import StepProgress
from ...training.storage.step_records import StepResult
from .config import TITLES, TranslationConfig
from .running import train_translation

_DEFAULTS = TranslationConfig()
_COMMAND = "spectralgrad transfer train"
_DESCRIPTION = """\
Train networks that translate between two folders of images (TPAMI 2021, section 5.3; GD-WCT, CVPR 2019): the content of
an image of one folder gets the style of an image of the other. The folder of the run receives config.toml, log.jsonl,
result.json, sheets of samples, a checkpoint and TensorBoard events. Ctrl-C saves a checkpoint; the same command with
--resume continues, with the same results as an uninterrupted run. The defaults describe the paper's network; on a CPU,
reduce width, batch size and steps."""
_EXAMPLES = """\
examples:
  spectralgrad transfer train --a photos --b paintings --width 16 --scales 2 --resize 128 --steps 600 --lr 5e-4 \\
      --hold 400 --halve-every 100 --content-weight 0.05 --style-weight 0.05        ten minutes on one core
  spectralgrad transfer train --a photos --b paintings --method svd-taylor --form published --size 256 --out runs/taylor
  spectralgrad transfer train --out runs/taylor --resume        continue a run
  torchrun --nproc-per-node 2 -m spectralgrad transfer train --a photos --b paintings
  spectralgrad transfer apply runs/taylor photo.jpg --style painting.jpg -o painted.png

exit status: 0 done, 1 error, 2 wrong usage, 3 the run failed (diverged), 130 stopped by Ctrl-C"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad transfer train``."""
    parser.usage = f"{_COMMAND} --a DIR --b DIR [--out DIR] [--resume] [any flag listed below]"
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_step_arguments(parser, _DEFAULTS, TITLES, "runs/translation")
    parser.set_defaults(run=partial(_run, parser))


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    return run_step_command(options, _COMMAND, _DEFAULTS, _train, parser)


def _train(config: TranslationConfig, out: Path, resume: bool, progress: StepProgress) -> StepResult[TranslationConfig]:
    return train_translation(config, out, resume=resume, progress=progress)
