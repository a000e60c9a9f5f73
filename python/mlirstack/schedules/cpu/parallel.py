"""The stage "parallel": each large kernel split among threads, before it is tiled for one.

In come kernels of linalg ops on tensors; out go the same with one ``scf.forall`` around everything, over equal pieces of one
parallel loop.  What is inside is tiled afterwards as it is for one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.pipeline.step import Schedule
from mlirstack.schedules.linalg_ops import LinalgOp, kernels, linalg_ops
from mlirstack.schedules.transform import Script

MIN_POINTS = 1 << 15  # of the largest op: less is done sooner than threads are woken


@dataclass(frozen=True)
class ParallelizeKernels(Schedule):
    """Before: kernels of linalg ops on tensors.  After: those that are large enough run as ``threads`` pieces, along the
    outermost parallel loop of their last op that splits evenly."""

    name: ClassVar[str] = "mlirstack-cpu-parallelize"
    threads: int

    def build(self, module: Any) -> str | None:
        """One section a kernel; None where no kernel is large enough or none splits."""
        script = Script()
        for symbol, kind, function in kernels(module):
            ops = linalg_ops(function)
            loop = split_loop(ops, self.threads) if kind != "other" else None
            if loop is None:
                continue
            script.comment(f"@{symbol}: {kind}, loop {loop}")
            handle = script.function(symbol)
            last = script.linalg_ops(handle, len(ops))[-1]
            sizes = [0] * len(ops[-1].shape)
            sizes[loop] = ops[-1].shape[loop] // self.threads
            script.fuse_parallel(last, sizes)
            script.apply_patterns(handle, "canonicalization")
            script.cse(handle)
        return None if script.empty else script.text()


def split_loop(ops: Sequence[LinalgOp], threads: int) -> int | None:
    """The loop of the last op to split, or None where the kernel is small, or no loop has a multiple of ``threads``."""
    if not ops or not all(op.static for op in ops) or max(op.points for op in ops) < MIN_POINTS:
        return None
    last = ops[-1]
    return next((d for d in last.parallel if last.shape[d] >= threads and last.shape[d] % threads == 0), None)
