"""Pictures for tests: random colours, and image files written byte by byte."""

import struct
import zlib
from pathlib import Path

import torch


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(path: Path, side: int) -> Path:
    """A PNG file of 100 bytes that claims to have ``side``² pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 30)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    return path


def random_image(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Correlated colours within 0.2..0.8."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.rand(3, 3, generator=generator, dtype=torch.float64) + torch.eye(3, dtype=torch.float64)
    colors = torch.rand(3, *shape, generator=generator, dtype=torch.float64)
    return (0.2 + 0.6 * torch.einsum("ij,jhw->ihw", mix / mix.sum(1, keepdim=True), colors)).to(dtype)
