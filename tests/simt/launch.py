"""Running one kernel: blocks laid out in memory, arguments turned into values, the body executed for all threads.

Blocks that do not talk to each other are executed side by side, as many at a time as make good use of numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mlirstack.bindings import ir
from mlirstack.passes.cuda.constant_bytes import constant_of

# The meanings register themselves on import.
from . import (  # noqa: F401
    affine,
    barriers,
    bulk,
    control,
    copies,
    device_maps,
    floats,
    integers,
    masked,
    matrices,
    memrefs,
    nvgpu,
    pointers,
    ptx_memory,
    ptx_numbers,
    threads,
    values,
    vectors,
    wgmma,
)
from .build import Body, Builder
from .code import Code, needs_strands
from .faults import Fault
from .frames import SHARED_START, Frame, Unit, Values
from .kinds import SHARED, kind_of
from .memory import Memory
from .races import GlobalWrites, Races
from .strands import Scheduler

CLUSTER = "mlirstack.cluster"  # kernel attribute: blocks of a cluster
MOST_SHARED = 232448  # bytes of shared memory of a block on sm_90
THREADS_AT_ONCE = 1 << 15  # threads of blocks that are executed side by side


@dataclass(frozen=True)
class Options:
    """``iterations``: after how many rounds a while loop counts as endless.  ``races``: look for unordered accesses.

    ``poison_shared``: shared memory may be read before it is written, and gives NaN; for kernels that fetch ahead without
    need.  Otherwise such a read is a fault.
    """

    iterations: int = 100_000
    poison_shared: bool = False
    races: bool = True


@dataclass
class Resources:
    """What ops of a kernel refer to by name: shared memory and globals, laid out when the kernel is built."""

    name: str
    symbols: dict[str, Any]
    memory: Memory
    options: Options
    shared_static: int = 0  # bytes of shared memory in use so far
    dynamic_start: int = 0  # shared address of the dynamic shared memory
    addresses: dict[str, int] = field(default_factory=dict)
    dynamic: list[str] = field(default_factory=list)  # globals of size zero: all name the dynamic shared memory

    def symbol(self, name: str) -> int:
        """The address of a global: in shared memory, relative to the block's window; elsewhere absolute."""
        if name not in self.addresses:
            self.addresses[name] = self._place(name, self.symbols[name])
        return self.addresses[name]

    def _place(self, name: str, operation: Any) -> int:
        attributes = operation.attributes
        is_memref = operation.operation.name == "memref.global"
        mlir_type = attributes["type" if is_memref else "global_type"].value
        kind = kind_of(mlir_type)
        if is_memref:
            size, space = int(np.prod(kind.layout[0], dtype=int)) * kind.element.bytes, kind.space
        else:
            size = _array_bytes(mlir_type)
            space = ir.IntegerAttr(attributes["addr_space"]).value if "addr_space" in attributes else 0
        if space == SHARED:
            return self.reserve_shared(size, name)
        address = self.memory.allocate(size, f"global {name}")
        key = "initial_value" if is_memref else "value"
        if key in attributes and not isinstance(attributes[key], ir.UnitAttr):
            self.memory.write_array(address, np.frombuffer(constant_of(attributes[key]).bytes(), np.uint8))
        return address

    def reserve_shared(self, size: int, name: str, alignment: int = 1024) -> int:
        """Place ``size`` bytes of static shared memory; size 0 is the dynamic shared memory, placed last."""
        if size == 0:
            self.dynamic.append(name)
            return -1
        start = -(-self.shared_static // alignment) * alignment
        self.shared_static = start + size
        return SHARED_START + start


def _array_bytes(mlir_type: Any) -> int:
    if type(mlir_type).__name__ == "ArrayType":
        return int(mlir_type.num_elements) * _array_bytes(mlir_type.element_type)
    return kind_of(mlir_type).bytes


@dataclass
class Kernel:
    """A kernel ready to run: as a ``body``, or as ``code`` where threads wait for more than all of their block."""

    function: Any
    builder: Builder
    arguments: list[int]
    body: Body | None
    code: Code | None
    resources: Resources
    workgroup: list[tuple[int, Any]]  # shared buffers that are arguments of the body: value number, memref value
    private: list[tuple[int, Any]]

    @cached_property
    def communicates(self) -> bool:
        """May its blocks talk to each other?"""
        return _communicates(self.function)


def build_kernel(function: Any, symbols: dict[str, Any], memory: Memory, options: Options) -> Kernel:
    """Turn a gpu.func into steps."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    resources = Resources(name, symbols, memory, options)
    builder = Builder(resources)
    block = function.regions[0].blocks[0]
    inputs = len(ir.FunctionType(function.attributes["function_type"].value).inputs)
    workgroup, private = [], []
    for argument in list(block.arguments)[inputs:]:
        kind, number = kind_of(argument.type), builder.number(argument)
        size = int(np.prod(kind.layout[0], dtype=int)) * kind.element.bytes
        if kind.space == SHARED:
            workgroup.append((number, (resources.reserve_shared(size, "workgroup"), kind)))
        else:
            private.append((number, (size, kind)))
    _place_shared(resources)
    arguments = [builder.number(argument) for argument in list(block.arguments)[:inputs]]
    if not needs_strands(block) and CLUSTER not in function.attributes:
        body = builder.body(block)
        body.arguments = arguments
        return Kernel(function, builder, arguments, body, None, resources, workgroup, private)
    code = Code(builder)
    code.block(block)
    return Kernel(function, builder, arguments, None, code, resources, workgroup, private)


def _place_shared(resources: Resources) -> None:
    """Static shared memory first, so that the address of the dynamic one is known when ops are built."""
    for name, operation in resources.symbols.items():
        if operation.operation.name in ("memref.global", "llvm.mlir.global"):
            resources.symbol(name)
    end = -(-resources.shared_static // 1024) * 1024
    resources.dynamic_start = SHARED_START + end
    for name in resources.dynamic:
        resources.addresses[name] = resources.dynamic_start


def run_blocks(
    kernel: Kernel,
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
) -> None:
    """Execute all blocks of the grid."""
    memory, resources = kernel.resources.memory, kernel.resources
    static = -(-resources.shared_static // 1024) * 1024
    window = static + shared_bytes
    cluster = ir.IntegerAttr(kernel.function.attributes[CLUSTER]).value if CLUSTER in kernel.function.attributes else 1
    _check_limits(grid, block, window, cluster)
    known = kernel.function.attributes.get("known_block_size")
    if known is not None and tuple(known) != block:
        raise Fault(f"blocks of {block} threads; the kernel is compiled for {tuple(known)}")
    count = int(np.prod(grid))
    writes = None if kernel.communicates else GlobalWrites(memory.top)
    at_once = cluster if kernel.code is not None else max(1, THREADS_AT_ONCE // int(np.prod(block)))
    for first in range(0, count, at_once):
        blocks = np.arange(first, min(count, first + at_once), dtype=np.int64)
        mark = memory.top
        pitch = -(-window // 1024) * 1024 + 1024
        base = memory.allocate(pitch * len(blocks), f"shared memory of {resources.name}", 1024)
        states = memory.state[base : base + pitch * len(blocks)].reshape(len(blocks), pitch)
        states[:, window:] = 0
        if resources.options.poison_shared:
            memory.lenient = (base, base + pitch * len(blocks))
        unit = Unit(memory, grid, block, blocks, base, pitch, dynamic_bytes=shared_bytes, cluster=cluster)
        if resources.options.races:
            unit.races = Races(unit, pitch * len(blocks), writes)
        _run_unit(kernel, unit, arguments)
        memory.release(mark + 1)


def _check_limits(grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, cluster: int) -> None:
    """What the driver refuses on every GPU."""
    if 0 in grid or grid[0] >= 1 << 31 or max(grid[1:]) > 65535:
        raise Fault(f"a grid of {grid} blocks")
    if int(np.prod(block)) > 1024:
        raise Fault(f"blocks of {int(np.prod(block))} threads")
    if shared > MOST_SHARED:
        raise Fault(f"{shared} bytes of shared memory; no block has more than {MOST_SHARED}")
    if grid[0] % cluster:
        raise Fault(f"a grid of {grid[0]} blocks along x is no multiple of the cluster of {cluster}")


def _communicates(operation: Any) -> bool:
    """May blocks of a kernel talk to each other?  They do so by atomics."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                op = inner.operation
                text = op.attributes["asm_string"].value if op.name == "llvm.inline_asm" else op.name
                if "atom" in text or text.startswith("red.") or _communicates(op):
                    return True
    return False


def _run_unit(kernel: Kernel, unit: Unit, arguments: Sequence[Any]) -> None:
    """Execute the blocks of a unit: all of their threads in step, or strands that begin as one per block."""
    given = Values(kernel.builder.ranks)
    whole = Frame(unit, given, np.arange(unit.count, dtype=np.int64))
    _bind_local_buffers(kernel, whole)
    given.update(zip(kernel.arguments, arguments, strict=True))
    if kernel.body is not None:
        kernel.body.run(whole, arguments)
        return
    assert kernel.code is not None
    size = unit.block_threads
    frames = [whole.child(np.arange(first, first + size)) for first in range(0, unit.count, size)]
    Scheduler(kernel.code, unit, lambda: bulk.deliver(unit)).run(frames)
    bulk.finish(unit)


def _bind_local_buffers(kernel: Kernel, frame: Frame) -> None:
    for number, (address, kind) in kernel.workgroup:
        frame.env[number] = memrefs.identity(address, kind)
    for number, (size, kind) in kernel.private:
        pitch = -(-size // 16) * 16 + 16
        start = frame.unit.memory.allocate(pitch * frame.unit.count, "private memory")
        frame.env[number] = (start + frame.threads * pitch, *memrefs.identity(0, kind)[1:])
