"""Reductions across threads: over the lanes of a warp by shuffles, over the warps of a block through shared memory.

What is reduced is a list of MLIR scalars (a sum; a maximum and its position), combined by a function of two such lists.
The order is fixed, so that results repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.instructions import hopper, vectors
from mlirstack.schedules.cuda.values import Int

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.kernel import Kernel

WARP = 32
_LARGEST_CLUSTER = 8
Combine = Callable[[list[Any], list[Any]], list[Any]]  # (earlier, later) → both


def shuffle_xor(kernel: Kernel, value: Any, distance: int) -> Any:
    """The MLIR scalar that lane ``lane ^ distance`` holds; integers and floats of up to 64 bits."""
    arith, llvm, kind = dialect("arith"), dialect("llvm"), value.type
    if isinstance(kind, ir.IndexType):
        wide = arith.IndexCastOp(kernel.i64, value).result
        return arith.IndexCastOp(kind, shuffle_xor(kernel, wide, distance)).result
    if kind.width == 64:
        pair = ir.VectorType.get([2], kernel.i32)
        halves = dialect("vector").ToElementsOp(llvm.BitcastOp(pair, value).res).results
        moved = [shuffle_xor(kernel, half, distance) for half in halves]
        return llvm.BitcastOp(kind, dialect("vector").FromElementsOp(pair, moved).result).res
    if kind.width < 32:
        bits = ir.IntegerType.get_signless(kind.width)
        word = value if kind == bits else arith.BitcastOp(bits, value).result
        moved = arith.TruncIOp(bits, shuffle_xor(kernel, arith.ExtUIOp(kernel.i32, word).result, distance)).result
        return moved if kind == bits else arith.BitcastOp(kind, moved).result
    gpu = dialect("gpu")
    lanes = [kernel.integer(number).value for number in (distance, WARP)]
    return gpu.ShuffleOp(value, *lanes, gpu.ShuffleMode.XOR).shuffleResult


def across_lanes(kernel: Kernel, values: Sequence[Any], combine: Combine, lanes: int = WARP) -> list[Any]:
    """``values`` combined over each group of ``lanes`` neighbouring lanes (a power of two up to 32); every lane gets it.

    ``combine`` must be commutative, or a lane's answer depends on the lane; all lanes of the warp take part.
    """
    values, distance = list(values), lanes // 2
    while distance:
        values = combine(values, [shuffle_xor(kernel, value, distance) for value in values])
        distance //= 2
    return values


class BlockReducer:
    """Reductions over all threads of a block; every thread gets the result.

    ``scratch``: shared memory (``!llvm.ptr<3>``) of :meth:`scratch_bytes`, used by nothing else.  Two halves of it take
    turns, so that one reduction needs one barrier; where reductions stand in a loop, an even number of them does.
    """

    def __init__(self, kernel: Kernel, scratch: Any, values: int) -> None:
        self._kernel, self._scratch, self._values, self._turn = kernel, scratch, values, 0

    @staticmethod
    def scratch_bytes(threads: int, values: int) -> int:
        """Bytes of shared memory for reductions of up to ``values`` scalars in a block of ``threads``."""
        return 2 * 8 * (threads // WARP) * values

    def __call__(self, values: Sequence[Any], combine: Combine) -> list[Any]:
        """``values`` of all threads, combined by a commutative ``combine``; all threads of the block call it."""
        kernel, warps = self._kernel, self._kernel.threads // WARP
        values = across_lanes(kernel, values, combine)
        if warps == 1:
            return values
        assert warps & (warps - 1) == 0, "the warps of a block are a power of two"
        thread = kernel.thread()
        lane, half = thread & (WARP - 1), self._turn * 8 * warps * self._values
        self._turn ^= 1

        def place(position: int, warp: Int) -> Any:
            return kernel.offset(self._scratch, warp * 8 + (half + position * 8 * warps))

        def write() -> None:
            for position, value in enumerate(values):
                vectors.store(kernel, [value], place(position, thread >> 5))

        kernel.when(lane.equals(0), write)
        kernel.barrier()
        gathered = [
            vectors.load(kernel, value.type, place(position, lane & (warps - 1)))[0] for position, value in enumerate(values)
        ]
        return across_lanes(kernel, gathered, combine, warps)


class ClusterReducer:
    """Reductions over all threads of a cluster; every thread gets the result.

    The blocks' own results go to the shared memory of all blocks, which every thread then reads in the order of the blocks.
    As in :class:`BlockReducer`, two halves of that memory take turns.
    """

    def __init__(self, kernel: Kernel, scratch: Any, values: int, cluster: int) -> None:
        self._kernel, self._cluster, self._values, self._turn = kernel, cluster, values, 0
        self._block = BlockReducer(kernel, scratch, values)
        self._gathered = kernel.offset(scratch, BlockReducer.scratch_bytes(kernel.threads, values))
        self._is_first = True

    @staticmethod
    def scratch_bytes(threads: int, values: int) -> int:
        """Bytes of shared memory for reductions of up to ``values`` scalars in blocks of ``threads``."""
        return BlockReducer.scratch_bytes(threads, values) + 2 * 8 * _LARGEST_CLUSTER * values

    def __call__(self, values: Sequence[Any], combine: Combine) -> list[Any]:
        """``values`` of all threads, combined by a commutative ``combine``; all threads of the cluster call it."""
        kernel, thread = self._kernel, self._kernel.thread()
        values = self._block(values, combine)
        if self._is_first:
            hopper.cluster_barrier(aligned=True)  # all blocks have started: their shared memory is there
            self._is_first = False
        half = self._turn * 8 * _LARGEST_CLUSTER * self._values
        self._turn ^= 1

        def place(position: int, block: Int | int) -> Any:
            return kernel.offset(self._gathered, block * (8 * self._values) + (half + 8 * position))

        def tell() -> None:
            for position, value in enumerate(values):
                mine = place(position, hopper.block_in_cluster(kernel))
                vectors.store(kernel, [value], hopper.of_block(mine, thread))

        kernel.when(thread < self._cluster, tell)
        hopper.cluster_barrier(aligned=True, ordered=True)
        parts = [
            [vectors.load(kernel, value.type, place(position, block))[0] for position, value in enumerate(values)]
            for block in range(self._cluster)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = combine(total, part)
        return total
