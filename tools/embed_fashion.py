"""Make the pictures in lab/spectralgrad_lab/data/fashion from the whole of Fashion-MNIST.

    python tools/embed_fashion.py DIR

DIR holds the four files of Fashion-MNIST. The first 400 training and 100 test pictures of each class are taken, in
their order, and written as gzipped IDX files that are the same byte for byte each time (up to the version of zlib).
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import torch

from spectralgrad_lab.data import Split, load
from spectralgrad_lab.data.embedded import FOLDER

TRAIN, TEST = 4000, 1000


def write_idx(path: Path, values: torch.Tensor) -> None:
    """Write bytes with the IDX header of their shape."""
    header = bytes((0, 0, 8, values.dim())) + struct.pack(f">{values.dim()}I", *values.shape)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(header + values.to(torch.uint8).contiguous().numpy().tobytes())


def write(part: str, split: Split) -> None:
    """Write the pictures and labels of a split."""
    assert isinstance(split.images, torch.Tensor)
    write_idx(FOLDER / f"{part}-images-idx3-ubyte.gz", split.images.squeeze(1))
    write_idx(FOLDER / f"{part}-labels-idx1-ubyte.gz", split.labels)


def main(folder: str) -> None:
    """Read the whole, write the part."""
    data = load("fashion-mnist", folder)
    write("train", data.train.first(TRAIN))
    write("t10k", data.test.first(TEST))
    print(f"{sum(file.stat().st_size for file in FOLDER.glob('*.gz')) / 1e6:.2f} MB in {FOLDER}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__))
