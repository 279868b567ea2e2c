"""Colour transfer, style transfer, and translation between two sets of images, by whitening and colouring."""

from .art_pictures import find_picture
from .color import ColorTransfer, transfer_color
from .picture_errors import PictureError, PictureWarning
from .pictures import Picture, read_picture, write_picture

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
