"""Elements that a body reads at places it computes: rows of an embedding, the swapped halves of a rotary embedding.

Takes bodies with ``tensor.extract`` (``memref.load`` once they are on memrefs) of tensors from outside; says which of these
reads follow the innermost loop, so that neighbouring elements are one access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.graph import KernelGraph, Node

GATHERS = ("tensor.extract", "memref.load")
_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui")


@dataclass(frozen=True)
class Run:
    """An index as a function of one loop: ``index + shift``, at least ``low`` and at most ``high`` (None: no limit); with
    ``step`` 0, the same for all indices of the loop."""

    step: int
    shift: int = 0
    low: int | None = None
    high: int | None = None

    def moved(self, number: int) -> Run:
        """``number`` more."""
        low, high = (None if limit is None else limit + number for limit in (self.low, self.high))
        return Run(self.step, self.shift + number, low, high)

    def limited(self, number: int, *, above: bool) -> Run:
        """At most (or at least) ``number``."""
        meet = min if above else max
        low = None if self.low is None else meet(self.low, number)
        high = None if self.high is None else meet(self.high, number)
        if above:
            return Run(self.step, self.shift, low, number if high is None else high)
        return Run(self.step, self.shift, number if low is None else low, high)

    def keeps_vectors(self, lanes: int) -> bool:
        """Does every aligned vector of ``lanes`` indices go along as a whole, or stay in one place as a whole?"""
        limits = [limit for limit in (self.low, self.high) if limit is not None]
        return self.step == 1 and self.shift % lanes == 0 and all(limit % lanes in (0, lanes - 1) for limit in limits)


_SAME = Run(0)


def gathers_of(node: Node) -> list[Any]:
    """The reads of tensors in the body of a node."""
    return [op.operation for op in node.body.operations if op.operation.name in GATHERS]


def sources_of(nodes: Iterable[Node]) -> list[Any]:
    """The tensors that they read, each once."""
    return list(dict.fromkeys(op.operands[0] for node in nodes for op in gathers_of(node)))


def can_gather(graph: KernelGraph) -> bool:
    """Do all reads in bodies go to static tensors from outside of the graph?"""
    own = {node.op for node in graph.nodes}
    for source in sources_of(graph.nodes):
        if not ir.ShapedType(source.type).has_static_shape or functions.defining_op(source) in own:
            return False
    return True


def strides_of(source: Any) -> list[int]:
    """Elements between neighbours along each dimension of a dense tensor."""
    shape = list(ir.ShapedType(source.type).shape)
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def follows(op: Any, node: Node, loop: int, same: Collection[int], lanes: int) -> Run | None:
    """How the innermost index of a read goes along ``loop`` of its node; None where vectors of ``lanes`` elements cannot be
    read.

    ``same``: numbers of the inputs that are the same for all indices of the loop.
    """
    *outer, last = list(op.operands)[1:] or [None]
    if last is None or any(_run(index, node, loop, same) != _SAME for index in outer):
        return None
    found = _run(last, node, loop, same)
    is_aligned = all(stride % lanes == 0 for stride in strides_of(op.operands[0])[:-1])
    return found if found is not None and found.keeps_vectors(lanes) and is_aligned else None


def _run(value: Any, node: Node, loop: int, same: Collection[int]) -> Run | None:
    arguments = list(node.body.arguments)
    if value in arguments:
        return _SAME if arguments.index(value) in same else None
    op = functions.defining_op(value)
    if op is None:
        return None
    if op.name == "linalg.index":
        return Run(1) if functions.integer(op.attributes["dim"]) == loop else _SAME
    runs = [_run(operand, node, loop, same) for operand in (list(op.operands)[1:] if op.name in GATHERS else op.operands)]
    if None in runs:
        return None
    if all(run == _SAME for run in runs):
        return _SAME
    if op.name in _CASTS:
        return runs[0]
    numbers = [_number(operand) for operand in op.operands]
    if op.name == "arith.addi" and numbers[0] is not None:
        runs, numbers = runs[::-1], numbers[::-1]
    if len(runs) != 2 or runs[0] is None or numbers[1] is None:
        return None
    run, number = runs[0], numbers[1]
    if op.name in ("arith.addi", "arith.subi"):
        return run.moved(number if op.name == "arith.addi" else -number)
    if op.name in ("arith.minsi", "arith.maxsi"):
        return run.limited(number, above=op.name == "arith.minsi")
    return None


def _number(value: Any) -> int | None:
    op = functions.defining_op(value)
    if op is None or op.name != "arith.constant" or not isinstance(op.attributes["value"], ir.IntegerAttr):
        return None
    return int(ir.IntegerAttr(op.attributes["value"]).value)
