"""What a kernel of the stream emitters can compute, and what the values of its graph are there.

Takes the nodes of a graph; says whether their bodies and element types can be written into a kernel, and makes the kernel's
parameters for the tensors and scalars that they use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.regions import external_values
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.approximate import Approximation, Value, rounded_tensors
from mlirstack.schedules.cuda.stream.gathers import GATHERS, sources_of
from mlirstack.schedules.cuda.values import Int

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.kernel import Kernel


class Bindings:
    """What the values of a graph are in a kernel: pointers and scalars that the host passes, fast forms of functions.

    ``tensors``: what the kernel reads and writes, besides what bodies read at computed places; ``results``: the tensors of
    the graph that are stored.
    """

    def __init__(self, kernel: Kernel, graph: KernelGraph, tensors: Iterable[Tensor], results: Collection[Tensor]) -> None:
        self._pointers: dict[Any, Any] = {}
        self._scalars: dict[Any, Any] = {}
        for tensor in tensors:
            if tensor.value not in self._pointers:
                self._pointers[tensor.value] = kernel.pointer(tensor.value)
        for value in sources_of(graph.nodes):
            if value not in self._pointers:
                self._pointers[value] = kernel.pointer(value)
        for value in _scalars_of(graph.nodes):
            if functions.defining_op(value) is None and value not in self._scalars:
                self._scalars[value] = kernel.scalar(value)
        rounded = rounded_tensors(graph, results)
        self._forms = {node: Approximation(kernel, node, rounded) for node in graph.nodes}

    def pointer(self, tensor: Tensor) -> Any:
        """Where a tensor starts."""
        return self._pointers[tensor.value]

    def source(self, value: Any) -> Any:
        """Where a tensor starts that bodies read at computed places."""
        return self._pointers[value]

    def scalar(self, value: Any) -> Any:
        """A scalar of the host in the kernel: a parameter, or the constant made again."""
        if value in self._scalars:
            return self._scalars[value]
        producer = functions.defining_op(value)
        assert producer is not None, "scalars are parameters or constants"
        return producer.clone().operation.results[0]

    def forms(self, node: Node) -> Callable[[Any, Value], Any]:
        """What may take the place of ops in the body of a node."""
        approximation = self._forms[node]
        return lambda op, value: _widened(op, value) or approximation(op, value)


def _widened(op: Any, value: Value) -> Any:
    """bf16 as f32 by its bits, one instruction where two share a register; None for all other ops."""
    if op.name != "arith.extf" or (op.operands[0].type, op.results[0].type) != (ir.BF16Type.get(), ir.F32Type.get()):
        return None
    found = vectors.shared_register(value(op.operands[0]))
    if found is None:
        return None
    word, number = Int(found[0]), found[1]
    return dialect("arith").BitcastOp(op.results[0].type, (word & -(1 << 16) if number else word << 16).value).result


def _scalars_of(nodes: Sequence[Node]) -> Iterable[Any]:
    for node in nodes:
        yield from (operand.value for operand in node.inputs if operand.tensor is None)
        yield from (start for start in node.initial if start is not None and not isinstance(start, Tensor))


def is_computable(element: Any) -> bool:
    """Is it an element type that kernels compute with: booleans, integers of 8 to 64 bits, floats of 16 to 64 bits?"""
    if isinstance(element, ir.IntegerType):
        return element.width in (1, 8, 16, 32, 64)
    return isinstance(element, (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type))


def has_plain_bodies(nodes: Iterable[Node], *, gathers: bool = False) -> bool:
    """Are all bodies made of arith and math ops (and linalg.index) on their operands and on constants alone?

    ``gathers``: they may read tensors at places that they compute.
    """
    allowed = ("arith.", "math.", "linalg.index", *(GATHERS if gathers else ()))
    return all(name.startswith(allowed) and name != "math.ipowi" for node in nodes for name in node.body_ops()) and all(
        _outside_is_constant(node) for node in nodes
    )


def _outside_is_constant(node: Node) -> bool:
    operands = {*node.op.operands, *sources_of([node])}
    producers = [functions.defining_op(value) for value in external_values(node.op) if value not in operands]
    return all(producer is not None and producer.name == "arith.constant" for producer in producers)
