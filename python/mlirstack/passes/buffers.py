"""What bufferization needs to be told, and the place where results go.

One-Shot Bufferize works on what it knows; torch-mlir's tm_tensor ops (sort, scatter, scan, top-k, attention) are bufferized
before it, by a pass that does not say who owns the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import PassManager, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.pipeline.step import Pass, PythonPass, pipeline_text


@dataclass(frozen=True)
class OwnTmTensorBuffers(PythonPass):
    """Before: ``tm-tensor-bufferize`` has run: tm_tensor ops read ``to_buffer`` of tensors and write buffers that they
    allocated, which leave as ``to_tensor``.  After: the reads are marked read-only, and the new tensors as the only name of
    their buffer, so that One-Shot Bufferize can analyse the rest of the graph and needs no defensive copies."""

    name = "mlirstack-own-tm-tensor-buffers"

    def apply(self, module: Any) -> None:
        if not any(op.name.startswith("tm_tensor.") for op in walk(module)):
            return
        for op in walk(module):
            if op.name == "bufferization.to_tensor" and op.operands[0].owner.name == "memref.alloc":
                op.attributes["restrict"] = ir.UnitAttr.get()
                op.attributes["writable"] = ir.UnitAttr.get()
            elif op.name == "bufferization.to_buffer":
                op.attributes["read_only"] = ir.UnitAttr.get()


_TO_OUT_PARAMETERS = pipeline_text(
    (
        Pass(
            "buffer-results-to-out-params",
            {"add-result-attr": True, "hoist-static-allocs": True, "modify-public-functions": True},
        ),
    )
)


@dataclass(frozen=True)
class ResultsToArguments(PythonPass):
    """Before: bufferized functions return memrefs.  After: where all shapes are static, the caller allocates: each memref
    result is an argument marked ``bufferize.result``, and the allocation that held it is gone.

    A module with a result of dynamic shape keeps returning memrefs: its caller could not allocate them.
    """

    name = "mlirstack-results-to-arguments"

    def apply(self, module: Any) -> None:
        results = [t for f in functions.entry_points(module) for t in functions.type_of(f).results]
        memrefs = [ir.MemRefType(t) for t in results if isinstance(t, ir.MemRefType)]
        if all(memref.has_static_shape for memref in memrefs):
            PassManager.parse(_TO_OUT_PARAMETERS).run(module.operation)
