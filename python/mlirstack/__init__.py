"""Torch models down the whole MLIR stack, one visible level at a time."""

__version__ = "0.1.0"
