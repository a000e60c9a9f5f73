"""Reductions across threads: over the lanes of a warp by shuffles, over the warps of a block through shared memory.

What is reduced is a list of MLIR scalars (a sum; a maximum and its position), combined by a function of two such lists.
The order is fixed, so that results repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.instructions import mbarrier, shared_memory, vectors
from mlirstack.schedules.cuda.values import Int, Number

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.kernel import Kernel

WARP = 32
_LARGEST_CLUSTER = 8
Combine = Callable[[list[Any], list[Any]], list[Any]]  # (earlier, later) → both


def to_words(kernel: Kernel, value: Any) -> list[Any]:
    """The bits of an MLIR scalar (integer, index or float of up to 64 bits) as one or two i32."""
    arith, llvm, kind = dialect("arith"), dialect("llvm"), value.type
    if isinstance(kind, ir.IndexType):
        return to_words(kernel, arith.IndexCastOp(kernel.i64, value).result)
    if kind.width == 64:
        pair = ir.VectorType.get([2], kernel.i32)
        return list(dialect("vector").ToElementsOp(llvm.BitcastOp(pair, value).res).results)
    bits = ir.IntegerType.get_signless(kind.width)
    word = value if kind == bits else arith.BitcastOp(bits, value).result
    return [word if kind.width == 32 else arith.ExtUIOp(kernel.i32, word).result]


def from_words(kernel: Kernel, words: Sequence[Any], kind: Any) -> Any:
    """Inverse of :func:`to_words`."""
    arith, llvm = dialect("arith"), dialect("llvm")
    if isinstance(kind, ir.IndexType):
        return arith.IndexCastOp(kind, from_words(kernel, words, kernel.i64)).result
    if kind.width == 64:
        pair = ir.VectorType.get([2], kernel.i32)
        return llvm.BitcastOp(kind, dialect("vector").FromElementsOp(pair, list(words)).result).res
    bits = ir.IntegerType.get_signless(kind.width)
    word = words[0] if kind.width == 32 else arith.TruncIOp(bits, words[0]).result
    return word if kind == bits else arith.BitcastOp(kind, word).result


def shuffle_xor(kernel: Kernel, value: Any, distance: int) -> Any:
    """The MLIR scalar that lane ``lane ^ distance`` holds; integers and floats of up to 64 bits."""
    gpu = dialect("gpu")
    lanes = [kernel.integer(number).value for number in (distance, WARP)]
    moved = [gpu.ShuffleOp(word, *lanes, gpu.ShuffleMode.XOR).shuffleResult for word in to_words(kernel, value)]
    return from_words(kernel, moved, value.type)


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
    turns, so that one reduction needs one barrier: a kernel counts its reductions, those of all rounds of a loop.
    """

    def __init__(self, kernel: Kernel, scratch: Any, values: int) -> None:
        self._kernel, self._scratch, self._values = kernel, scratch, values

    @staticmethod
    def scratch_bytes(threads: int, values: int) -> int:
        """Bytes of shared memory for reductions of up to ``values`` scalars in a block of ``threads``."""
        return 2 * 8 * (threads // WARP) * values

    def __call__(self, values: Sequence[Any], combine: Combine, number: Number = 0) -> list[Any]:
        """``values`` of all threads, combined by a commutative ``combine``; all threads of the block call it.

        ``number``: how many reductions the kernel has done before.
        """
        kernel, warps = self._kernel, self._kernel.threads // WARP
        values = across_lanes(kernel, values, combine)
        if warps == 1:
            return values
        assert warps & (warps - 1) == 0, "the warps of a block are a power of two"
        thread = kernel.thread()
        lane, half = thread & (WARP - 1), (number & 1) * (8 * warps * self._values)

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

    The blocks' own results go to the shared memory of all blocks (``st.async``), where their bytes count on a barrier; every
    thread then reads them in the order of the blocks.  Barriers of the whole cluster would have to order memory, which is to
    wait for everything that was loaded and stored before.  As in :class:`BlockReducer`, two halves of that memory take
    turns.  :meth:`start` comes before the first reduction.
    """

    def __init__(self, kernel: Kernel, scratch: Any, values: int, cluster: int) -> None:
        self._kernel, self._cluster, self._values = kernel, cluster, values
        self._block = BlockReducer(kernel, scratch, values)
        self._gathered = kernel.offset(scratch, BlockReducer.scratch_bytes(kernel.threads, values))
        self._barriers = kernel.offset(self._gathered, 2 * 8 * _LARGEST_CLUSTER * values)

    @staticmethod
    def scratch_bytes(threads: int, values: int) -> int:
        """Bytes of shared memory for reductions of up to ``values`` scalars in blocks of ``threads``."""
        return BlockReducer.scratch_bytes(threads, values) + 2 * 8 * (_LARGEST_CLUSTER * values + 1)

    def start(self) -> None:
        """Make the barriers, and wait until all blocks of the cluster have theirs."""

        def initialize() -> None:
            for half in range(2):
                mbarrier.initialize_barrier(self._kernel, self._kernel.offset(self._barriers, 8 * half), 1)
            mbarrier.publish_barriers()

        self._kernel.when(self._kernel.thread().equals(0), initialize)
        shared_memory.cluster_barrier(aligned=True)

    def __call__(self, values: Sequence[Any], combine: Combine, number: Number = 0) -> list[Any]:
        """As :meth:`BlockReducer.__call__`, of all threads of the cluster."""
        kernel, thread = self._kernel, self._kernel.thread()
        words = [to_words(kernel, value) for value in self._block(values, combine, number)]
        half, phase = number & 1, number >> 1 & 1
        barrier = kernel.offset(self._barriers, half * 8)

        def place(position: int, block: Int | int, word: int = 0) -> Any:
            at = half * (8 * _LARGEST_CLUSTER * self._values) + (8 * position + 4 * word)
            return kernel.offset(self._gathered, block * (8 * self._values) + at)

        def tell() -> None:
            rank, there = shared_memory.block_in_cluster(kernel), shared_memory.of_block(barrier, thread)
            for position, parts in enumerate(words):
                for at, word in enumerate(parts):
                    shared_memory.store_remote_word(
                        kernel, word, shared_memory.of_block(place(position, rank, at), thread), there
                    )

        size = 4 * self._cluster * sum(len(parts) for parts in words)
        kernel.when(thread.equals(0), lambda: mbarrier.arrive_expecting(kernel, barrier, size))
        kernel.when(thread < self._cluster, tell)
        mbarrier.wait(kernel, barrier, phase)
        kinds = [value.type for value in values]
        blocks = [
            [
                from_words(
                    kernel,
                    [shared_memory.load_shared_word(kernel, place(at, block, n)) for n in range(len(words[at]))],
                    kind,
                )
                for at, kind in enumerate(kinds)
            ]
            for block in range(self._cluster)
        ]
        total = blocks[0]
        for part in blocks[1:]:
            total = combine(total, part)
        return total
