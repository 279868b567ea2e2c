"""A narrow encoder with random weights and its decoders, as objects and as files, for tests of style transfer."""

import torch
from safetensors.torch import save_file

from spectralgrad_lab.transfer.features.decoder_files import decoder_file, save_decoder
from spectralgrad_lab.transfer.features.encoder_file import convolution_names, digest_of, load_encoder
from spectralgrad_lab.transfer.features.mirror_decoder import Decoder

WIDTHS = (6, 8, 10, 12, 12)
LEVELS = (1, 2, 3, 4, 5)


def encoder_tensors(widths=WIDTHS, seed=0):
    """Weights with the names of torchvision's ``vgg16().features``, scaled so that features keep their size."""
    generator = torch.Generator().manual_seed(seed)
    tensors, channels = {}, 3
    for names, width in zip(convolution_names(), widths, strict=True):
        for name in names:
            weight = torch.randn(width, channels, 3, 3, generator=generator)
            tensors[f"{name}.weight"] = weight * (2 / (9 * channels)) ** 0.5
            tensors[f"{name}.bias"] = 0.1 * torch.randn(width, generator=generator)
            channels = width
    return tensors


def encoder_file(folder, **options):
    path = folder / "encoder.safetensors"
    save_file(encoder_tensors(**options), path)
    return path


def small_encoder(folder):
    return load_encoder(encoder_file(folder), any_weights=True)


def small_decoder(level, seed=0):
    """A decoder with random weights whose images vary enough that the next level has features to whiten."""
    torch.manual_seed(seed + level)
    decoder = Decoder(level, WIDTHS[level - 1], (6, 6, 6, 6)).requires_grad_(False)
    decoder.stages[-1][-1].weight.mul_(3)
    return decoder


def decoder_folder(folder, levels=LEVELS):
    folder.mkdir()
    for level in levels:
        save_decoder(decoder_file(folder, level), small_decoder(level), digest_of(encoder_tensors()))
    return folder
