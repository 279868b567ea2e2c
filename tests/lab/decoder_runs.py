"""Runs that train a decoder in a fraction of a second; as a program, one that is killed, or one of two processes."""

import random
import sys
from datetime import timedelta
from pathlib import Path

import torch

from spectralgrad_lab.transfer.features.decoder_training import DecoderSettings, train_decoder
from spectralgrad_lab.transfer.features.encoder_file import load_encoder

from .kills import killed
from .translation_kills import ToldLater

TINY = DecoderSettings(
    level=2,
    crop=32,
    resize=40,
    batch_size=2,
    steps=8,
    log_every=1,
    tensorboard=False,
    threads=1,
    checkpoint_minutes=60,
    any_encoder=True,
)


def trained(file, folder, **options):
    """Train as a TOML file says."""
    config = DecoderSettings.from_toml(file)
    return train_decoder(config, load_encoder(config.encoder, any_weights=True), folder, **options)


def work(folder, pipe):
    trained(folder / "run.toml", folder, resume=True, progress=ToldLater(pipe))


def kill_twice(folder):
    chance = random.Random(0)
    for _ in range(2):
        print(killed(work, folder, chance.uniform(0, 0.02))["result"]["step"])


def share(folder):
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    print(trained(folder / "run.toml", folder / "shared").status)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    {"kill": kill_twice, "share": share}[sys.argv[1]](Path(sys.argv[2]))
