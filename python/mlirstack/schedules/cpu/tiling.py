"""The stage "tiled": loops around linalg ops of vector size, by kernel class.

In come outlined kernels of linalg ops on tensors; out go the same kernels with scf loops around tile-sized linalg ops.
Ops that no plan fits stay as they are and become scalar loops later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlirstack.pipeline.step import Schedule
from mlirstack.schedules.cpu.contraction import CacheBlocks, PackedLoops, block_sizes, packed_loops, tile_packed
from mlirstack.schedules.cpu.direct import direct_loops, tile_direct
from mlirstack.schedules.cpu.fusion import FusionPlan, plan_fusion
from mlirstack.schedules.cpu.loops import NestPlan, Unrolling, is_better_flat, lanes, plan_nest, split_nest, tile_nest
from mlirstack.schedules.cpu.machine import HOST, vector_bits
from mlirstack.schedules.linalg_ops import LinalgOp, kernels, linalg_ops
from mlirstack.schedules.transform import Handle, Script

CLEANUP = (
    "canonicalization",
    "scf.for_loop_canonicalization",
    "linalg.tiling_canonicalization",
    "tensor.fold_tensor_empty",
    "tensor.merge_consecutive_insert_extract_slice",
)


@dataclass(frozen=True)
class TileKernels(Schedule):
    """Before: kernels of linalg ops on tensors.  After: loops around linalg ops of at most a few vectors.

    ``vector_bits`` is the register width that is tiled for (0: that of this machine).
    """

    name: ClassVar[str] = "mlirstack-cpu-tile"
    vector_bits: int = HOST

    def build(self, module: Any) -> str | None:
        """One section a kernel; None where no kernel has an op to tile."""
        script = Script()
        for symbol, kind, function in kernels(module):
            tile_kernel(script, symbol, kind, linalg_ops(function), vector_bits(self.vector_bits))
        return None if script.empty else script.text()


def tile_kernel(script: Script, symbol: str, kind: str, ops: Sequence[LinalgOp], bits: int) -> None:
    """The section of one kernel: fused into row loops where its ops form a chain, op by op otherwise."""
    unrolling = Unrolling()
    plans = [plan_nest(op, bits, unrolling) for op in ops]
    packed = [(i, loops) for i, op in enumerate(ops) if (loops := packed_loops(op))]
    direct = [(i, in_place) for i, op in enumerate(ops) if (in_place := direct_loops(op, bits))]
    if not any(plans) and not packed:
        return
    script.comment(f"@{symbol}: {kind}")
    function = script.function(symbol)
    handles = script.linalg_ops(function, len(ops))
    fusion = plan_fusion(ops)
    if len(packed) == 1:
        _tile_contraction(script, function, symbol, ops, handles, fusion, packed[0], bits, unrolling)
    elif len(direct) == 1 and not packed:
        tile_direct(script, function, symbol, ops, handles, fusion, direct[0], bits)
    elif fusion and plans[fusion.terminal]:
        _tile_fused(script, function, symbol, ops, handles, fusion, bits, unrolling)
    else:
        tile_separately(script, handles, ops, bits, unrolling)
    clean(script, function)


def clean(script: Script, function: Handle) -> None:
    """Fold slices of slices, remove what is dead or written twice."""
    script.apply_patterns(function, *CLEANUP)
    script.cse(function)


def _tile_fused(
    script: Script,
    function: Handle,
    symbol: str,
    ops: Sequence[LinalgOp],
    handles: Sequence[Handle],
    fusion: FusionPlan,
    bits: int,
    unrolling: Unrolling,
) -> None:
    terminal = ops[fusion.terminal]
    outer = plan_nest(terminal, bits, unrolling)
    assert outer is not None
    tags = [f"{symbol}.{i}" for i in range(len(ops))]
    for index in fusion.members:
        script.tag(handles[index], tags[index])
    tiles = {d: outer.vector.get(d, 1) for d in fusion.loops if terminal.shape[d] > outer.vector.get(d, 1)}
    if not tiles:
        tile_separately(script, handles, ops, bits, unrolling)
        return
    carried = any(ops[index].reductions for index in fusion.members)
    pieces = [(handles[fusion.terminal], dict(enumerate(terminal.shape)), tiles)]
    for d in tiles:
        pieces = [piece for given in pieces for piece in split_nest(script, *given, d, carried=carried)]
    for handle, sizes, tile in pieces:
        script.fuse(handle, [tile.get(d, 0) for d in sizes])
    clean(script, function)
    # The loops that are tiled already are whole in every piece, whatever their size there: one plan fits all pieces.
    for index, follows in sorted(fusion.members.items()):
        plan = _inner_plan(ops[index], {own for own, d in follows.items() if d in tiles}, bits, unrolling)
        if plan:
            with script.foreach(script.tagged(function, tags[index])) as op:
                tile_nest(script, op, plan)


def _tile_contraction(
    script: Script,
    function: Handle,
    symbol: str,
    ops: Sequence[LinalgOp],
    handles: Sequence[Handle],
    fusion: FusionPlan | None,
    packed: tuple[int, PackedLoops],
    bits: int,
    unrolling: Unrolling,
) -> None:
    root, loops = packed
    blocks = CacheBlocks()
    tiles = block_sizes(ops[root], loops, blocks)
    members = fusion.members if fusion and root in fusion.members else {root: {d: d for d in ops[root].parallel}}
    terminal = fusion.terminal if fusion and root in fusion.members else root
    tags = [f"{symbol}.{i}" for i in range(len(ops))]
    for index, handle in enumerate(handles):
        script.tag(handle, tags[index])
    steps = [0] * len(ops[terminal].shape)
    for own, follows in members[root].items():
        # A loop that some member lacks would compute that member again in every iteration.
        if fusion is None or terminal == root or follows in fusion.loops:
            steps[follows] = tiles.get(own, 0)
    if any(steps):
        script.fuse(handles[terminal], steps)
        clean(script, function)
    for index, op in enumerate(ops):
        with script.foreach(script.tagged(function, tags[index])) as handle:
            if index == root:
                tile_packed(script, handle, op.shape, loops, blocks)
            elif (plan := plan_nest(op, bits, unrolling)) is not None:
                tile_nest(script, handle, plan)


def _inner_plan(op: LinalgOp, tiled: set[int], bits: int, unrolling: Unrolling) -> NestPlan | None:
    """The nest of a fused op, whose loops ``tiled`` belong to the enclosing loops: no plan cuts them again."""
    if not op.static:
        return None
    sizes = tuple(1 if d in tiled else size for d, size in enumerate(op.shape))
    plan = plan_nest(op, bits, unrolling, sizes=sizes)
    return plan and replace(plan, vector={d: tile for d, tile in plan.vector.items() if d not in tiled})


def tile_separately(
    script: Script, handles: Sequence[Handle], ops: Sequence[LinalgOp], bits: int, unrolling: Unrolling
) -> None:
    """Loops of its own around each op."""
    for handle, op in zip(handles, ops, strict=True):
        plan = plan_nest(op, bits, unrolling)
        if plan is not None and is_better_flat(op, plan):
            tile = lanes(op, bits) * unrolling.elementwise
            tile_nest(script, script.flatten(handle), NestPlan((op.points,), {0: min(tile, op.points)}))
        elif plan is not None:
            tile_nest(script, handle, plan)
