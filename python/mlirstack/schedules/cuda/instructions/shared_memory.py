"""Shared memory of a block and of the other blocks of its cluster (sm_90): words, matrices, remote stores, meeting points.

Every function writes one instruction, as an op of the NVVM dialect where there is one.  PTX ISA, "st.async", "stmatrix" and
"barrier.cluster".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int


def cluster_barrier(*, aligned: bool, ordered: bool = False) -> None:
    """All threads of the cluster wait for each other.  Orders no memory unless ``ordered``, which is a ``MEMBAR.ALL.GPU``:
    then what was written before, to the shared memory of any block, is seen after it."""
    nvvm = dialect("nvvm")
    (nvvm.ClusterArriveOp if ordered else nvvm.ClusterArriveRelaxedOp)(aligned=aligned)
    nvvm.ClusterWaitOp(aligned=aligned)


def block_in_cluster(kernel: Kernel) -> Int:
    """Number of this block in its cluster."""
    return Int(dialect("nvvm").BlockInClusterIdXOp(results=[kernel.i32]).result)


def of_block(pointer: Any, block: Int) -> Any:
    """The same place in the shared memory of another block of the cluster (``!llvm.ptr<7>``)."""
    return dialect("nvvm").MapaOp(ir.Type.parse("!llvm.ptr<7>"), pointer, block.value).res


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


def shared_address(kernel: Kernel, pointer: Any) -> Int:
    """A pointer to shared memory as i32."""
    return Int(_address(kernel, pointer))
