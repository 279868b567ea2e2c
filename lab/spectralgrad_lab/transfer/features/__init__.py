"""Style transfer between feature maps: VGG-16 as encoder, whitening and colouring at several levels, small decoders."""
