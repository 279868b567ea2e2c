"""Photographs translated to paintings and back by networks that differ in their whitening: what Tables 8 and 9 measure.

The pictures are divided in two halves. A classifier learns from one half; crops of the other half are translated, with
styles of the other half, and judged. The translation networks were trained on all pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ...training.storage.resuming import read_record
from ...training.storage.step_records import StepResult
from ...transfer.measures import sharpness, translations
from ...transfer.pictures.random_crops import RandomCrops
from ...transfer.style_classifier import StyleClassifier
from ...transfer.translation import TranslationConfig, Translator, train_translation

METHODS = {
    "GD-WCT": TranslationConfig(method="gd"),
    "SVD-WCT": TranslationConfig(method="svd-taylor", form="published"),
    "exact": TranslationConfig(method="exact"),
}
SETTINGS: dict[str, Any] = {
    "size": 64, "resize": 128, "width": 16, "scales": 2, "batch_size": 4, "content_weight": 0.05, "style_weight": 0.05,
    "lr": 5e-4, "steps": 600, "hold": 400, "halve_every": 100, "threads": 1,
}  # fmt: skip
"""A run of about ten minutes on one core. With the paper's weights of the latent losses, so short a run learns less."""
LEARNED, HELD_OUT = slice(0, None, 2), slice(1, None, 2)
"""Every other picture, by name: those the classifier learns from, and those whose crops are judged."""
CLASSIFIER: dict[str, Any] = {"crops": 500, "epochs": 6, "width": 8}
JUDGED = 200
"""Crops of each domain that are judged."""
DOMAINS = {"a": "photos", "b": "paintings"}
DIRECTIONS: tuple[tuple[Literal["a", "b"], str], ...] = (("a", "b"), ("b", "a"))
"""The domain of the result, and of the content."""


def tasks() -> list[dict[str, Any]]:
    """One task per method."""
    return [{"method": method, "seed": 0} for method in METHODS]


def folder_of(runs: str | Path, method: str) -> Path:
    """The folder of a translation run.

    Example:
        >>> folder_of("runs", "SVD-WCT").as_posix()
        'runs/svd-taylor'
    """
    return Path(runs) / METHODS[method].method


def learn(runs: str, task: dict[str, Any]) -> dict[str, Any]:
    """Train the networks of a method, or take the finished run in the folder, and measure their translations.

    Args:
        runs: the folder of all translation runs.
        task: the method, the seed, and the folder of the data.

    Returns:
        measures by domain; of the translations None if the run diverged, which ``failure`` then says.
    """
    pictures = {name: str(Path(task["data"], name)) for name in DOMAINS.values()}
    torch.set_num_threads(SETTINGS["threads"])
    folder = folder_of(runs, task["method"])
    config = METHODS[task["method"]].replaced(
        **SETTINGS, seed=task["seed"], a=pictures["photos"], b=pictures["paintings"]
    )
    run = _trained(config, folder)
    failure = None if run.failure is None else str(run.failure)
    found = {"failure": failure, "steps": run.step, "seconds": round(run.seconds, 1), "losses": run.losses}
    return {**found, **measured(Translator.load(folder) if failure is None else None, pictures)}


def _trained(config: TranslationConfig, folder: Path) -> StepResult[TranslationConfig]:
    """Begin or resume a run. A finished run may have been trained on pictures in another place."""
    known = read_record(folder, lambda values: StepResult.from_dict(values, TranslationConfig))
    if known is not None and known.status == "done":
        config = config.replaced(a=known.config.a, b=known.config.b)
    return train_translation(config, folder, resume=True)


def measured(translator: Translator | None, pictures: dict[str, str]) -> dict[str, Any]:
    """Accuracy and sharpness of real and translated crops of the pictures that the classifier has not seen.

    Args:
        translator: of the run; None leaves out the translations.
        pictures: domain → folder.

    Returns:
        ``real`` and ``translated`` by domain: the share of crops in per cent taken for images of the domain, and their
        mean sharpness; ``pictures``, the number of pictures held out; ``crops``, the number of crops.
    """
    sides = {"size": SETTINGS["size"], "resize": SETTINGS["resize"]}
    judge = StyleClassifier.trained_on(
        pictures, **sides, **CLASSIFIER, tested=JUDGED, images=LEARNED, test_images=HELD_OUT
    )
    crops = {
        domain: RandomCrops(pictures[name], **sides, seed=seed, images=HELD_OUT)
        for seed, (domain, name) in enumerate(DOMAINS.items())
    }
    found: dict[str, Any] = {"real": {}, "translated": {}, "pictures": {}, "crops": JUDGED}
    for to, other in DIRECTIONS:
        name = DOMAINS[to]
        found["pictures"][name] = len(crops[to])
        found["real"][name] = _scores(judge, crops[to].batch(0, JUDGED), name)
        made = None if translator is None else translations(translator, crops[other], crops[to], JUDGED, to)
        found["translated"][name] = None if made is None else _scores(judge, made, name)
    return found


def _scores(judge: StyleClassifier, images: Tensor, domain: str) -> dict[str, float]:
    sharp = sum(map(sharpness, images)) / len(images)
    return {"accuracy": round(judge.accuracy(images, domain), 2), "sharpness": round(sharp, 3)}
