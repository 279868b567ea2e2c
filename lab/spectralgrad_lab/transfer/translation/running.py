"""One translation run, from the beginning or from its checkpoint."""

from __future__ import annotations

from pathlib import Path

from ...training.loop.step_loop import run_steps
from ...training.loop.step_progress import StepProgress
from ...training.storage.step_records import StepResult
from .config import TranslationConfig
from .task import TranslationTask


def train_translation(
    config: TranslationConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: StepProgress | None = None,
) -> StepResult[TranslationConfig]:
    """Train the networks that translate between two sets of images.

    Args:
        config: of the run; ``a`` and ``b`` are folders with images.
        folder: receives config.toml, result.json, log.jsonl, samples, a checkpoint and TensorBoard events; None writes
            nothing.
        resume: continue from the checkpoint in the folder, if there is one.
        progress: progress callbacks (default: none).

    Returns:
        the result; its ``losses`` are means over the last ``log_every`` steps.

    Raises:
        DataError: a folder does not exist or contains no image.
        PictureError: an image is damaged or too small.
        ConfigError, RunBusyError, RunExistsError, CheckpointError, OSError, Stopped, WorkerLostError: as in
            :func:`~spectralgrad_lab.training.loop.step_loop.run_steps`.

    Example:
        >>> from spectralgrad_lab.transfer.pictures.shipped import art_path
        >>> art = str(art_path("cat").parent)
        >>> config = TranslationConfig(a=art, b=art, size=32, scales=1, width=2, batch_size=1, steps=2, log_every=1)
        >>> result = train_translation(config)
        >>> result.status, result.step, result.losses["cycle"] > 0
        ('done', 2, True)

    Reference: Wang et al., TPAMI 2021, section 5.3; Cho et al., GD-WCT, CVPR 2019.
    """
    return run_steps(config, lambda now: TranslationTask(config, now), folder, resume=resume, progress=progress)
