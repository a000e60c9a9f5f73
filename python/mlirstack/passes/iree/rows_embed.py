"""Kernels over one row and their program put together again, for processors.

Takes the object that the kernels are compiled to, leaves what IREE's compiler is given: linalg on tensors, a
``flow.dispatch`` in place of each call, and an executable whose dispatches call the object's functions row by row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir, new_context
from mlirstack.errors import StageError
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.text import parse_module
from mlirstack.passes import abi, functions
from mlirstack.passes.iree.archive import KERNELS, OBJECT_CARRIER
from mlirstack.passes.iree.arguments import reflect
from mlirstack.passes.iree.embed import EXECUTABLE
from mlirstack.passes.iree.executables import (
    KernelExport,
    KernelObject,
    declare_executable,
    describe_objects,
    dispatch,
    locate_kernels,
)
from mlirstack.passes.iree.program import unpacked_program
from mlirstack.passes.iree.row_code import ENTRY_PREFIX, carried_program
from mlirstack.passes.iree.rows import ROWS
from mlirstack.passes.iree.split import DESTINATIONS, OVERWRITTEN
from mlirstack.passes.native_code import Disassembly, ObjectCode
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.pipeline.step import Translation

CPU_TARGET = '#hal.executable.target<"llvm-cpu", "embedded-elf-x86_64">'
POINTS = 1 << 14  # elements that a workgroup computes at least, if there are as many


@dataclass(frozen=True)
class EmbedRows(Translation):
    """Before: an object with kernels over one row; its LLVM IR says which program calls them.  After: the program as a
    module for IREE, the object inside."""

    name = "mlirstack-iree-embed-rows"

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
            declared = [f for f in functions_of(module) if functions.is_declaration(f) and ROWS in f.attributes]
            kernels = {functions.name_of(f): RowKernel.of(f) for f in declared}
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


@dataclass(frozen=True)
class RowKernel:
    """A kernel as its program sees it: the argument numbers of what it reads, then of what it writes; of each tensor
    argument its type and the loops over rows of its first dimensions; the sizes of these loops, None where dynamic."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    types: dict[int, Any]
    loops: dict[int, tuple[int, ...]]
    sizes: tuple[int | None, ...]

    @staticmethod
    def of(declaration: Any) -> RowKernel:
        """Read off a declaration; :class:`StageError` where results are not written to arguments."""
        name, inputs = functions.name_of(declaration), functions.type_of(declaration).inputs
        tensors = {i: ir.RankedTensorType(kind) for i, kind in enumerate(inputs) if isinstance(kind, ir.RankedTensorType)}
        loops = {i: tuple(ir.DenseI64ArrayAttr(given)) for i, given in enumerate(ir.ArrayAttr(declaration.attributes[ROWS]))}
        writes = tuple(ir.DenseI64ArrayAttr(declaration.attributes[DESTINATIONS]))
        if set(writes) != set(ir.DenseI64ArrayAttr(declaration.attributes[OVERWRITTEN])) or len(set(writes)) != len(writes):
            raise StageError(f"kernel '{name}' does not write its results to arguments of its own", stage="program")
        sizes: dict[int, int | None] = {}
        for number, kind in tensors.items():
            for axis, loop in enumerate(loops[number]):
                sizes[loop] = sizes.get(loop) or (None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis))
        reads = tuple(i for i in tensors if i not in writes)
        return RowKernel(name, reads, writes, tensors, loops, tuple(sizes[loop] for loop in sorted(sizes)))

    def export(self) -> KernelExport:
        """How IREE passes buffers to it: what it reads, what it writes, the sizes that are dynamic."""
        return KernelExport(self.name, len(self.reads), len(self.writes), sum(size is None for size in self.sizes))

    def row_points(self, number: int) -> int:
        """Elements of one row of an argument."""
        kind = self.types[number]
        return math.prod(kind.get_dim_size(axis) for axis in range(len(self.loops[number]), kind.rank))

    def rows_at_once(self) -> int:
        """Rows that a workgroup computes."""
        return max(1, POINTS // max(self.row_points(number) for number in self.types))


def _check_parameters(kernels: Sequence[RowKernel], llvm_ir: str) -> None:
    """:class:`StageError` where the code takes another number of buffers than is passed."""
    defined = dict(re.findall(rf"^define void @{ENTRY_PREFIX}(\w+)\(([^)]*)\)", llvm_ir, re.MULTILINE))
    for kernel in kernels:
        taken = [parameter.split()[0] for parameter in defined.get(kernel.name, "").split(", ") if parameter]
        if taken != ["ptr", "i64"] * len(kernel.types):
            raise StageError(
                f"kernel '{kernel.name}' takes {taken}, IREE passes {len(kernel.types)} buffers", stage="program"
            )


# ------------------------------------------------------------------------------------------------------------- dispatches


def _replace(call: Any, kernel: RowKernel) -> None:
    """A dispatch in place of a call."""
    arith, index, operands = dialect("arith"), ir.IndexType.get(), list(call.operands)
    with ir.InsertionPoint(call), call.location:
        sizes = [_size(kernel, loop, operands) for loop in range(len(kernel.sizes))]
        rows = sizes[0]
        for size in sizes[1:]:
            rows = arith.MulIOp(rows, size).result
        one = arith.ConstantOp(index, 1).result
        groups = arith.CeilDivUIOp(rows, arith.ConstantOp(index, kernel.rows_at_once()).result).result
        words = [
            arith.IndexCastOp(ir.IntegerType.get_signless(32), size).result
            for size, known in zip(sizes, kernel.sizes, strict=True)
            if known is None
        ]
        # New memory for results that nothing has been written to.  IREE returns what is written in place first.
        in_place = max((n + 1 for n, number in enumerate(kernel.writes) if not _is_empty(operands[number])), default=0)
        results = dispatch(
            EXECUTABLE,
            kernel.export(),
            [groups, one, one],
            words,
            [operands[number] for number in kernel.reads],
            [operands[number] for number in kernel.writes[:in_place]],
            [result.type for result in call.results],
            [size for number in kernel.writes for size in _dynamic_sizes(kernel, number, sizes)],
        )
    for old, new in zip(call.results, results, strict=True):
        old.replace_all_uses_with(new)
    call.erase()


def _size(kernel: RowKernel, loop: int, operands: Sequence[Any]) -> Any:
    """The value of a loop's size."""
    arith, index = dialect("arith"), ir.IndexType.get()
    known = kernel.sizes[loop]
    if known is not None:
        return arith.ConstantOp(index, known).result
    number = next(number for number, loops in kernel.loops.items() if loop in loops)
    axis = arith.ConstantOp(index, kernel.loops[number].index(loop)).result
    return dialect("tensor").DimOp(operands[number], axis).result


def _dynamic_sizes(kernel: RowKernel, number: int, sizes: Sequence[Any]) -> list[Any]:
    return [sizes[loop] for axis, loop in enumerate(kernel.loops[number]) if kernel.types[number].is_dynamic_dim(axis)]


def _is_empty(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and producer.name == "tensor.empty"


# ---------------------------------------------------------------------------------------------- what IREE's code does for us


def _object(data: bytes, kernels: Sequence[RowKernel]) -> KernelObject:
    dispatches = "\n".join(_dispatch_function(kernel) for kernel in kernels)
    exports = tuple(kernel.export() for kernel in kernels)
    return KernelObject(EXECUTABLE, CPU_TARGET, OBJECT_CARRIER, data, exports, dispatches=dispatches)


def _dispatch_function(kernel: RowKernel) -> str:
    """What a workgroup does, compiled by IREE: a call for each of its rows, with the place of the row in every buffer."""
    layout, buffers = kernel.export().layout(), [*kernel.reads, *kernel.writes]
    taken = ", ".join(f"memref<{kernel.types[number].element_type}>, index" for number in sorted(buffers))
    lines = ['%zero = "arith.constant"() {value = 0 : index} : () -> index', *_loop_sizes(kernel, layout)]
    for place, number in enumerate(buffers):
        element = kernel.types[number].element_type
        row = f"memref<{max(1, kernel.row_points(number))}x{element}>"
        subspan = (
            f"layout = {layout}, binding = {place} : index, alignment = 64 : index, operandSegmentSizes = array<i32: 1, 0>"
        )
        lines += [
            f'%rows{place} = "hal.interface.binding.subspan"(%zero) {{{subspan}}} : (index) -> {row}',
            f'%buffer{place}, %begin{place}, %length{place}, %stride{place} = "iree_codegen.extract_strided_metadata"'
            f"(%rows{place}) : ({row}) -> (memref<{element}>, index, index, index)",
        ]
    lines += [
        f"%step = arith.constant {kernel.rows_at_once()} : index",
        '%group = "hal.interface.workgroup.id"() {dimension = 0 : index} : () -> index',
        "%first = arith.muli %group, %step : index",
        "%last = arith.addi %first, %step : index",
        "%end = arith.minui %last, %count : index",
        "%one = arith.constant 1 : index",
        "scf.for %row = %first to %end step %one {",
        *_row_numbers(kernel),
    ]
    for place, number in enumerate(buffers):
        width = kernel.types[number].element_type.width // 8
        lines += [
            *_row_place(kernel, number, place),
            f"%width{place} = arith.constant {width} : index",
            f"%element{place} = arith.addi %begin{place}, %place{place} : index",
            f"%byte{place} = arith.muli %element{place}, %width{place} : index",
        ]
    given = [f"%buffer{place}, %byte{place}" for place in map(buffers.index, sorted(buffers))]
    symbol = f"{ENTRY_PREFIX}{kernel.name}"
    lines += [f"func.call @{symbol}({', '.join(given)}) : ({taken}) -> ()", "}", "return"]
    body = "\n".join(f"  {line}" for line in lines)
    linked = "attributes {hal.import.static, llvm.bareptr = true}"
    return f"func.func private @{symbol}({taken}) {linked}\nfunc.func @{kernel.name}() {{\n{body}\n}}"


def _loop_sizes(kernel: RowKernel, layout: str) -> list[str]:
    """``%size<n>`` of each loop over rows, and their product ``%count``."""
    lines, ordinal = [], 0
    for loop, size in enumerate(kernel.sizes):
        if size is None:
            load = f'"hal.interface.constant.load"() {{layout = {layout}, ordinal = {ordinal} : index}} : () -> i32'
            lines += [f"%word{loop} = {load}", f"%size{loop} = arith.index_castui %word{loop} : i32 to index"]
            ordinal += 1
        else:
            lines.append(f"%size{loop} = arith.constant {size} : index")
    lines.append("%count0 = arith.constant 1 : index")
    lines += [f"%count{n + 1} = arith.muli %count{n}, %size{n} : index" for n in range(len(kernel.sizes))]
    return [line.replace(f"%count{len(kernel.sizes)}", "%count") for line in lines]


def _is_consecutive(kernel: RowKernel, number: int) -> bool:
    """Do the rows of an argument lie one after the other, one for each iteration?"""
    return kernel.loops[number] == tuple(range(len(kernel.sizes)))


def _row_numbers(kernel: RowKernel) -> list[str]:
    """``%index<n>`` of each loop for row ``%row``, where an argument needs them."""
    if all(_is_consecutive(kernel, number) or not kernel.loops[number] for number in kernel.types):
        return []
    lines, rest = [], "%row"
    for loop in reversed(range(len(kernel.sizes))):
        lines += [f"%index{loop} = arith.remui {rest}, %size{loop} : index"]
        lines += [f"%rest{loop} = arith.divui {rest}, %size{loop} : index"]
        rest = f"%rest{loop}"
    return lines


def _row_place(kernel: RowKernel, number: int, place: int) -> list[str]:
    """``%place<n>``, the first element of the row in an argument."""
    lines = [f"%points{place} = arith.constant {kernel.row_points(number)} : index"]
    rows = "%zero"
    if _is_consecutive(kernel, number):
        rows = "%row"
    else:
        for loop in kernel.loops[number]:
            scaled, moved = f"%scaled{place}_{loop}", f"%moved{place}_{loop}"
            lines += [
                f"{scaled} = arith.muli {rows}, %size{loop} : index",
                f"{moved} = arith.addi {scaled}, %index{loop} : index",
            ]
            rows = moved
    return [*lines, f"%place{place} = arith.muli {rows}, %points{place} : index"]
