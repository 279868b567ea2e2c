"""Style transfer between feature maps: VGG-16 as encoder, whitening and colouring at several levels, small decoders."""

from .decoder_files import SHIPPED, DecoderError, load_decoder, load_decoders, save_decoder
from .decoder_training import DecoderSettings, train_decoder
from .encoder_file import EncoderError, load_encoder
from .mirror_decoder import Decoder
from .stylization import stylize
from .vgg_encoder import Encoder

__all__ = [
    "SHIPPED",
    "Decoder",
    "DecoderError",
    "DecoderSettings",
    "Encoder",
    "EncoderError",
    "load_decoder",
    "load_decoders",
    "load_encoder",
    "save_decoder",
    "stylize",
    "train_decoder",
]
