"""Kernels as code that IREE's linker takes: entry points of pointers and offsets, and the program beside them.

Takes kernels in the LLVM dialect whose parameters are pointers to a row or a block, leaves LLVM IR of an object that needs
no library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.entry import seal_kernel
from mlirstack.passes.iree.program import packed_program
from mlirstack.passes.llvm_ir import TranslateToLlvmIr
from mlirstack.pipeline.step import PythonPass

ENTRY_PREFIX = "mlirstack_"  # of the symbols that IREE's dispatches call
_CARRIED = "; mlirstack.program "


@dataclass(frozen=True)
class ExportLinked(PythonPass):
    """Before: LLVM dialect, kernels ``@k(%x: !llvm.ptr, …)``.  After: ``@mlirstack_k(%x: !llvm.ptr, %at: i64, …)`` for each,
    where ``%at`` is the first byte of it; loops become no calls of a library."""

    name = "mlirstack-iree-export-linked"

    def apply(self, module: Any) -> None:
        internal = ir.Attribute.parse("#llvm.linkage<internal>")
        alone = ir.ArrayAttr.get([ir.StringAttr.get("no-builtins")])
        for kernel in [op.operation for op in module.body.operations if KERNEL_ATTRIBUTE in op.operation.attributes]:
            entry = _entry(functions.name_of(kernel), len(kernel.regions[0].blocks[0].arguments))
            module.body.append(entry)
            for op in (entry, *walk(entry)):
                op.location = kernel.location
            kernel.attributes["linkage"] = internal
            seal_kernel(kernel)
            kernel.attributes["passthrough"] = entry.attributes["passthrough"] = alone


def _entry(name: str, count: int) -> Any:
    """``llvm.func @mlirstack_<name>``, parsed beside a declaration of what it calls."""
    taken = ", ".join(f"%p{i}: !llvm.ptr, %at{i}: i64" for i in range(count))
    places = [f"%place{i} = llvm.getelementptr %p{i}[%at{i}] : (!llvm.ptr, i64) -> !llvm.ptr, i8" for i in range(count)]
    types = ", ".join(["!llvm.ptr"] * count)
    given = ", ".join(f"%place{i}" for i in range(count))
    lines = [*places, f"llvm.call @{name}({given}) : ({types}) -> ()", "llvm.return"]
    body = "\n".join(f"  {line}" for line in lines)
    parsed = ir.Module.parse(f"llvm.func @{name}({types})\nllvm.func @{ENTRY_PREFIX}{name}({taken}) {{\n{body}\n}}")
    return parsed.body.operations[1].operation.detach_from_parent()


@dataclass(frozen=True)
class TranslateLinked(TranslateToLlvmIr):
    """Before: nothing but the LLVM dialect, and a program that rides along.  After: LLVM IR text, the program in a
    comment."""

    name = "mlirstack-iree-translate-linked"

    def translate(self, payload: Any) -> str:
        with payload.context:
            return f"{_CARRIED}{packed_program(payload)}\n{super().translate(payload)}"


def carried_program(llvm_ir: str) -> str:
    """The program that :class:`TranslateLinked` has written; empty where the text holds none."""
    first = llvm_ir.partition("\n")[0]
    return first.removeprefix(_CARRIED) if first.startswith(_CARRIED) else ""
