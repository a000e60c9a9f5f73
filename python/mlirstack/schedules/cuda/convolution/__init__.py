"""Convolutions as products over pixels, their tiles gathered or brought by the copy engine."""
