"""Entry point of ``mlirstack-translate``; the tool itself is :mod:`mlirstack.opt.translate`."""

from __future__ import annotations

from mlirstack.opt.translate import main

__all__ = ["main"]
