"""Instructions of Hopper (sm_90a): barriers in shared memory, the bulk tensor copy engine (TMA), warpgroup matrix products.

Every function writes one instruction, as an op of the NVVM dialect where there is one.  PTX ISA, "Asynchronous warpgroup
level matrix instructions", "mbarrier" and "cp.async.bulk.tensor".  What to know about each, and what was measured on an
H200, stands at the function.
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
BARRIER_BYTES = 8
_EIGHT_ROWS = 8 * SWIZZLE  # bytes of the unit that the swizzle repeats in
_POLL_NANOSECONDS = 10_000_000  # how long a waiting thread may sleep before it looks again


# -------------------------------------------------------------------------------------------------------------- barriers


def initialize_barrier(kernel: Kernel, barrier: Any, arrivals: int) -> None:
    """A barrier whose phase ends after ``arrivals`` arrivals and all announced bytes.  One thread does it."""
    dialect("nvvm").MBarrierInitOp(barrier, kernel.integer(arrivals).value)


def publish_barriers() -> None:
    """Make initialised barriers visible to the copy engine and to the other blocks of the cluster."""
    dialect("nvvm").FenceMbarrierInitOp()


def wait(kernel: Kernel, barrier: Any, phase: Number) -> None:
    """Wait until the phase of this parity (0 first) has ended.  A parity two phases old looks like the present one."""
    ticks = kernel.integer(_POLL_NANOSECONDS).value
    parity = phase if isinstance(phase, Int) else kernel.integer(phase)
    dialect("nvvm").MBarrierTryWaitParityOp(barrier, parity.value, ticks)


def arrive(barrier: Any) -> None:
    """Arrive at a barrier of this block (``!llvm.ptr<3>``) or of the cluster (``!llvm.ptr<7>``, see :func:`of_block`).

    The default semantics, release in the block, are enough, and all that may be asked for: ``.release.cluster`` makes
    ptxas put a ``MEMBAR.ALL.GPU`` before every arrival (measured: matrix products 25 to 55 % slower).
    """
    remote = str(barrier.type) == "!llvm.ptr<7>"
    results = [] if remote else [ir.IntegerType.get_signless(64)]
    dialect("nvvm").MBarrierArriveOp(barrier, results=results)


def arrive_expecting(kernel: Kernel, barrier: Any, size: Number) -> None:
    """Arrive, and announce ``size`` bytes that copies will bring before the phase may end."""
    raw = size if isinstance(size, Int) else kernel.integer(size)
    dialect("nvvm").MBarrierArriveExpectTxOp(barrier, raw.value, results=[kernel.i64])


def of_block(pointer: Any, block: Int) -> Any:
    """The same place in the shared memory of another block of the cluster (``!llvm.ptr<7>``)."""
    return dialect("nvvm").MapaOp(ir.Type.parse("!llvm.ptr<7>"), pointer, block.value).res


@dataclass(frozen=True)
class Stage:
    """A buffer of a ring and how often the ring has been gone round, modulo 2."""

    index: Int
    phase: Int


@dataclass(frozen=True)
class Ring:
    """Buffers that a producer fills and consumers empty: a barrier "full" and a barrier "empty" for each.

    ``barriers`` is where they are in shared memory (``16 * stages`` bytes); ``arrivals`` how many consumers release a
    buffer.
    """

    kernel: Kernel
    barriers: Any
    stages: int
    arrivals: int

    @staticmethod
    def bytes(stages: int) -> int:
        """Shared memory of the barriers."""
        return 2 * BARRIER_BYTES * stages

    def full(self, stage: Number) -> Any:
        """The barrier whose phase ends when a buffer has been filled."""
        return self.kernel.offset(self.barriers, stage * BARRIER_BYTES)

    def empty(self, stage: Number) -> Any:
        """The barrier whose phase ends when a buffer has been read."""
        return self.kernel.offset(self.barriers, stage * BARRIER_BYTES + BARRIER_BYTES * self.stages)

    def initialize(self) -> None:
        """By one thread, before :func:`publish_barriers`."""
        for stage in range(self.stages):
            initialize_barrier(self.kernel, self.full(stage), 1)
            initialize_barrier(self.kernel, self.empty(stage), self.arrivals)

    def first(self) -> Stage:
        """Where producer and consumers begin."""
        return Stage(self.kernel.integer(0), self.kernel.integer(0))

    def next(self, stage: Stage) -> Stage:
        """The next buffer."""
        if self.stages == 1:
            return Stage(stage.index, stage.phase ^ 1)
        following = stage.index + 1
        wraps = following.equals(self.stages)
        return Stage(wraps.select(self.kernel.integer(0), following), wraps.select(stage.phase ^ 1, stage.phase))

    def before(self, stage: Stage, distance: int) -> Int:
        """Number of the buffer so many before, less than there are."""
        wraps = stage.index < distance
        return wraps.select(stage.index + (self.stages - distance), stage.index - distance)

    def wait_full(self, stage: Stage) -> None:
        """As a consumer: until the buffer is filled."""
        wait(self.kernel, self.full(stage.index), stage.phase)

    def wait_empty(self, stage: Stage) -> None:
        """As the producer: until the buffer is free.  At first it is: the phase before the first one is over."""
        wait(self.kernel, self.empty(stage.index), stage.phase ^ 1)


# --------------------------------------------------------------------------------------------------------- copy engine


def prefetch_tensor_map(tensor_map: Any) -> None:
    """Bring a tensor map into the cache that the copy engine reads."""
    dialect("nvvm").PrefetchOp(tensor_map, tensormap=True)


def tensor_load(
    kernel: Kernel,
    target: Any,
    tensor_map: Any,
    coordinates: Sequence[Int],
    barrier: Any,
    multicast: Number | None = None,
    offsets: Sequence[Int] = (),
) -> None:
    """Copy a box to shared memory; its bytes (all of them: zeros beyond the edges) count on ``barrier``.

    ``coordinates``: i32, innermost first.  ``multicast``: a mask of blocks of the cluster that all get the box at the same
    offset, and whose own barriers count it.  ``offsets``, for a tensor map over pixels of images: the tap of the window
    (i16) along each spatial dimension, innermost first; ``coordinates`` then are those of the first pixel, without the tap.
    """
    cluster = dialect("llvm").AddrSpaceCastOp(ir.Type.parse("!llvm.ptr<7>"), target).result
    mask = None if multicast is None else _mask(kernel, multicast)
    raw = [coordinate.value for coordinate in coordinates]
    op = dialect("nvvm").CpAsyncBulkTensorGlobalToSharedClusterOp
    mode = dialect("nvvm").TMALoadMode.IM2COL if offsets else None
    op(cluster, tensor_map, raw, barrier, [offset.value for offset in offsets], multicastMask=mask, mode=mode)


def _mask(kernel: Kernel, blocks: Number) -> Any:
    if isinstance(blocks, int):
        return kernel.integer(blocks, kernel.i16).value
    return dialect("arith").TruncIOp(kernel.i16, blocks.value).result


def tensor_store(tensor_map: Any, source: Any, coordinates: Sequence[Int]) -> None:
    """Copy a box from shared memory; what lies beyond the edges is left out.  Belongs to the thread's next group."""
    raw = [coordinate.value for coordinate in coordinates]
    dialect("nvvm").CpAsyncBulkTensorSharedCTAToGlobalOp(tensor_map, source, raw)


def commit_stores() -> None:
    """End a group of the thread's stores."""
    dialect("nvvm").CpAsyncBulkCommitGroupOp()


def wait_stores(pending: int, *, read: bool = True) -> None:
    """Until at most ``pending`` groups of the thread's stores are unfinished; ``read``: until their source is free again."""
    dialect("nvvm").CpAsyncBulkWaitGroupOp(pending, read=read)


def fence_shared() -> None:
    """Let copy engine and tensor cores see what this thread wrote to shared memory; a barrier must follow."""
    kind, space = ir.Attribute.parse("#nvvm.proxy_kind<async.shared>"), ir.Attribute.parse("#nvvm.shared_space<cta>")
    dialect("nvvm").FenceProxyOp(kind, space=space)


# ------------------------------------------------------------------------------------------------------ threads, clusters


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


def cluster_barrier(*, aligned: bool, ordered: bool = False) -> None:
    """All threads of the cluster wait for each other.  Orders no memory unless ``ordered``, which is a ``MEMBAR.ALL.GPU``:
    then what was written before, to the shared memory of any block, is seen after it."""
    nvvm = dialect("nvvm")
    (nvvm.ClusterArriveOp if ordered else nvvm.ClusterArriveRelaxedOp)(aligned=aligned)
    nvvm.ClusterWaitOp(aligned=aligned)


def block_in_cluster(kernel: Kernel) -> Int:
    """Number of this block in its cluster."""
    return Int(dialect("nvvm").BlockInClusterIdXOp(results=[kernel.i32]).result)


def store_remote(kernel: Kernel, values: Sequence[Any], address: Any, barrier: Any) -> None:
    """Four f32 to another block's shared memory (``!llvm.ptr<7>``); 16 bytes count on a barrier there (``st.async``)."""
    kernel.assembly(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [$0], {$2, $3, $4, $5}, [$1];",
        "r,r,f,f,f,f", [_address(kernel, address), _address(kernel, barrier), *values], has_side_effects=True,
    )  # fmt: skip


def load_shared(kernel: Kernel, pointer: Any) -> list[Any]:
    """Four f32 of shared memory that :func:`store_remote` brought, read after the wait for them and not before."""
    kind = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
    text = "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];"
    quad = kernel.assembly(text, "=f,=f,=f,=f,r", [_address(kernel, pointer)], kind, has_side_effects=True)
    return [dialect("llvm").ExtractValueOp(kernel.f32, quad, ir.DenseI64ArrayAttr.get([i])).res for i in range(4)]


def store_remote_word(kernel: Kernel, word: Any, address: Any, barrier: Any) -> None:
    """As :func:`store_remote`, 32 bits."""
    kernel.assembly(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $2, [$1];",
        "r,r,r", [_address(kernel, address), _address(kernel, barrier), word], has_side_effects=True,
    )  # fmt: skip


def load_shared_word(kernel: Kernel, pointer: Any) -> Any:
    """The 32 bits that :func:`store_remote_word` brought, read after the wait for them and not before."""
    return kernel.assembly("ld.shared.b32 $0, [$1];", "=r,r", [_address(kernel, pointer)], kernel.i32, has_side_effects=True)


def load_word(kernel: Kernel, address: Int, offset: int) -> Any:
    """An i32 of shared memory, ``offset`` bytes behind ``address``, read after the waits that stand before it.

    LLVM may move plain loads across them: to it, a barrier is a piece of assembly that touches no memory.
    """
    return kernel.assembly(f"ld.shared.b32 $0, [$1+{offset}];", "=r,r", [address], kernel.i32, has_side_effects=True)


def store_matrix(pointer: Any, registers: Sequence[Int], *, transposed: bool = False) -> None:
    """1, 2 or 4 matrices of 8 by 8 16-bit elements to shared memory; lane i gives the address of row i % 8 of matrix i // 8.

    Each register holds two adjacent elements of a row, as wgmma and mma.sync leave them.
    """
    layout = "col" if transposed else "row"
    attributes = [
        ir.Attribute.parse(text)
        for text in (
            f"#nvvm.mma_layout<{layout}>",
            "#nvvm.ld_st_matrix_shape<m = 8, n = 8>",
            "#nvvm.ld_st_matrix_elt_type<b16>",
        )
    ]
    dialect("nvvm").StMatrixOp(pointer, [register.value for register in registers], *attributes)


def _address(kernel: Kernel, pointer: Any) -> Any:
    return dialect("llvm").PtrToIntOp(kernel.i32, pointer).res


# ---------------------------------------------------------------------------------------------------------------- wgmma


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


def shared_address(kernel: Kernel, pointer: Any) -> Int:
    """A pointer to shared memory as i32."""
    return Int(_address(kernel, pointer))


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
