"""The stage "vectorized": tile-sized linalg ops become vector ops, and accumulators move into loop variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.pipeline.step import Schedule
from mlirstack.schedules.linalg_ops import LinalgOp, kernels, linalg_ops
from mlirstack.schedules.transform import Handle, Script

MAX_VECTOR_POINTS = 1024  # what is larger was not tiled; as one vector it would take LLVM minutes


@dataclass(frozen=True)
class VectorizeKernels(Schedule):
    """Before: loops around tile-sized linalg ops.  After: loops around vector ops; larger linalg ops are untouched."""

    name: ClassVar[str] = "mlirstack-cpu-vectorize"

    def build(self, module: Any) -> str | None:
        """One section a kernel, one to clean up; None where no kernel has an op of vector size."""
        script = Script()
        vectorized: list[Handle] = []
        for symbol, kind, function in kernels(module):
            ops = linalg_ops(function)
            chosen = [is_vector_sized(op) for op in ops]
            if any(chosen):
                script.comment(f"@{symbol}: {kind}")
                handle = script.function(symbol)
                for op, wanted in zip(script.linalg_ops(handle, len(ops)), chosen, strict=True):
                    if wanted:
                        script.vectorize(op)
                vectorized.append(handle)
        if not vectorized:
            return None
        simplify(script, vectorized)
        return script.text()


def is_vector_sized(op: LinalgOp) -> bool:
    """Is ``op`` one that vectorizes, and small enough to?"""
    return op.vectorizable and op.points <= MAX_VECTOR_POINTS and (not op.reductions or op.combiners is not None)


def simplify(script: Script, vectorized: Sequence[Handle]) -> None:
    """Clean up after vectorization, in all functions at once: a set of patterns is made anew for each op it is applied to.

    Reductions of products become contractions and transposes fold into them in *one* set of patterns: each enables the
    other, and apart they leave transposes in the inner loop.
    """
    script.apply_patterns(script.root, "vector.reduction_to_contract", "vector.transfer_permutation_patterns")
    script.apply_patterns(
        script.root,
        "canonicalization",
        "vector.cast_away_vector_leading_one_dim",
        "tensor.fold_tensor_subset_ops_into_vector_transfers",
        "vector.drop_unit_dims_with_shape_cast",
    )
    for function in vectorized:
        loops = script.loops(function)
        script.licm(loops)
        script.hoist_subsets(loops)
    script.apply_patterns(script.root, "canonicalization")
    script.cse(script.root)
