"""Sizes that reshapes have computed, as the sizes that they are: what compares sizes goes by their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.ir.ops import walk
from mlirstack.passes.sizes import DIVISIONS, constant, multiplied
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class FoldSizes(PythonPass):
    """Before: a size is multiplied, as elements of a tensor are counted, and divided by the same number.  After: it is not::

    affine.apply (s0 * 64)[%n], then arith.divsi %0, 64    →    %n
    """

    name = "mlirstack-fold-sizes"

    def apply(self, module: Any) -> None:
        for division in [op for op in walk(module) if op.name in DIVISIONS]:
            size = multiplied(division.operands[0], constant(division.operands[1]))
            if size is not None:
                division.results[0].replace_all_uses_with(size)
                division.erase()
