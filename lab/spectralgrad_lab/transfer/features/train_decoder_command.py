"""The command ``spectralgrad transfer train-decoder``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ...training.config.flags import with_flags
from ...training.config.settings import ConfigError
from ...training.config.step_settings import RUNNING, TRAINING
from ...training.loop.step_command import add_step_arguments, config_of, run_step_command
from ...training.loop.step_progress import StepProgress
from ...training.storage.step_records import StepResult
from .decoder_files import run_folder
from .decoder_training import DATA, DecoderSettings, train_decoder
from .encoder_file import HOW_TO_GET, EncoderError, load_encoder

_DEFAULTS = DecoderSettings()
_COMMAND = "spectralgrad transfer train-decoder"
_TITLES = {DATA: "images and encoder", TRAINING: TRAINING, RUNNING: RUNNING}
_DESCRIPTION = """\
Train the decoder of one level for `spectralgrad transfer style`: it turns features of VGG-16 back into an image. Any
folder of images will do. The folder of the run receives decoder-LEVEL.safetensors, config.toml, log.jsonl, result.json,
a checkpoint and TensorBoard events. Ctrl-C saves a checkpoint; the same command with --resume continues, with the same
results as an uninterrupted run."""
_EXAMPLES = """\
examples:
  spectralgrad transfer train-decoder --images photos --encoder vgg16.safetensors --level 3
  spectralgrad transfer train-decoder --out runs/decoders/level-3 --resume        continue a run
  spectralgrad transfer style cat night_cafe --encoder vgg16.safetensors --decoders runs/decoders -o cat.png

exit status: 0 done, 1 error, 2 wrong usage, 3 the run failed (diverged), 130 stopped by Ctrl-C"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``spectralgrad transfer train-decoder``."""
    parser.usage = f"{_COMMAND} --images DIR --encoder FILE --level N [--out DIR] [--resume] [any flag listed below]"
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_step_arguments(parser, _DEFAULTS, _TITLES, str(run_folder(Path("runs/decoders"), _DEFAULTS.level)))
    parser.set_defaults(run=partial(_run, parser), out=None)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.out is None:
        options.out = run_folder(Path("runs/decoders"), getattr(options, "level", _DEFAULTS.level))
    try:
        config = config_of(options, _DEFAULTS)
    except ConfigError as problem:
        parser.error(with_flags(problem, _DEFAULTS.fields()))
    if not config.images:
        parser.error("--images is required: a folder with images")
    return run_step_command(options, _COMMAND, _DEFAULTS, _train, parser)


def _train(config: DecoderSettings, out: Path, resume: bool, progress: StepProgress) -> StepResult[DecoderSettings]:
    if config.encoder is None:
        raise EncoderError(f"--encoder is required. {HOW_TO_GET}")
    encoder = load_encoder(config.encoder, any_weights=config.any_encoder)
    return train_decoder(config, encoder, out, resume=resume, progress=progress)
