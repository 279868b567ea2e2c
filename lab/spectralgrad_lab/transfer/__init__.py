"""Colour transfer, style transfer, and translation between two sets of images, by whitening and colouring."""
