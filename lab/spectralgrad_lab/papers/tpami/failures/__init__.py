"""Which gradients fail in training, and when."""
