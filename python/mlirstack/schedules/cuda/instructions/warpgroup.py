"""Warpgroups (sm_90a): their matrix products (wgmma) and descriptors of factors, registers, named barriers.

Every function writes one instruction, as an op of the NVVM dialect where there is one.  PTX ISA, "Asynchronous warpgroup
level matrix instructions".  What to know about each, and what was measured on an H200, stands at the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Bool, Int, Number

WARPGROUP = 128  # threads that issue a wgmma together
SWIZZLE = 128  # bytes of a row of a tile in shared memory; its 16-byte chunks are permuted by the row's number modulo 8
WGMMA_ROWS = 64  # rows of A, and of the result, in one wgmma
WGMMA_BYTES = 32  # bytes of K that one wgmma multiplies
_EIGHT_ROWS = 8 * SWIZZLE  # bytes of the unit that the swizzle repeats in


def set_registers(count: int, *, more: bool) -> None:
    """Give registers back, or take some, for all warps of the warpgroup (a multiple of 8, 24 to 256).

    ptxas ignores it in kernels without a register limit of their own, which launch bounds give.
    """
    nvvm = dialect("nvvm")
    action = nvvm.SetMaxRegisterAction.increase if more else nvvm.SetMaxRegisterAction.decrease
    nvvm.SetMaxRegisterOp(count, action)


def named_barrier(kernel: Kernel, number: Number, threads: int) -> None:
    """Barrier ``number`` (1 to 15; 0 is the block's) for ``threads`` of the block's threads, whole warps."""
    raw = number if isinstance(number, Int) else kernel.integer(number)
    dialect("nvvm").BarrierOp(barrierId=raw.value, numberOfThreads=kernel.integer(threads).value)


def arrive_at_named_barrier(kernel: Kernel, number: Number, threads: int) -> None:
    """Count as arrived at :func:`named_barrier`, without waiting."""
    raw = number if isinstance(number, Int) else kernel.integer(number)
    dialect("nvvm").BarrierArriveOp(kernel.integer(threads).value, barrierId=raw.value)


@dataclass(frozen=True)
class SharedOperand:
    """How a factor's tile lies in shared memory, 128-byte swizzled, and how wgmma walks along it.

    K-major: ``rows`` of 128 bytes of K.  Otherwise (16-bit elements only): blocks of 64 rows, each ``tile_k`` times 128
    bytes.
    """

    operands: Operands
    k_major: bool

    @property
    def tile_k(self) -> int:
        """Elements of K in a tile: 128 bytes."""
        return SWIZZLE * 8 // self.operands.bits

    @property
    def block_rows(self) -> int:
        """Rows that one box of the copy engine may have at most, where they are the contiguous dimension."""
        return SWIZZLE * 8 // self.operands.bits

    @property
    def k_step(self) -> int:
        """Bytes from one wgmma's K to the next one's."""
        return WGMMA_BYTES if self.k_major else self.operands.k * SWIZZLE

    def row_offset(self, row: int) -> int:
        """Bytes from the tile's begin to a row that is a multiple of 64."""
        return row * SWIZZLE

    def descriptor(self, kernel: Kernel, address: Int) -> Int:
        """The 64-bit descriptor of a tile at a shared address (i32, a multiple of 1024)."""
        return matrix_descriptor(address, 16 if self.k_major else self.tile_k * SWIZZLE)

    def advanced(self, descriptor: Int, steps: int) -> Int:
        """The descriptor ``steps`` wgmmas further along K."""
        return descriptor + steps * (self.k_step >> 4)


def matrix_descriptor(address: Int, leading: int) -> Int:
    """The 64-bit descriptor of a 128-byte swizzled tile at a shared address (i32, a multiple of 1024).

    ``leading``: bytes from one block of 64 rows to the next where rows are contiguous; ignored for K-major tiles.
    """
    swizzle_128 = 1 << 62
    constant = swizzle_128 | ((_EIGHT_ROWS >> 4) << 32) | ((leading >> 4) << 16)
    return ((address & 0x3FFFF) >> 4).wide() | constant


def zero_accumulators(kernel: Kernel, count: int, operands: Operands) -> Any:
    """A struct of ``count`` zeros, f32 or i32."""
    integer = operands.is_integer
    zero = kernel.integer(0) if integer else kernel.real(0.0)
    return accumulators_of([zero.value] * count)


def undefined_accumulators(count: int) -> Any:
    """A struct of ``count`` f32 of no value, for a :func:`wgmma` that does not accumulate."""
    return dialect("llvm").UndefOp(ir.Type.parse(f"!llvm.struct<({', '.join(['f32'] * count)})>")).result


def accumulators_of(values: Sequence[Any]) -> Any:
    """MLIR scalars of one type as a struct, the form in which wgmma takes them."""
    llvm = dialect("llvm")
    kind = ir.Type.parse(f"!llvm.struct<({', '.join([str(values[0].type)] * len(values))})>")
    struct = llvm.UndefOp(kind).result
    for position, value in enumerate(values):
        struct = llvm.InsertValueOp(struct, value, ir.DenseI64ArrayAttr.get([position])).result
    return struct


def accumulator_values(kernel: Kernel, struct: Any, count: int, operands: Operands) -> list[Any]:
    """The scalars of such a struct."""
    llvm, kind = dialect("llvm"), kernel.i32 if operands.is_integer else kernel.f32
    return [llvm.ExtractValueOp(kind, struct, ir.DenseI64ArrayAttr.get([position])).res for position in range(count)]


def wgmma(
    accumulators: Any, a: Int, b: Int, columns: int, operands: Operands, layout: tuple[bool, bool], *, fresh: bool = False
) -> Any:
    """``accumulators += A · B`` for 64 rows and ``columns`` (a multiple of 8 up to 256); asynchronous.

    ``a``, ``b``: descriptors; ``layout``: which of them are K-major.  ``fresh``: old values are not read (see
    :func:`undefined_accumulators`).  Thread t of a warpgroup holds, for column group j of
    8, rows ``16 * (t // 32) + t % 32 // 4`` (values 4j, 4j + 1) and 8 further down (4j + 2, 4j + 3), columns
    ``8 * j + 2 * (t % 4)`` and the next.
    """
    nvvm = dialect("nvvm")
    shape = ir.Attribute.parse(f"#nvvm.shape<m = {WGMMA_ROWS}, n = {columns}, k = {operands.k}>")
    factor = getattr(nvvm.WGMMATypes, operands.name)
    result = nvvm.WGMMATypes.s32 if operands.is_integer else nvvm.WGMMATypes.f32
    one, scale = nvvm.WGMMAScaleIn.one, nvvm.WGMMAScaleOut.zero if fresh else nvvm.WGMMAScaleOut.one
    major_a, major_b = layout
    return nvvm.WgmmaMmaAsyncOp(
        accumulators.type, accumulators, a.value, b.value, shape, factor, factor, result, scale, one, one,
        nvvm.MMALayout.row if major_a else nvvm.MMALayout.col, nvvm.MMALayout.col if major_b else nvvm.MMALayout.row,
    ).result  # fmt: skip


def wgmma_registers(
    kernel: Kernel, accumulators: Any, a: Sequence[Any], b: Int, columns: int, operands: Operands, *, k_major: bool
) -> Any:
    """:func:`wgmma` with A in registers: four i32 of two 16-bit elements or of one TF32 each, laid out as ``mma.sync`` has
    its A.

    A warp's 16 rows are those that it has in the accumulators, so results of one product can be the A of the next.
    """
    count = columns // 2
    order = f", {0 if k_major else 1}" if operands.bits == 16 else ""  # others are K-major
    sums = ", ".join(f"${i}" for i in range(count))
    left = ", ".join(f"${count + i}" for i in range(4))
    text = (
        f"wgmma.mma_async.sync.aligned.m{WGMMA_ROWS}n{columns}k{operands.k}.f32.{operands.name}.{operands.name} "
        f"{{{sums}}}, {{{left}}}, ${count + 4}, 1, 1, 1{order};"
    )
    constraints = ",".join(["=f"] * count + ["r"] * 4 + ["l"] + [str(i) for i in range(count)])
    values = accumulator_values(kernel, accumulators, count, operands)
    return kernel.assembly(text, constraints, [*a, b, *values], accumulators.type, has_side_effects=True)


def wgmma_fence() -> None:
    """Before the first wgmma after registers or accumulators were written otherwise."""
    dialect("nvvm").WgmmaFenceAlignedOp()


def wgmma_commit() -> None:
    """End a group of wgmmas."""
    dialect("nvvm").WgmmaGroupSyncAlignedOp()


def wgmma_wait(pending: int) -> None:
    """Until at most ``pending`` groups are unfinished."""
    dialect("nvvm").WgmmaWaitGroupSyncOp(pending)


def wgmma_finish() -> None:
    """Until all groups are finished, before their results are read.

    The fence keeps ptxas from moving what reads accumulators above the wait, single conversions to 16 bits for example.  It
    would then run all wgmmas of the loop one after the other (warning C7514; matrix products took 1.6 times as long).
    """
    wgmma_wait(0)
    llvm = dialect("llvm")
    llvm.FenceOp(llvm.AtomicOrdering.acq_rel, syncscope="block")


def pin(kernel: Kernel, struct: Any, count: int, operands: Operands) -> Any:
    """Accumulators that no instruction above this point can define or read below it.

    LLVM sees wgmma's registers as plain values, and would move the initialisation of a second accumulator between the
    wgmmas of the first.
    """
    letter = "r" if operands.is_integer else "f"
    constraints = ",".join([f"={letter}"] * count + [str(position) for position in range(count)])
    values = accumulator_values(kernel, struct, count, operands)
    return kernel.assembly("", constraints, values, struct.type, has_side_effects=True)


def is_first_thread(thread: Int) -> Bool:
    """Is it the thread that speaks for its group?"""
    return thread.equals(0)
