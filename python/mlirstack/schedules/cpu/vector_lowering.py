"""The stage that lowers vector ops over memrefs to what LLVM has instructions for: fma, shuffles, one-dimensional loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.ir.ops import first_op
from mlirstack.pipeline.step import Schedule
from mlirstack.schedules.linalg_ops import kernels
from mlirstack.schedules.transform import Handle, Script


@dataclass(frozen=True)
class LowerVectors(Schedule):
    """Before: vector ops of any rank over memrefs.  After: no contraction, outer product, transpose or transfer above rank
    one is left in the kernels."""

    name: ClassVar[str] = "mlirstack-cpu-lower-vectors"

    def build(self, module: Any) -> str | None:
        """One section for all kernels; None where none holds vector ops.

        A set of patterns is made anew for each op that it is applied to: for many small kernels that would take longer than
        applying it.
        """
        if all(first_op(function, _is_vector) is None for _, _, function in kernels(module)):
            return None
        script = Script()
        _lower(script, script.root)
        return script.text()


def _is_vector(op: Any) -> bool:
    return bool(op.name.startswith("vector."))


def _lower(script: Script, kernels: Handle) -> None:
    script.apply_patterns(
        kernels,
        "vector.lower_contraction lowering_strategy = outerproduct",
        "vector.transfer_permutation_patterns",
    )
    # Canonicalization undoes what the lowering of broadcasts does: apart, or they go on forever.
    script.apply_patterns(kernels, "vector.lower_outerproduct", "vector.lower_broadcast")
    script.apply_patterns(kernels, "canonicalization")
    script.apply_patterns(kernels, "vector.reorder_multi_reduction_dims lowering_strategy = innerreduction")
    script.apply_patterns(kernels, "vector.multi_reduction_flattening lowering_strategy = innerreduction")
    script.apply_patterns(kernels, "vector.multi_reduction_unrolling lowering_strategy = innerreduction")
    script.apply_patterns(kernels, "vector.lower_transpose lowering_strategy = shuffle_16x16", "vector.lower_shape_cast")
    script.apply_patterns(kernels, "vector.transfer_to_scf max_transfer_rank = 1 full_unroll = true")
    script.apply_patterns(
        kernels,
        "vector.lower_transfer max_transfer_rank = 1",
        "memref.fold_memref_alias_ops",
        "canonicalization",
    )
    script.cse(kernels)
