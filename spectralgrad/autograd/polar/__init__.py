"""The derivatives of polar factors, rotations and what is built on them."""
