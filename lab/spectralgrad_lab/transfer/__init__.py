"""Colour transfer, style transfer, and translation between two sets of images, by whitening and colouring."""

from .color import ColorTransfer, transfer_color
from .pictures import Picture, PictureError, PictureWarning, find_picture, read_picture, write_picture

__all__ = [
    "ColorTransfer",
    "Picture",
    "PictureError",
    "PictureWarning",
    "find_picture",
    "read_picture",
    "transfer_color",
    "write_picture",
]
