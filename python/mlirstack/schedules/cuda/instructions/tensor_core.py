"""Tensor cores of sm_80 and later: asynchronous copies into shared memory, matrix fragments, ``mma.sync``.

Every instruction works on blocks of 16 x 32 bytes, whatever the element: two ``ldmatrix`` halves of 16 bytes are what one
``mma.sync`` multiplies along k (16 elements of 16 bits, 8 of 32, 32 of 8).  PTX ISA, "Warp-level matrix instructions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int

CHUNK = 16  # bytes of one ldmatrix row, and of the widest asynchronous copy
MMA_ROWS = 16  # rows of A and of the result in one mma.sync
MMA_COLUMNS = 8  # columns of B and of the result
MMA_BYTES = 32  # bytes of k that one mma.sync multiplies
ACCUMULATORS = 4  # results of one mma.sync that a thread holds: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)


@dataclass(frozen=True)
class Operands:
    """Element type of A and B on tensor cores: bits, what NVVM calls it, what ptxas needs for it, type of the sums.

    ``rounding``: the PTX instruction that rounds an element in memory to what the tensor cores multiply: they drop the bits
    that they do not read.  Empty where they read all.
    """

    name: str  # "f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"
    bits: int
    capability: int = 80
    rounding: str = ""

    @property
    def is_integer(self) -> bool:
        """Sums are i32, not f32?"""
        return self.name in ("s8", "u8")

    @property
    def k(self) -> int:
        """Elements of k in one mma.sync."""
        return MMA_BYTES * 8 // self.bits


OPERANDS = {
    operands.name: operands
    for operands in (
        Operands("f16", 16),
        Operands("bf16", 16),
        Operands("tf32", 32, rounding="cvt.rna.tf32.f32"),
        Operands("s8", 8),
        Operands("u8", 8),
        Operands("e4m3", 8, 89),
        Operands("e5m2", 8, 89),
    )
}
HOPPER_TF32 = replace(OPERANDS["tf32"], rounding="cvt.rn.tf32.f32")  # one machine instruction in place of three


@dataclass(frozen=True)
class SharedTile:
    """A tile in shared memory: ``rows`` of ``row_bytes`` (64, or a multiple of 128), 16-byte chunks swizzled.

    Chunk c of row r stands where no two of eight neighbouring rows have the same banks for the same c, so that ldmatrix,
    which reads one chunk of eight rows at a time, has no bank conflicts.  ``words``: the tile is read by words instead,
    eight neighbouring columns of four neighbouring rows at a time (32-bit elements, transposed).
    """

    rows: int
    row_bytes: int
    words: bool = False

    def __post_init__(self) -> None:
        if self.row_bytes != 64 and self.row_bytes % 128:
            raise ValueError(f"rows of {self.row_bytes} bytes cannot be swizzled")

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        return self.rows * self.row_bytes

    def phase(self, row: Int) -> Int:
        """What the number of a chunk in ``row`` is XORed with."""
        if self.words:
            return (row & 3) << 1
        return (row & 7) if self.row_bytes >= 128 else (row >> 1) & 3

    def offset(self, row: Int, chunk: Int, phase: Int | None = None) -> Int:
        """Byte offset of a chunk.  ``phase``: :meth:`phase` of the row where the caller knows it cheaper."""
        swizzled = chunk ^ (self.phase(row) if phase is None else phase)
        return row * self.row_bytes + (swizzled << 4)


def copy_async(kernel: Kernel, shared: Any, source: Any, size: int, valid: Int | None = None) -> None:
    """Start a copy of ``size`` bytes (4, 8 or 16) from global to shared memory; bytes from ``valid`` on become zero.

    ``source`` is aligned to ``size``; with ``valid`` 0 it is not read.  16 bytes go past the L1 cache.
    """
    kinds = dialect("nvvm").LoadCacheModifierKind
    modifier = kinds.CG if size == CHUNK else kinds.CA
    dialect("nvvm").CpAsyncOp(shared, source, size, modifier, cpSize=None if valid is None else valid.value)


def commit_copies() -> None:
    """The copies started since the last call are one group."""
    dialect("nvvm").CpAsyncCommitGroupOp()


def wait_for_copies(pending: int) -> None:
    """Wait until at most ``pending`` of this thread's groups are under way."""
    dialect("nvvm").CpAsyncWaitGroupOp(pending)


def load_matrices(kernel: Kernel, pointer: Any, *, transposed: bool = False) -> list[Any]:
    """ldmatrix.x4: four matrices of 8 rows x 16 bytes; lane l gives the address of row l % 8 of matrix l // 8.

    Returns four i32: of each matrix, bytes 4 (l % 4) of row l // 4 (16-bit elements: of column l // 4 if ``transposed``).
    """
    nvvm = dialect("nvvm")
    layout = nvvm.MMALayout.col if transposed else nvvm.MMALayout.row
    shape = ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>")
    kind = ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>")
    result = ir.Type.parse("!llvm.struct<(i32, i32, i32, i32)>")
    loaded = nvvm.LdMatrixOp(pointer, 4, _layout(layout), shape, kind, results=[result]).results[0]
    return _fields(loaded, 4, kernel.i32)


def rounded(kernel: Kernel, operands: Operands, word: Any) -> Any:
    """A word of a fragment (i32) as tensor cores multiply it."""
    if not operands.rounding:
        return word
    return kernel.assembly(f"{operands.rounding} $0, $1;", "=r,r", [word], kernel.i32)


def multiply(kernel: Kernel, operands: Operands, a: Sequence[Any], b: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
    """mma.sync: 16 x 8 results plus A (16 x k, four i32) times B (k x 8, two i32); ``sums`` are four f32 or i32."""
    nvvm = dialect("nvvm")
    kind = kernel.i32 if operands.is_integer else kernel.f32
    shape = ir.Attribute.parse(f"#nvvm.shape<m = {MMA_ROWS}, n = {MMA_COLUMNS}, k = {operands.k}>")
    if operands.name == "f16":  # NVVM has packed halves where all others are words
        pair = ir.VectorType.get([2], kernel.f16)
        a, b = ([dialect("llvm").BitcastOp(pair, word).res for word in words] for words in (a, b))
    ptx_type = ir.Attribute.parse(f"#nvvm.mma_type<{operands.name}>")
    overflow = ir.Attribute.parse("#nvvm.mma_int_overflow<wrapped>") if operands.is_integer else None
    result = ir.Type.parse("!llvm.struct<(" + ", ".join([str(kind)] * ACCUMULATORS) + ")>")
    product = nvvm.MmaOp(
        result,
        shape,
        _layout(nvvm.MMALayout.row),
        _layout(nvvm.MMALayout.col),
        a,
        b,
        sums,
        intOverflowBehavior=overflow,
        multiplicandAPtxType=ptx_type,
        multiplicandBPtxType=ptx_type,
    )
    return _fields(product.res, ACCUMULATORS, kind)


def lane_of(thread: Int) -> Int:
    """Number of the thread in its warp."""
    return thread & 31


def _layout(layout: Any) -> Any:
    return ir.Attribute.parse(f"#nvvm.mma_layout<{layout}>")


def _fields(struct: Any, count: int, kind: Any) -> list[Any]:
    llvm = dialect("llvm")
    return [llvm.ExtractValueOp(kind, struct, ir.DenseI64ArrayAttr.get([i])).res for i in range(count)]
