"""Entry point of ``mlirstack-opt``; the tool itself is :mod:`mlirstack.opt`."""

from __future__ import annotations

from mlirstack.opt.tool import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
