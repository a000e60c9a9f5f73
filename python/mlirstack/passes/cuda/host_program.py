"""A straight line of host code read op by op: buffers, places in them, numbers, and the steps that touch device memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from mlirstack.bindings import ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.passes import functions
from mlirstack.passes.cuda.plan import Argument, Buffer, Check, Copy, Expr, KernelInfo, Launch, Step, TensorMap, is_static
from mlirstack.passes.cuda.plan_launches import read_launch, tensor_map_of
from mlirstack.passes.cuda.plan_numbers import constant_number, expression
from mlirstack.passes.cuda.plan_views import View, collapsed, contiguous, expanded, fold, subview
from mlirstack.passes.cuda.work import BYTES, FLOPS
from mlirstack.schedules.cuda.kernel import CLUSTER, OVERLAPS, SCHEDULE, TENSOR_MAP

UNUSED = -1  # first and last step of a buffer that no step has touched
_DYNAMIC = -(1 << 63)  # MLIR: this number is an operand


class HostProgram:
    """What has been read so far of one function.

    ``tables``: constant of each memref.global, by symbol; ``kernels``: the kernel functions by name.
    """

    def __init__(self, tables: Mapping[str, int], kernels: Mapping[str, Any]) -> None:
        self.tables, self.kernels = tables, kernels
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.numbers: dict[Any, Expr | float] = {}  # scalar → its value on the host
        self.views: dict[Any, View] = {}  # memref → where it is
        self.launched: dict[str, KernelInfo] = {}
        self._pointers: dict[Any, tuple[View, TensorMap | None]] = {}
        self._flags: dict[Any, tuple[int, Expr]] = {}  # i1 in device memory → buffer, byte
        self._written: dict[tuple[int, int], Expr | float] = {}  # what the host stored, by buffer and byte

    def read(self, op: Any) -> None:
        """Read one op; :class:`StageError` where a plan cannot say it."""
        reader = _READERS.get(op.name)
        if reader is not None:
            reader(self, op)
            return
        operands = [self.numbers.get(operand) for operand in op.operands]
        if None in operands:
            refuse(op, "a size or a branch that depends on data in device memory")
        value = expression(op, operands) if len(op.results) == 1 else None
        if value is None:
            refuse(op, "this op")
        self.numbers[op.results[0]] = value

    def integer(self, value: Any, op: Any) -> Expr:
        """The number that ``value``, an operand of ``op``, is on the host."""
        number = self._number(value, op)
        if isinstance(number, float):
            refuse(op, "a floating-point number where an integer is wanted")
        return number

    def _number(self, value: Any, op: Any) -> Expr | float:
        if value not in self.numbers:
            refuse(op, "a number that has to be read from device memory")
        return self.numbers[value]

    def _integers(self, values: Sequence[Any], static: Sequence[int], op: Any) -> list[Expr]:
        """``static``, with the numbers of ``values`` where it says so."""
        dynamic = iter(values)
        return [self.integer(next(dynamic), op) if number == _DYNAMIC else number for number in static]

    # ------------------------------------------------------------------------------------------------------------- memory

    def new_buffer(self, kind: Any, memref: Any, sizes: Sequence[Expr], index: int = 0) -> View:
        """A new buffer for a memref type of ``sizes``."""
        element = memref.element_type
        view = contiguous(len(self.buffers), sizes, element_bytes(element))
        shape = tuple(sizes) if kind == "result" else ()
        self.buffers.append(Buffer(kind, view.bytes, str(element), shape, index, first=UNUSED, last=UNUSED))
        return view

    def copy(self, source: View, target: View, op: Any) -> None:
        """A step that copies between two views without gaps."""
        if not (source.is_contiguous and target.is_contiguous):
            refuse(op, "a copy of memory with gaps, which should be a kernel")
        if target.bytes != 0:
            copy = Copy(source.buffer, target.buffer, target.bytes, source.offset, target.offset)
            self._step(copy, {source.buffer, target.buffer}, op)

    def _step(self, step: Step, touched: set[int], op: Any) -> None:
        number = len(self.steps)
        self.steps.append(step)
        for buffer in touched:
            if any(buffer == written for written, _ in self._written):
                refuse(op, "numbers that the host computes and the device reads from memory")
            first = self.buffers[buffer].first
            self.buffers[buffer] = replace(self.buffers[buffer], first=number if first == UNUSED else first, last=number)

    def _allocation(self, op: Any) -> None:
        kind = ir.MemRefType(op.results[0].type)
        static = [_DYNAMIC if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
        self.views[op.results[0]] = self.new_buffer("temporary", kind, self._integers(op.operands, static, op))

    def _table(self, op: Any) -> None:
        kind = ir.MemRefType(op.results[0].type)
        index = self.tables[str(ir.FlatSymbolRefAttr(op.attributes["name"]).value)]
        self.views[op.results[0]] = self.new_buffer("constant", kind, list(kind.shape), index)

    def _store(self, op: Any) -> None:
        """The host writes shapes only, which it reads again itself."""
        value, target, *indices = op.operands
        view = self.views[target]
        place = view.at([self.integer(index, op) for index in indices])
        if not isinstance(place, int) or self.buffers[view.buffer].first != UNUSED:
            refuse(op, "a number that the host writes to device memory")
        self._written[view.buffer, place] = self._number(value, op)

    def _load(self, op: Any) -> None:
        """A number that the host stored, or a flag for a check; what else is loaded is refused where it is used."""
        source, *indices = op.operands
        view = self.views[source]
        place = view.at([self.integer(index, op) for index in indices])
        known = self._written.get((view.buffer, place)) if isinstance(place, int) else None
        if known is not None:
            self.numbers[op.results[0]] = known
        elif str(op.results[0].type) == "i1":
            self._flags[op.results[0]] = (view.buffer, place)

    # -------------------------------------------------------------------------------------------------------------- views

    def _cast(self, op: Any) -> None:
        """Another type for the same memory, or its address for a kernel."""
        source, result = op.operands[0], op.results[0]
        if source not in self.views:
            refuse(op, "a conversion of something that is no buffer")
        if isinstance(result.type, ir.MemRefType):
            self.views[result] = self.views[source]
        else:
            described = op.attributes.get(TENSOR_MAP)
            view = self.views[source]
            self._pointers[result] = (view, None if described is None else tensor_map_of(described, view))

    def _subview(self, op: Any) -> None:
        values = iter(list(op.operands)[1:])
        numbers = []
        for name in ("static_offsets", "static_sizes", "static_strides"):
            static = list(ir.DenseI64ArrayAttr(op.attributes[name]))
            numbers.append(self._integers([next(values) for n in static if n == _DYNAMIC], static, op))
        offsets, sizes, steps = numbers
        kept = _kept_axes(sizes, ir.MemRefType(op.results[0].type))
        self.views[op.results[0]] = subview(self.views[op.operands[0]], offsets, sizes, steps, kept)

    def _expansion(self, op: Any) -> None:
        static = list(ir.DenseI64ArrayAttr(op.attributes["static_output_shape"]))
        sizes = self._integers(list(op.operands)[1:], static, op)
        self.views[op.results[0]] = expanded(self.views[op.operands[0]], _groups(op), sizes)

    def _collapse(self, op: Any) -> None:
        self.views[op.results[0]] = collapsed(self.views[op.operands[0]], _groups(op))

    def _reshape(self, op: Any) -> None:
        source, shape = (self.views[value] for value in op.operands)
        rank = ir.MemRefType(op.results[0].type).rank
        sizes = [self._written.get((shape.buffer, axis * shape.element_bytes)) for axis in range(rank)]
        known = [size for size in sizes if size is not None and not isinstance(size, float)]
        if len(known) < rank or not source.is_contiguous:
            refuse(op, "a shape that has to be read from device memory")
        self.views[op.results[0]] = contiguous(source.buffer, known, source.element_bytes, source.offset)

    def _dim(self, op: Any) -> None:
        axis = self.integer(op.operands[1], op)
        if not isinstance(axis, int):
            refuse(op, "an axis that is not a constant")
        self.numbers[op.results[0]] = self.views[op.operands[0]].sizes[axis]

    def _metadata(self, op: Any) -> None:
        view = self.views[op.operands[0]]
        base, offset, *rest = op.results
        self.views[base] = View(view.buffer, 0, (), (), view.element_bytes)
        self.numbers[offset] = fold("floordiv", view.offset, view.element_bytes)
        self.numbers.update(zip(rest, (*view.sizes, *view.strides), strict=True))

    # -------------------------------------------------------------------------------------------------------------- steps

    def _constant(self, op: Any) -> None:
        number = constant_number(op)
        if number is None:
            refuse(op, "a constant that is no number")
        self.numbers[op.results[0]] = number

    def _assert(self, op: Any) -> None:
        message = str(ir.StringAttr(op.attributes["msg"]).value)
        if op.operands[0] in self._flags:
            buffer, offset = self._flags[op.operands[0]]
            self._step(Check(message, buffer, offset), {buffer}, op)
            return
        condition = self.integer(op.operands[0], op)
        check = Check(message, condition=condition)
        always_holds = is_static(condition) and bool(condition)
        if not always_holds and check not in self.steps:
            self._step(check, set(), op)

    def _copy(self, op: Any) -> None:
        source, target = op.operands
        self.copy(self.views[source], self.views[target], op)

    def _launch(self, op: Any) -> None:
        launch = read_launch(op)
        kernel = self.kernels[launch.kernel]
        grid, threads = ([self.integer(value, op) for value in sizes] for sizes in (launch.grid, launch.block))
        shared = self.integer(launch.shared, op) if launch.shared is not None else 0
        block = [number for number in threads if isinstance(number, int)]
        if len(block) != 3 or not isinstance(shared, int):
            refuse(op, "a block whose size is not a constant")
        if 0 in grid:
            return
        arguments = tuple(self._argument(value, op) for value in launch.arguments)
        cluster = functions.integer(kernel.attributes[CLUSTER]) if CLUSTER in kernel.attributes else 1
        overlaps = OVERLAPS in kernel.attributes and (not self.steps or isinstance(self.steps[-1], Launch))
        step = Launch(
            launch.kernel,
            (grid[0], grid[1], grid[2]),
            (block[0], block[1], block[2]),
            arguments,
            shared,
            cluster,
            overlaps,
        )
        self._step(step, {argument.buffer for argument in arguments if argument.buffer >= 0}, op)
        self.launched[launch.kernel] = _row(launch.kernel, kernel, math.prod(block), shared)

    def _argument(self, value: Any, op: Any) -> Argument:
        if value in self.views:
            return Argument("pointer", self.views[value].buffer, self.views[value].offset)
        if value in self._pointers:
            view, tensor_map = self._pointers[value]
            return Argument("tensor_map" if tensor_map else "pointer", view.buffer, view.offset, tensor_map)
        kind: Any = "i64" if isinstance(value.type, ir.IndexType) else str(value.type)
        return Argument(kind, value=self._number(value, op))


_READERS: dict[str, Callable[[HostProgram, Any], None]] = {
    "arith.constant": HostProgram._constant,
    "memref.get_global": HostProgram._table,
    "memref.alloc": HostProgram._allocation,
    "memref.dealloc": lambda program, op: None,
    "memref.cast": HostProgram._cast,
    "builtin.unrealized_conversion_cast": HostProgram._cast,
    "memref.subview": HostProgram._subview,
    "memref.expand_shape": HostProgram._expansion,
    "memref.collapse_shape": HostProgram._collapse,
    "memref.reshape": HostProgram._reshape,
    "memref.dim": HostProgram._dim,
    "memref.extract_strided_metadata": HostProgram._metadata,
    "memref.store": HostProgram._store,
    "memref.load": HostProgram._load,
    "memref.copy": HostProgram._copy,
    "cf.assert": HostProgram._assert,
    "gpu.launch_func": HostProgram._launch,
}


def element_bytes(element: Any) -> int:
    """Bytes of an element in device memory: a boolean takes one, an index eight."""
    return 8 if isinstance(element, ir.IndexType) else max(1, element.width // 8)


def refuse(op: Any, what: str) -> NoReturn:
    """:class:`StageError` at ``op``: a plan has no words for ``what``."""
    raise StageError(
        f"a launch plan has no words for {what}",
        stage="gpu", op=op.name, location=source_line(op.location), hint="target 'cpu' runs such programs",
    )  # fmt: skip


def _kept_axes(sizes: Sequence[Expr], kind: Any) -> list[int]:
    """The axes of a slice that its type keeps; those that it drops have size 1."""
    kept: list[int] = []
    to_drop = len(sizes) - kind.rank
    for axis, size in enumerate(sizes):
        position = len(kept)
        is_unit = position < kind.rank and not kind.is_dynamic_dim(position) and kind.get_dim_size(position) == 1
        if to_drop and size == 1 and not is_unit:
            to_drop -= 1
        else:
            kept.append(axis)
    # Of several axes of size 1 it does not matter which are kept.
    return kept[: kind.rank]


def _groups(op: Any) -> list[list[int]]:
    return [[functions.integer(axis) for axis in group] for group in ir.ArrayAttr(op.attributes["reassociation"])]


def _row(name: str, kernel: Any, threads: int, shared: int) -> KernelInfo:
    moved, flops = (
        functions.integer(kernel.attributes[key]) if key in kernel.attributes else None for key in (BYTES, FLOPS)
    )
    schedule = str(ir.StringAttr(kernel.attributes[SCHEDULE]).value) if SCHEDULE in kernel.attributes else ""
    return KernelInfo(name, schedule, threads, shared, bytes=moved, flops=flops)
