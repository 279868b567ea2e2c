"""Image files: what is read, kept and written; pictures by name, contact sheets, and random crops for training."""

from .errors import PictureError, PictureWarning
from .picture import Picture, read_picture, write_picture
from .shipped import find_picture

__all__ = ["Picture", "PictureError", "PictureWarning", "find_picture", "read_picture", "write_picture"]
