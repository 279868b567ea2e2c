"""Colour transfer: the mean and covariance of the colours of one image for another."""

from .layer import ColorTransfer, transfer_color

__all__ = ["ColorTransfer", "transfer_color"]
