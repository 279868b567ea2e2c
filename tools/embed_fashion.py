"""Create the image files in lab/spectralgrad_lab/data/fashion from the complete Fashion-MNIST dataset.

    python tools/embed_fashion.py DIR

DIR contains the four files of Fashion-MNIST. The first 400 training images and 100 test images of each class are
written, in their original order, as gzipped IDX files. The files are identical byte for byte each time, given the same
version of zlib.
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
    """Write integers from 0 to 255 as a gzipped IDX file; without a time stamp, so that it is reproducible."""
    header = bytes((0, 0, 8, values.dim())) + struct.pack(f">{values.dim()}I", *values.shape)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(header + values.to(torch.uint8).contiguous().numpy().tobytes())


def write(part: str, split: Split) -> None:
    """Write the images and labels of a split."""
    assert isinstance(split.images, torch.Tensor)
    write_idx(FOLDER / f"{part}-images-idx3-ubyte.gz", split.images.squeeze(1))
    write_idx(FOLDER / f"{part}-labels-idx1-ubyte.gz", split.labels)


def main(folder: str) -> None:
    """Read the complete dataset and write the subset."""
    data = load("fashion-mnist", folder)
    write("train", data.train.first(TRAIN))
    write("t10k", data.test.first(TEST))
    print(f"{sum(file.stat().st_size for file in FOLDER.glob('*.gz')) / 1e6:.2f} MB in {FOLDER}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__))
