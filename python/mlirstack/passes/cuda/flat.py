"""Kernels over a flat grid: one thread per point of an index space, and the body of a linalg op at one point.

The grid is one-dimensional; a thread's number is taken apart into indices, the last loop fastest, so that neighbouring
threads touch neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.ops import walk
from mlirstack.passes.cuda.device_memory import rewrite_memory
from mlirstack.passes.cuda.host_values import DeviceBuffer, HostValues, affine_number
from mlirstack.passes.cuda.work import set_work, work_of
from mlirstack.passes.regions import external_values
from mlirstack.schedules.cuda.emitter import GENERAL
from mlirstack.schedules.cuda.extent import host, host_size
from mlirstack.schedules.cuda.graph import Node, Operand
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number

THREADS = 256
_NARROW = 2**31 - 2**20  # up to here, index arithmetic takes 32 bits: there is room for the threads past the last element

HostSize = Any  # an int, or a host value of type index


class FlatKernel:
    """A kernel with a thread for each point of ``sizes``; nothing is made where the space is known to be empty."""

    def __init__(self, function: Any, sizes: Sequence[HostSize], *, wide: bool) -> None:
        self.sizes = list(sizes)
        self.is_empty = 0 in [size for size in sizes if isinstance(size, int)]
        if self.is_empty:
            return
        self.kernel = Kernel(function, threads=THREADS, schedule=GENERAL, suffix=suffix(function))
        self.values = HostValues(self.kernel, wide=wide)
        self._inner = [self.values.dimension(size) for size in self.sizes]

    def write(self, element: Callable[[Sequence[Number]], None]) -> None:
        """Write the kernel, with ``element`` at the indices of each thread, and launch it."""
        kernel, values = self.kernel, self.values
        with kernel.body():
            block, thread = kernel.block_index(), kernel.thread()
            if values.wide:
                block, thread = block.wide(), thread.wide()
            number = block * THREADS + thread
            total: Number = 1
            for size in self._inner:
                total = total * size
            kernel.when(number < total, lambda: element(taken_apart(number, self._inner)))
        rewrite_memory(kernel, values)
        kernel.launch((grid_blocks(kernel.function, self.sizes, THREADS),))

    def describe(self, node: Node) -> None:
        """Note bytes and FLOPs of the op for the kernel table."""
        set_work(self.kernel.kernel, *work_of([node]))

    def describe_bytes(self, moved: int | None) -> None:
        """Note the bytes of what computes nothing."""
        set_work(self.kernel.kernel, moved, 0)


def taken_apart(number: Int, sizes: Sequence[Number]) -> list[Number]:
    """The indices of point ``number``, the last one fastest."""
    indices: list[Number] = []
    rest = number
    for position in range(len(sizes) - 1, -1, -1):
        size = sizes[position]
        if isinstance(size, int) and size == 1:
            indices.append(0)
            continue
        is_outermost = all(isinstance(s, int) and s == 1 for s in sizes[:position])
        indices.append(rest if is_outermost else rest % size)
        rest = rest if is_outermost else rest // size
    return indices[::-1]


def grid_blocks(function: Any, sizes: Sequence[HostSize], points: int) -> Any:
    """Number of blocks of ``points`` points each over a space of ``sizes``: an int, or host arithmetic."""
    known = 1
    unknown = []
    for size in sizes:
        if isinstance(size, int):
            known *= size
        else:
            unknown.append(size)
    if not unknown:
        return -(-known // points)
    arith, index = dialect("arith"), ir.IndexType.get()
    with host(function), function.location:
        total = arith.ConstantOp(index, known).result
        for size in unknown:
            total = arith.MulIOp(total, size).result
        return arith.CeilDivUIOp(total, arith.ConstantOp(index, points).result).result


def suffix(function: Any) -> str:
    """What to add to the function's name for its next kernel."""
    launched = sum(op.name == "gpu.launch_func" for op in walk(function))
    return f"_{launched}" if launched else ""


def loop_sizes(function: Any, node: Node) -> list[HostSize]:
    """Size of each loop of a structured op."""
    return [_loop_size(function, node, loop) for loop in range(len(node.iterators))]


def _loop_size(function: Any, node: Node, loop: int) -> HostSize:
    if node.sizes[loop] is not None:
        return node.sizes[loop]
    for operand in (*node.inputs, *node.outputs):
        if operand.tensor is not None and loop in operand.dims:
            return host_size(function, operand.value, operand.dims.index(loop))
    raise StageError(
        f"loop {loop} of this op has no size of its own in any operand",
        stage="mapped", op=node.name, location=source_line(node.op.location),
    )  # fmt: skip


def is_wide(node: Node, sizes: Sequence[HostSize]) -> bool:
    """Does the index arithmetic of an op take 64 bits?"""
    tensors = [operand.tensor for operand in (*node.inputs, *node.outputs) if operand.tensor is not None]
    return is_large(sizes) or any(not t.is_static or t.count > _NARROW for t in tensors)


def is_large(sizes: Sequence[HostSize]) -> bool:
    """May an index space of ``sizes`` have too many points for 32 bits?"""
    total = 1
    for size in sizes:
        if not isinstance(size, int):
            return True
        total *= size
    return total > _NARROW


# ------------------------------------------------------------------------------------------------------------------- bodies


class NodeBody:
    """The body of a structured op inside a kernel: what it reads, computes and writes at one point of its loops.

    ``initial``: per output a host scalar that it starts from, or None where it starts from what memory holds.
    """

    def __init__(self, values: HostValues, node: Node, initial: Sequence[Any]) -> None:
        self.kernel, self.values, self.node = values.kernel, values, node
        self._inputs = [self._operand(o) for o in node.inputs]
        self._outputs = [values.buffer(o.value) for o in node.outputs]
        self._initial = [None if scalar is None else values.scalar(scalar) for scalar in initial]
        self._needs_indices = any(op.name == "linalg.index" for op in walk(node.op))
        for value in external_values(node.op):
            if isinstance(value.type, ir.MemRefType):
                values.buffer(value)
            else:
                values.scalar(value)

    def _operand(self, operand: Operand) -> Any:
        return self.values.scalar(operand.value) if operand.tensor is None else self.values.buffer(operand.value)

    def initial(self, indices: Sequence[Number]) -> list[Any]:
        """What each output starts from."""
        return [
            scalar if scalar is not None else self._old_value(position, indices)
            for position, scalar in enumerate(self._initial)
        ]

    def _old_value(self, position: int, indices: Sequence[Number]) -> Any:
        argument = self.node.body.arguments[len(self.node.inputs) + position]
        if any(True for _ in argument.uses):
            return load(self.kernel, self._outputs[position], self._place(self.node.outputs[position], indices))
        # Never read: any value will do.
        return dialect("ub").PoisonOp(self._outputs[position].element).result

    def inputs(self, indices: Sequence[Number]) -> list[Any]:
        """The scalars that the body reads at ``indices``."""
        return [
            load(self.kernel, given, self._place(operand, indices)) if isinstance(given, DeviceBuffer) else given
            for operand, given in zip(self.node.inputs, self._inputs, strict=True)
        ]

    def compute(self, indices: Sequence[Number], outputs: Sequence[Any]) -> list[Any]:
        """What the body yields at ``indices``, for the current values of its outputs."""
        known = [self.values.constant(i).index() for i in indices] if self._needs_indices else []
        return self.node.inline([*self.inputs(indices), *outputs], known, self.values.scalars)

    def store(self, indices: Sequence[Number], outputs: Sequence[Any]) -> None:
        """Write the outputs."""
        for operand, buffer, value in zip(self.node.outputs, self._outputs, outputs, strict=True):
            store(self.kernel, buffer, self._place(operand, indices), value)

    def _place(self, operand: Operand, indices: Sequence[Number]) -> list[Number]:
        return [affine_number(expression, indices) for expression in operand.map.results]


def load(kernel: Kernel, buffer: DeviceBuffer, indices: Sequence[Number]) -> Any:
    """The element at ``indices``."""
    return kernel.load(buffer.element, kernel.offset(buffer.pointer, buffer.position(indices), buffer.element))


def store(kernel: Kernel, buffer: DeviceBuffer, indices: Sequence[Number], value: Any) -> None:
    """Store an element at ``indices``."""
    kernel.store(value, kernel.offset(buffer.pointer, buffer.position(indices), buffer.element))
