"""Calls of the C library for functions that keep small numbers: log1p and expm1 of single numbers.

LLVM has no such functions, and MLIR's conversion writes them as ``log(1 + x)`` and ``exp(x) - 1``, which are zero where
``x`` is small.  Those of vectors are taken care of by :mod:`mlirstack.passes.vector_math`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import declare
from mlirstack.passes.vector_math import C_NAMES
from mlirstack.pipeline.step import PythonPass

_NEAR_ZERO = ("math.log1p", "math.expm1")
_SUFFIXES = {"f32": "f", "f64": ""}


@dataclass(frozen=True)
class CallNearZero(PythonPass):
    """Before: ``math.log1p`` and ``math.expm1`` on f32 and f64.  After: calls of ``log1pf``, ``log1p``, ``expm1f``,
    ``expm1``, which are declared.
    """

    name: ClassVar[str] = "mlirstack-call-near-zero"

    def apply(self, module: Any) -> None:
        """Replace each of them."""
        called: dict[str, Any] = {}
        for op in walk(module):
            suffix = _SUFFIXES.get(str(op.results[0].type)) if op.name in _NEAR_ZERO else None
            if suffix is None:
                continue
            symbol, kind = C_NAMES[op.name] + suffix, op.results[0].type
            called[symbol] = ir.FunctionType.get([kind], [kind])
            with ir.InsertionPoint(op), op.location:
                call = dialect("func").call([kind], symbol, list(op.operands))
            op.results[0].replace_all_uses_with(call)
            op.erase()
        declare(module, called)
