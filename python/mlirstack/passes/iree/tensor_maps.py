"""Tensor maps made by the device: IREE passes addresses, and no 128-byte objects that a driver has encoded.

Takes kernels whose parameters are tensor maps (``mlirstack.tensor_map``), leaves kernels that take the addresses of the
memory instead, and memory of their function for the maps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import StageError
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.cuda.nvvm import parameter_attributes
from mlirstack.passes.cuda.plan_launches import LaunchOperands, read_launch
from mlirstack.passes.iree.launches import kernel_of, relaunch, set_parameters
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.device import DEFAULT_ARCH, device_of
from mlirstack.schedules.cuda.instructions import tma
from mlirstack.schedules.cuda.instructions.tensor_map import MAP_BYTES, WARP, MadeMap, acquire_maps, write_maps
from mlirstack.schedules.cuda.kernel import TENSOR_MAP, Kernel, TensorMapLayout
from mlirstack.schedules.cuda.values import Int

_RESERVED = 1024  # bytes of shared memory that the system takes of each block


@dataclass(frozen=True)
class MakeTensorMaps(PythonPass):
    """Before: kernels take tensor maps.  After: they take the addresses that the maps are over, and memory that their
    function allocates; before anything else, the last warps of every block make its maps there, while the first thread
    prepares barriers.  A barrier of all threads that a kernel has anyhow, before it copies, says that the maps are made.

    A launch before, of one warp that makes the maps for all blocks, was slower on an H200: 30.6 us of kernels in place of
    21.3 us for two products of 512 by 2048 by 2048.
    """

    name = "mlirstack-iree-tensor-maps"

    def apply(self, module: Any) -> None:
        for function in [f for f in functions_of(module) if KERNEL_ATTRIBUTE in f.attributes]:
            for launch in [op for op in walk(function) if op.name == "gpu.launch_func"]:
                given = parameter_attributes(kernel_of(launch))
                maps = {i: TensorMapLayout.of(a[TENSOR_MAP]) for i, a in enumerate(given) if TENSOR_MAP in a}
                if maps:
                    _make(function, launch, maps)


def _make(function: Any, launch: Any, maps: Mapping[int, TensorMapLayout]) -> None:
    """Make the tensor maps that are the parameters ``maps`` of a launch."""
    if any(layout.lower or layout.upper for layout in maps.values()):
        raise StageError("a device cannot make tensor maps over the pixels of images", stage="mapped", op=launch.name)
    operands, func = read_launch(launch), kernel_of(launch)
    staging = _staging(operands, len(maps))
    blocks = math.prod(_constant(size) for size in operands.grid)
    with ir.InsertionPoint(launch), launch.location:
        counted = {number: _varying_size(operands.arguments[number], layout) for number, layout in maps.items()}
        given = [size for size in counted.values() if size is not None]
        for number in maps:
            del operands.arguments[number].owner.attributes[TENSOR_MAP]
        bytes_type = ir.MemRefType.get([blocks * len(maps) * MAP_BYTES], ir.IntegerType.get_signless(8))
        memory = dialect("memref").AllocOp(bytes_type, [], []).memref
        address = dialect("builtin").UnrealizedConversionCastOp([ir.Type.parse("!llvm.ptr")], [memory]).results[0]

    kernel = Kernel.existing(function, func)
    sizes = {
        n: None if size is None else Int(kernel.block.add_argument(size.type, kernel.location))
        for n, size in counted.items()
    }
    bases = [kernel.block.arguments[number] for number in maps]
    uses = [list(base.uses) for base in bases]
    own = kernel.block.add_argument(address.type, kernel.location)
    begin = kernel.block.operations[0].operation
    with ir.InsertionPoint(begin), kernel.location:
        own = kernel.offset(own, _block_number(kernel, operands.grid) * (len(maps) * MAP_BYTES))
        places = [kernel.offset(own, i * MAP_BYTES) for i in range(len(maps))]
        made = [
            MadeMap(layout, base, place, sizes[n])
            for (n, layout), base, place in zip(maps.items(), bases, places, strict=True)
        ]
        _write(kernel, made, _constant(operands.block[0]) // WARP, staging)
        if not _meets_before_copies(begin, uses):
            kernel.barrier()
    for place, of_base in zip(places, uses, strict=True):
        _read(kernel, place, of_base)
    del func.attributes["arg_attrs"]
    set_parameters(func)
    shared = None if staging is None else staging + len(maps) * MAP_BYTES
    relaunch(launch, [*operands.arguments, *given, address], shared)


def _staging(operands: LaunchOperands, maps: int) -> int | None:
    """Where in shared memory there is room of its own for maps on their way: behind what the kernel has, if as many blocks
    fit on a multiprocessor as without."""
    device, threads = device_of(DEFAULT_ARCH), _constant(operands.block[0])  # all that have tensor maps are alike

    def blocks(size: int) -> int:
        return min(device.shared_per_multiprocessor // (size + _RESERVED), device.threads_per_multiprocessor // threads)

    size = 0 if operands.shared is None else _constant(operands.shared)
    begin = -(-size // MAP_BYTES) * MAP_BYTES
    end = begin + maps * MAP_BYTES
    return begin if end <= device.shared_per_block and blocks(end) == blocks(size) else None


def _varying_size(argument: Any, layout: TensorMapLayout) -> Any:
    """The size (i32) of the dimension of a map that is known at run time only, for the host; None where all are known."""
    if not layout.varying:
        return None
    arith, (_, dimension, factor) = dialect("arith"), layout.varying
    position, count = (arith.ConstantOp(ir.IndexType.get(), number).result for number in (dimension, factor))
    size = dialect("memref").DimOp(argument.owner.operands[0], position).result
    return arith.IndexCastOp(ir.IntegerType.get_signless(32), arith.MulIOp(size, count).result).result


def _write(kernel: Kernel, maps: Sequence[MadeMap], warps: int, staging: int | None) -> None:
    """Let each of the last warps write one map, the first of ``warps`` what is left."""
    warp = kernel.thread() // WARP
    for number in range(min(warps, len(maps))):
        last = len(maps) if number == warps - 1 else number + 1

        def write(first: int = number, last: int = last) -> None:
            write_maps(kernel, maps[first:last], (staging or 0) + first * MAP_BYTES)
            if staging is None:  # the copy engine will write where the maps were
                tma.fence_shared()

        kernel.when(warp.equals(warps - 1 - number), write)


def _meets_before_copies(begin: Any, uses: Sequence[Sequence[Any]]) -> bool:
    """Do all threads of the block meet, from the op ``begin`` on, before the first copy by a map?"""
    copies = {_at_top(use.owner) for of_base in uses for use in of_base if use.owner.name != "nvvm.prefetch"}
    following = [op.operation for op in begin.block.operations]
    following = following[following.index(begin) :]
    return any(op.name == "gpu.barrier" for op in itertools.takewhile(lambda op: op not in copies, following))


def _at_top(op: Any) -> Any:
    """The op of the kernel's own block that ``op`` is inside of, or is."""
    while op.operation.parent.name != "gpu.func":
        op = op.operation.parent
    return op.operation


def _read(kernel: Kernel, place: Any, uses: Sequence[Any]) -> None:
    """Let the copies that are the ``uses`` of a map read the one at ``place``, acquired by the threads that copy, once and
    before any loop.  To fetch a map before it is acquired would be of no use."""
    acquired = []
    for use in uses:
        copy = use.owner
        copy.operands[use.operand_number] = place
        if copy.name == "nvvm.prefetch":
            copy.operation.erase()
            continue
        before = _outermost_loop(copy)
        if before not in acquired:
            acquired.append(before)
            with ir.InsertionPoint(before), copy.location:
                acquire_maps(kernel, [place])


def _outermost_loop(op: Any) -> Any:
    """The outermost loop around ``op``, or ``op`` itself."""
    found = op.operation
    while op.name != "gpu.func":
        op = op.operation.parent
        if op.name in ("scf.for", "scf.while"):
            found = op.operation
    return found


def _block_number(kernel: Kernel, grid: tuple[Any, Any, Any]) -> Int:
    """Number of the block in its grid."""
    number, rows = kernel.block_index("x"), [_constant(size) for size in grid]
    if rows[1] > 1:
        number = number + kernel.block_index("y") * rows[0]
    return number + kernel.block_index("z") * (rows[0] * rows[1]) if rows[2] > 1 else number


def _constant(size: Any) -> int:
    producer = functions.defining_op(size)
    if producer is None or producer.name != "arith.constant":
        raise StageError("tensor maps of blocks whose number is not known", stage="mapped", op="gpu.launch_func")
    return functions.integer(producer.attributes["value"])
