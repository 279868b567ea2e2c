"""Translation runs that take a fraction of a second, and their pictures; as a program, one of several processes."""

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from spectralgrad_lab.transfer.translation import TranslationConfig, train_translation

TINY = TranslationConfig(
    size=32,
    scales=1,
    width=2,
    group_size=4,
    batch_size=2,
    steps=5,
    log_every=1,
    sample_every=2,
    tensorboard=False,
    threads=1,
    checkpoint_minutes=60,
)


def pictures(folder):
    """Two folders with three pictures each: gradients and stripes."""
    chance = np.random.default_rng(0)
    for domain in ("a", "b"):
        (folder / domain).mkdir()
        for i in range(3):
            y, x = np.mgrid[0:40, 0:48] / 40
            wave = np.sin((6 if domain == "a" else 25) * (x * (i + 1) + y))
            image = 128 + 100 * wave[..., None] * chance.uniform(0.3, 1, 3)
            Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / domain / f"{i}.png")
    return {domain: str(folder / domain) for domain in ("a", "b")}


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    for file in sorted(Path(sys.argv[1]).glob("*.toml")):
        result = train_translation(TranslationConfig.from_toml(file), file.with_suffix(""))
        print(file.stem, result.status)
    torch.distributed.destroy_process_group()
