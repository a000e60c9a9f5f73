"""The host program as a straight line: kernel functions inlined into the entry points, nothing left but what a launch plan
can say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.regions import inline_call
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class InlineLaunches(PythonPass):
    """Before: entry points call kernel functions of allocations, views and launches.  After: the entry points hold these
    themselves, in order; the kernel functions are gone.

    What a launch plan cannot say is refused with a :class:`StageError`: control flow of the host, and sizes or branches that
    depend on device memory.
    """

    name = "mlirstack-launches"

    def apply(self, module: Any) -> None:
        kernels = {functions.name_of(f): f for f in functions_of(module) if KERNEL_ATTRIBUTE in f.attributes}
        for entry in functions.entry_points(module):
            for call in [op for op in walk(entry) if op.name == "func.call"]:
                _inline(call, kernels)
        for kernel in kernels.values():
            kernel.operation.erase()
        for entry in functions.entry_points(module):
            _check(entry)


def _inline(call: Any, kernels: dict[str, Any]) -> None:
    callee = str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
    if callee not in kernels:
        _refuse(call, f"a call of '{callee}', which is no kernel")
    inline_call(call, kernels[callee])


def _check(entry: Any) -> None:
    if len(entry.regions[0].blocks) != 1:
        _refuse(entry.operation, "control flow between kernels")
    for op in entry.regions[0].blocks[0].operations:
        operation = op.operation
        if len(operation.regions):
            _refuse(operation, "control flow that depends on data in device memory")


def _refuse(op: Any, what: str) -> None:
    raise StageError(
        f"a launch plan is a straight line; this program has {what}",
        stage="gpu", op=op.name, location=source_line(op.location), hint="target 'cpu' runs such programs",
    )  # fmt: skip
