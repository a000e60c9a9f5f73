"""The general mapping of long reductions with few results: one block per result, its threads share the loop.

Takes any op whose body combines what it computes with the old value by an associative and commutative operation.  Each
thread starts from the operation's neutral element; the partial results are combined through shuffles and shared memory, in
an order that is the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.cuda.device_memory import rewrite_memory
from mlirstack.passes.cuda.flat import NodeBody, grid_blocks, is_wide, loop_sizes, suffix, taken_apart
from mlirstack.passes.cuda.host_values import HostValues
from mlirstack.passes.cuda.work import set_work, work_of
from mlirstack.passes.regions import clone_with
from mlirstack.schedules.cuda.emitter import GENERAL
from mlirstack.schedules.cuda.graph import Node
from mlirstack.schedules.cuda.instructions.reduce import BlockReducer
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number

_SHORTEST = 128  # a reduction that one thread does quickly enough
_MOST_RESULTS = 1 << 15  # with more results than this, one thread each fills the GPU
_THREADS = 256


@dataclass(frozen=True)
class Combiner:
    """How a body combines its result with the old value: the op, and the neutral element of its type."""

    op: Any
    neutral: Any  # attribute

    def combine(self, left: Any, right: Any) -> Any:
        """The op on two values of the kernel."""
        mapping = dict(zip(self.op.operands, (left, right), strict=True))
        return clone_with(self.op, mapping).results[0]


def map_reduction(function: Any, node: Node, initial: Sequence[Any]) -> bool:
    """Map ``node`` with one block per result; False where the general rule (one thread per result) is as good."""
    combiners = combiners_of(node)
    if combiners is None or not _is_worth_it(node):
        return False
    sizes = loop_sizes(function, node)
    results = [loop for loop, kind in enumerate(node.iterators) if kind == "parallel"]
    kernel = Kernel(function, threads=_THREADS, schedule=GENERAL, suffix=suffix(function))
    values = HostValues(kernel, wide=is_wide(node, sizes))
    body = NodeBody(values, node, initial)
    extents = [values.dimension(size) for size in sizes]
    with kernel.body():
        _write(kernel, values, body, combiners, extents, results)
    rewrite_memory(kernel, values)
    kernel.launch(
        (grid_blocks(function, [sizes[loop] for loop in results], 1),),
        shared_bytes=BlockReducer.scratch_bytes(_THREADS, len(combiners)),
    )
    set_work(kernel.kernel, *work_of([node]))
    return True


def _write(
    kernel: Kernel,
    values: HostValues,
    body: NodeBody,
    combiners: Sequence[Combiner],
    extents: Sequence[Number],
    results: Sequence[int],
) -> None:
    node = body.node
    block, thread = kernel.block_index(), kernel.thread()
    if values.wide:
        block, thread = block.wide(), thread.wide()
    indices: list[Number] = [0] * len(extents)
    for loop, index in zip(results, taken_apart(block, [extents[loop] for loop in results]), strict=True):
        indices[loop] = index
    total: Number = 1
    for loop in node.reductions:
        total = total * extents[loop]

    def step(number: Int, *carried: Any) -> Sequence[Any]:
        for loop, index in zip(
            node.reductions, taken_apart(number, [extents[loop] for loop in node.reductions]), strict=True
        ):
            indices[loop] = index
        return body.compute(indices, carried)

    neutral = [dialect("arith").ConstantOp(c.neutral.type, c.neutral).result for c in combiners]
    partial = kernel.loop(thread, values.constant(total), values.constant(_THREADS), neutral, step)

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return [c.combine(a, b) for c, a, b in zip(combiners, left, right, strict=True)]

    whole = BlockReducer(kernel, kernel.shared(), len(combiners))(partial, combine)
    kernel.when(thread.equals(0), lambda: body.store(indices, combine(body.initial(indices), whole)))


def _is_worth_it(node: Node) -> bool:
    if 0 in node.sizes or not node.reductions:
        return False
    length = [node.sizes[loop] for loop in node.reductions]
    others = [size for loop, size in enumerate(node.sizes) if loop not in node.reductions]
    is_long = None in length or math.prod(n for n in length if n is not None) >= _SHORTEST
    return is_long and math.prod(n for n in others if n is not None) <= _MOST_RESULTS


def combiners_of(node: Node) -> list[Combiner] | None:
    """One combiner per output, or None where the body does more than combine."""
    leave = functions.yield_op(node.body)
    found = []
    for position, value in enumerate(leave.operands):
        old = node.body.arguments[len(node.inputs) + position]
        op = functions.defining_op(value)
        if op is None or op.block != node.body or len(list(old.uses)) != 1 or len(op.operands) != 2:
            return None
        neutral = _neutral(op.name, value.type)
        if neutral is None or list(op.operands).count(old) != 1 or len(list(value.uses)) != 1:
            return None
        found.append(Combiner(op, neutral))
    return found


def _neutral(name: str, kind: Any) -> Any | None:
    if isinstance(kind, ir.IntegerType):
        low, high = -(1 << (kind.width - 1)), (1 << (kind.width - 1)) - 1
        values: dict[str, int] = {
            "arith.addi": 0, "arith.ori": 0, "arith.xori": 0, "arith.maxui": 0, "arith.muli": 1, "arith.andi": -1,
            "arith.minui": -1, "arith.maxsi": low, "arith.minsi": high,
        }  # fmt: skip
        return ir.IntegerAttr.get(kind, values[name]) if name in values else None
    if isinstance(kind, ir.FloatType):
        reals = {
            "arith.addf": -0.0, "arith.mulf": 1.0, "arith.maximumf": -math.inf, "arith.minimumf": math.inf,
            "arith.maxnumf": math.nan, "arith.minnumf": math.nan,
        }  # fmt: skip
        return ir.FloatAttr.get(kind, reals[name]) if name in reals else None
    return None
