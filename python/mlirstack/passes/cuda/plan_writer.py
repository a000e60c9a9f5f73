"""The launch plan of a module: its entry points, straight lines over memrefs, with the constants and kernels they use.

Allocations become buffers, views places in them, launches and copies steps; arithmetic on sizes becomes expressions that the
host evaluates for each new set of shapes.  What the host would have to read back from the device is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes import abi, functions
from mlirstack.passes.cuda.constant_bytes import constant_of
from mlirstack.passes.cuda.host_program import UNUSED, HostProgram
from mlirstack.passes.cuda.memory import assign_offsets
from mlirstack.passes.cuda.plan import Buffer, Constant, Expr, Input, KernelInfo, LaunchPlan, PlannedFunction, ResultRef
from mlirstack.passes.iree.program import packed_program


def plan_of(module: Any) -> LaunchPlan:
    """The plan of a module of stage ``gpu`` or ``nvvm``; registers and architecture are filled in once there is a cubin.

    Raises :class:`StageError`, with op and source line, for what the host cannot compute without the device's data.
    """
    constants: list[Constant] = []
    tables: dict[str, int] = {}
    for op in module.body.operations:
        if op.operation.name == "memref.global":
            tables[functions.name_of(op)] = len(constants)
            constants.append(constant_of(op.attributes["initial_value"]))
    kernels = dict(_kernels(module))
    planned: list[PlannedFunction] = []
    launched: dict[str, KernelInfo] = {}
    for entry in functions.entry_points(module):
        program = HostProgram(tables, kernels)
        planned.append(_function(entry, program))
        launched |= program.launched
    return LaunchPlan("", tuple(planned), tuple(launched.values()), tuple(constants), packed_program(module))


def _kernels(module: Any) -> Iterator[tuple[str, Any]]:
    for op in walk(module):
        if op.name in ("gpu.func", "llvm.func") and op.parent.name == "gpu.module":
            yield functions.name_of(op), op


def _function(entry: Any, program: HostProgram) -> PlannedFunction:
    known = abi.FunctionAbi.parse(ir.StringAttr(entry.attributes[abi.ENTRY_ABI]).value)
    inputs = tuple(Input(v.element, v.shape, v.source or "argument", v.index or 0) for v in known.inputs)
    outs = _read_arguments(entry, program, len(inputs))
    *body, leave = [op.operation for op in entry.regions[0].blocks[0].operations]
    for op in body:
        program.read(op)
    results = [*outs, *(_returned(value, leave, program, inputs) for value in leave.operands)]
    buffers, arena, unshared = _laid_out(program.buffers)
    order = tuple(results[position] for position in known.order)
    return PlannedFunction(functions.name_of(entry), inputs, tuple(buffers), tuple(program.steps), order, arena, unshared)


def _read_arguments(entry: Any, program: HostProgram, inputs: int) -> list[ResultRef]:
    """Inputs come first, then the results that the caller allocates, which are returned."""
    outs = []
    for position, argument in enumerate(entry.regions[0].blocks[0].arguments):
        if not isinstance(argument.type, ir.MemRefType):
            program.numbers[argument] = ["scalar", position]
            continue
        kind = ir.MemRefType(argument.type)
        shape = [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
        if position < inputs:
            program.views[argument] = program.new_buffer("input", kind, _sizes(shape, position), position)
        else:
            program.views[argument] = program.new_buffer("result", kind, _sizes(shape, position))
            outs.append(ResultRef(program.views[argument].buffer))
    return outs


def _sizes(shape: Any, position: int) -> list[Expr]:
    """The sizes of input ``position``."""
    return [["dim", position, axis] if size is None else size for axis, size in enumerate(shape)]


def _returned(value: Any, leave: Any, program: HostProgram, inputs: tuple[Input, ...]) -> ResultRef:
    if not isinstance(value.type, ir.MemRefType):
        return ResultRef(value=program.integer(value, leave))
    view, kind = program.views[value], ir.MemRefType(value.type)
    buffer = program.buffers[view.buffer]
    if view.offset == 0 and view.is_contiguous and buffer.bytes == view.bytes:
        if buffer.kind == "temporary":
            program.buffers[view.buffer] = replace(buffer, kind="result", shape=view.sizes)
            return ResultRef(view.buffer)
        shape = tuple(_sizes(inputs[buffer.index].shape, buffer.index)) if buffer.kind == "input" else buffer.shape
        if buffer.kind in ("input", "result") and shape == view.sizes:
            return ResultRef(view.buffer)
    fresh = program.new_buffer("result", kind, view.sizes)
    program.copy(view, fresh, leave)
    return ResultRef(fresh.buffer)


def _laid_out(buffers: list[Buffer]) -> tuple[list[Buffer], int | None, int | None]:
    """The buffers, temporaries with offsets, and the bytes of the arena with and without sharing; None for dynamic sizes."""
    laid_out = [_settled(buffer) for buffer in buffers]
    temporaries = [i for i, buffer in enumerate(laid_out) if buffer.kind == "temporary"]
    sizes = [size for size in (laid_out[i].bytes for i in temporaries) if isinstance(size, int)]
    if len(sizes) < len(temporaries):
        return laid_out, None, None
    offsets, arena = assign_offsets(sizes, [(laid_out[i].first, laid_out[i].last) for i in temporaries])
    for position, offset in zip(temporaries, offsets, strict=True):
        laid_out[position] = replace(laid_out[position], offset=offset)
    return laid_out, arena, sum(sizes)


def _settled(buffer: Buffer) -> Buffer:
    """A temporary that no step touches takes no memory; results and inputs have no lifetime of their own."""
    if buffer.first != UNUSED:
        return buffer
    return replace(buffer, first=0, last=0, bytes=0 if buffer.kind == "temporary" else buffer.bytes)
