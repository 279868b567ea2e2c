"""Translation between two sets of images by whitening and colouring: the SVD-WCT and GD-WCT networks."""

from .config import TranslationConfig
from .running import train_translation
from .translator import Translator

__all__ = ["TranslationConfig", "Translator", "train_translation"]
