"""The bulk copy engine (TMA, sm_90): pieces of memory, and boxes of a tensor map, to shared memory and back.

Every function writes one instruction, as an op of the NVVM dialect where there is one.  PTX ISA, "cp.async.bulk" and
"cp.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number


def prefetch_tensor_map(tensor_map: Any) -> None:
    """Bring a tensor map into the cache that the copy engine reads."""
    dialect("nvvm").PrefetchOp(tensor_map, tensormap=True)


def bulk_load(kernel: Kernel, target: Any, source: Any, size: int, barrier: Any) -> None:
    """Copy ``size`` bytes to shared memory, where they count on ``barrier``; addresses and size are multiples of 16."""
    cluster = dialect("llvm").AddrSpaceCastOp(ir.Type.parse("!llvm.ptr<7>"), target).result
    dialect("nvvm").CpAsyncBulkGlobalToSharedClusterOp(cluster, source, barrier, kernel.integer(size).value)


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
