"""Kernels for processors and their program put together again.

Takes the object that the kernels are compiled to, leaves what IREE's compiler is given: linalg on tensors, a
``flow.dispatch`` in place of each call, and an executable whose dispatches call the object's functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir, new_context
from mlirstack.errors import StageError
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.text import parse_module
from mlirstack.passes import abi, functions
from mlirstack.passes.iree.archive import KERNELS, OBJECT_CARRIER
from mlirstack.passes.iree.arguments import reflect
from mlirstack.passes.iree.block_dispatch import BlockKernel
from mlirstack.passes.iree.blocks import GRID
from mlirstack.passes.iree.embed import EXECUTABLE
from mlirstack.passes.iree.executables import KernelObject, declare_executable, describe_objects, dispatch, locate_kernels
from mlirstack.passes.iree.linked_code import ENTRY_PREFIX, carried_program
from mlirstack.passes.iree.linked_dispatch import LinkedKernel
from mlirstack.passes.iree.program import unpacked_program
from mlirstack.passes.iree.row_dispatch import RowKernel
from mlirstack.passes.iree.rows import ROWS
from mlirstack.passes.native_code import Disassembly, ObjectCode
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.pipeline.step import Translation

CPU_TARGET = '#hal.executable.target<"llvm-cpu", "embedded-elf-x86_64">'


@dataclass(frozen=True)
class EmbedLinked(Translation):
    """Before: an object with kernels over a row or a block; its LLVM IR says which program calls them.  After: the program
    as a module for IREE, the object inside."""

    name = "mlirstack-iree-embed-linked"

    def translate(self, payload: Disassembly | ObjectCode) -> Any:
        code = payload.code if isinstance(payload, Disassembly) else payload
        if not isinstance(code, ObjectCode) or not carried_program(code.llvm_ir):
            raise StageError(
                "this object comes without the program that calls it", stage="program", hint="resume from stage 'llvm'"
            )
        context = new_context()
        module = parse_module(unpacked_program(carried_program(code.llvm_ir)), context)
        with context, ir.Location.unknown():
            main = function(module, abi.MAIN)
            declared = [
                f
                for f in functions_of(module)
                if functions.is_declaration(f) and (ROWS in f.attributes or GRID in f.attributes)
            ]
            kernels = {functions.name_of(f): _kernel(f) for f in declared}
            _check_parameters(list(kernels.values()), code.llvm_ir)
            for call in [op for op in walk(main) if op.name == "func.call"]:
                callee = str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
                if callee in kernels:
                    _replace(call, kernels[callee])
            for kernel in declared:
                kernel.operation.erase()
            objects = [_object(code.data, list(kernels.values()))] if kernels else []
            for found in objects:
                declare_executable(module, found)
            locate_kernels(module)
            reflect(main, KERNELS, describe_objects(objects))
        RestoreLocations().apply(module)
        return module


def _kernel(declaration: Any) -> LinkedKernel:
    return BlockKernel.of(declaration) if GRID in declaration.attributes else RowKernel.of(declaration)


def _object(data: bytes, kernels: Sequence[LinkedKernel]) -> KernelObject:
    dispatches = "\n".join(kernel.function() for kernel in kernels)
    exports = tuple(kernel.export() for kernel in kernels)
    return KernelObject(EXECUTABLE, CPU_TARGET, OBJECT_CARRIER, data, exports, dispatches=dispatches)


def _check_parameters(kernels: Sequence[LinkedKernel], llvm_ir: str) -> None:
    """:class:`StageError` where the code takes another number of buffers than is passed."""
    defined = dict(re.findall(rf"^define void @{ENTRY_PREFIX}(\w+)\(([^)]*)\)", llvm_ir, re.MULTILINE))
    for kernel in kernels:
        taken = [parameter.split()[0] for parameter in defined.get(kernel.name, "").split(", ") if parameter]
        if taken != ["ptr", "i64"] * len(kernel.types):
            raise StageError(
                f"kernel '{kernel.name}' takes {taken}, IREE passes {len(kernel.types)} buffers", stage="program"
            )


def _replace(call: Any, kernel: LinkedKernel) -> None:
    """A dispatch in place of a call."""
    operands = list(call.operands)
    with ir.InsertionPoint(call), call.location:
        launch = kernel.launch(operands)
        # New memory for results that nothing has been written to.  IREE returns what is written in place first.
        in_place = max((n + 1 for n, number in enumerate(kernel.writes) if not _is_empty(operands[number])), default=0)
        results = dispatch(
            EXECUTABLE,
            kernel.export(),
            launch.grid,
            launch.numbers,
            [operands[number] for number in kernel.reads],
            [operands[number] for number in kernel.writes[:in_place]],
            [result.type for result in call.results],
            launch.result_sizes,
        )
    for old, new in zip(call.results, results, strict=True):
        old.replace_all_uses_with(new)
    call.erase()


def _is_empty(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and producer.name == "tensor.empty"
