"""A kernel as a graph: structured ops over named tensors, the same whether the ops stand on tensors or on memrefs.

Takes the ops of a group, or a kernel function; emitters match on it and write their kernels from it.  Bodies of linalg ops
are cloned into a kernel, one scalar at a time, by :meth:`Node.inline`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.kernels import TF32_ATTRIBUTE
from mlirstack.passes import functions
from mlirstack.passes.grouping import outermost
from mlirstack.passes.regions import clone_with, external_values
from mlirstack.schedules.cuda import bounds
from mlirstack.schedules.cuda.extent import Extent


@dataclass(eq=False)
class Tensor:
    """A tensor of the graph: an argument of the kernel, or what a node leaves behind.

    ``value`` is the MLIR value (tensor or memref) that first held it; ``shape`` has None where a size is dynamic, in graphs
    :meth:`within bounds <KernelGraph.bounded>` the most that it can be, and ``varying`` is the dimension where that is so.
    """

    value: Any
    shape: tuple[int | None, ...]
    element: Any  # MLIR type
    producer: Node | None = None
    users: list[Node] = field(default_factory=list)
    varying: int | None = None

    @property
    def is_argument(self) -> bool:
        """Does it come from outside?"""
        return self.producer is None

    @property
    def is_static(self) -> bool:
        """Are all sizes known?"""
        return None not in self.shape

    @property
    def count(self) -> int:
        """Number of elements; only for static shapes."""
        total = 1
        for size in self.shape:
            assert size is not None
            total *= size
        return total

    @property
    def bytes(self) -> int:
        """Size in memory (an i1 takes a byte)."""
        return self.count * max(1, self.element.width // 8)


@dataclass(eq=False)
class Operand:
    """What a node reads or writes: a tensor through an affine map, or a scalar (``tensor`` None, ``value`` set).

    ``dims``: the loop that indexes each dimension of the tensor; None where it is an expression.
    """

    tensor: Tensor | None
    value: Any
    map: Any
    dims: tuple[int | None, ...]


@dataclass(eq=False)
class Node:
    """One op.  For structured linalg ops all fields are set; anything else (views, scans, slices) has no ``iterators``.

    ``initial``: per output what an accumulation starts from: a scalar MLIR value (a fill), a :class:`Tensor`, or None where
    the old value is not read.
    """

    op: Any
    inputs: list[Operand]
    outputs: list[Operand]
    initial: list[Any]
    iterators: tuple[str, ...] = ()
    sizes: tuple[int | None, ...] = ()

    @property
    def name(self) -> str:
        """Name of the op."""
        return str(self.op.name)

    @property
    def varying(self) -> int | None:
        """The loop that goes along dimensions that vary; None where all sizes are known."""
        for operand in (*self.inputs, *self.outputs):
            if operand.tensor is not None and operand.tensor.varying is not None and operand.dims:
                return operand.dims[operand.tensor.varying]
        return None

    @property
    def is_structured(self) -> bool:
        """Is it a linalg op with loops and a body?"""
        return bool(self.iterators) or (
            self.name.startswith("linalg.") and bool(self.outputs) and self.name != "linalg.fill"
        )

    @property
    def reductions(self) -> tuple[int, ...]:
        """Numbers of the loops that are reductions."""
        return tuple(i for i, kind in enumerate(self.iterators) if kind == "reduction")

    @property
    def body(self) -> Any:
        """The block of scalar ops: one argument per operand, then a yield."""
        return self.op.regions[0].blocks[0]

    def inline(
        self,
        scalars: Sequence[Any],
        indices: Sequence[Any] = (),
        outside: Mapping[Any, Any] | None = None,
        replace: Callable[[Any, Callable[[Any], Any]], Any] | None = None,
    ) -> list[Any]:
        """Clone the body at the insertion point; ``scalars``: one MLIR value per operand (inputs, then outputs).

        ``indices`` are what ``linalg.index`` of each loop is: values of type index.  Of the values from outside the body,
        constants are cloned too, and ``outside`` says what stands for others.  ``replace(op, value)`` may write something
        else in the place of an op and return its result, or None to have it cloned; ``value`` maps values of the body to
        the new ones.  Returns what is yielded.
        """
        mapping = dict(outside or {}) | dict(zip(self.body.arguments, scalars, strict=True))
        *ops, leave = list(self.body.operations)
        for op in ops:
            operation = op.operation
            if operation.name == "linalg.index":
                mapping[operation.results[0]] = indices[functions.integer(operation.attributes["dim"])]
                continue
            _clone_constants(operation, mapping)
            replaced = replace(operation, mapping.__getitem__) if replace is not None else None
            if replaced is not None:
                mapping[operation.results[0]] = replaced
                continue
            copy = clone_with(operation, mapping)
            mapping.update(zip(operation.results, copy.results, strict=True))
        _clone_constants(leave.operation, mapping)
        return [mapping.get(value, value) for value in leave.operation.operands]

    def body_ops(self) -> list[str]:
        """Names of the ops of the body, the yield left out."""
        return [op.operation.name for op in self.body.operations][:-1]

    @property
    def is_closed(self) -> bool:
        """Does the body read no number from outside but constants?"""
        outside = (value for value in external_values(self.op) if value not in list(self.op.operands))
        return all(_constant(value) is not None or isinstance(value.type, ir.ShapedType) for value in outside)

    @property
    def allows_tf32(self) -> bool:
        """May factors be rounded to TF32?  See :mod:`mlirstack.passes.cuda.allow_tf32`."""
        return any(TF32_ATTRIBUTE in op.operation.attributes for op in self.body.operations)


class KernelGraph:
    """Nodes in program order, the tensors that come from outside, and those that leave: ``results``, in order of the nodes.

    The last op's outputs always leave; besides, on tensors, what others use, on memrefs, what arguments hold at the end.
    ``most``: what shapes say of sizes that are known at run time only; ``extent``: what these are.
    """

    def __init__(self, ops: Sequence[Any], most: int | None = None, extent: Extent | None = None) -> None:
        self.extent = extent
        self._ops, self._most = list(ops), most
        self.nodes: list[Node] = []
        self.arguments: list[Tensor] = []
        self._current: dict[Any, Tensor] = {}  # MLIR value → what it holds now
        self._fills: dict[Any, Any] = {}  # MLIR value → the scalar that fills it
        self._viewed: dict[Any, tuple[Any, Tensor]] = {}  # view of a buffer → its op, and what the buffer held then
        for op in ops:
            self._add(op)
        self.results: list[Tensor] = self._leaving()

    @staticmethod
    def of(function: Any) -> KernelGraph:
        """The graph of a kernel function, on tensors or on memrefs."""
        return KernelGraph([op.operation for op in list(function.regions[0].blocks[0].operations)[:-1]])

    def bounded(self) -> KernelGraph | None:
        """The same graph with numbers for all sizes, where one varies and is that of outermost dimensions; see
        :mod:`mlirstack.schedules.cuda.bounds`.  None where others do."""
        if all(tensor.is_static for tensor in self.tensors()):
            return self
        found = bounds.extent_of(self)
        return None if found is None else KernelGraph(self._ops, *found)

    def tensors(self) -> list[Tensor]:
        """All tensors that nodes read and write."""
        return [t for node in self.nodes for t in (*_tensors(node.inputs), *_tensors(node.outputs))]

    def structured(self) -> list[Node]:
        """The linalg ops with loops, in order."""
        return [node for node in self.nodes if node.is_structured]

    @property
    def is_plain(self) -> bool:
        """Nothing but linalg ops with loops over static shapes?"""
        return all(node.is_structured for node in self.nodes) and all(t.is_static for t in self.tensors())

    def _leaving(self) -> list[Tensor]:
        members = {node.op for node in self.nodes}
        last = next((node for node in reversed(self.nodes) if node.outputs), None)
        kept: dict[Any, Tensor] = {}  # result or argument → the tensor that leaves there
        for node in self.nodes:
            for position, operand in enumerate(node.outputs):
                if operand.tensor is None:
                    continue
                if len(node.op.results):
                    result = node.op.results[position]
                    if node is last or any(
                        outermost(use.owner.operation, node.op.block) not in members for use in result.uses
                    ):
                        kept[result] = operand.tensor
                elif node is last or isinstance(operand.value.owner, ir.Block):
                    kept.pop(operand.value, None)
                    kept[operand.value] = operand.tensor
        return list(kept.values())

    def _add(self, op: Any) -> None:
        name = op.name
        if name in ("tensor.empty", "memref.alloc", "memref.dealloc") or (name.startswith("arith.") and not _shaped(op)):
            return
        if name == "linalg.fill":
            self._fill(op)
        elif name == "memref.copy" and _is_temporary(op.operands[1]):
            self._copy(*op.operands)
        elif name.startswith("linalg.") and dialect("linalg").get_indexing_maps(op) is not None:
            self._add_structured(op)
        else:
            self._add_other(op)

    def _fill(self, op: Any) -> None:
        scalar, target = op.operands
        for value in (*op.results, target):
            self._fills[value] = scalar
            self._current.pop(value, None)

    def _copy(self, source: Any, target: Any) -> None:
        """A temporary that holds what another buffer holds: bufferization makes them where a value is needed twice."""
        if source in self._fills:
            self._fills[target] = self._fills[source]
        else:
            self._fills.pop(target, None)
            self._current[target] = self._lookup(source)

    def _add_structured(self, op: Any) -> None:
        maps = [ir.AffineMapAttr(m).value for m in dialect("linalg").get_indexing_maps(op)]
        count = _output_count(op)
        operands = list(op.operands)
        split = len(operands) - count
        node = Node(op, [], [], [], _iterators(op, maps[0].n_dims, maps[split:]))
        node.inputs = [self._read(node, v, m) for v, m in zip(operands[:split], maps[:split], strict=True)]
        for value, affine in zip(operands[split:], maps[split:], strict=True):
            node.initial.append(self._initial(node, value, node.body.arguments[len(node.inputs) + len(node.initial)]))
            node.outputs.append(Operand(self._tensor(value, node), value, affine, _dims(affine)))
        node.sizes = _sizes(maps[0].n_dims, (*node.inputs, *node.outputs))
        for position, operand in enumerate(node.outputs):
            self._write(operand, operands[split + position], op.results[position] if len(op.results) else None)
        self.nodes.append(node)

    def _add_other(self, op: Any) -> None:
        node = Node(op, [], [], [])
        if op.name.startswith("memref."):  # a view may be written: the buffer is no longer one number everywhere
            for value in op.operands:
                self._fills.pop(value, None)
        node.inputs = [self._read(node, value, None) for value in external_values(op) if _shaped_type(value.type)]
        for result in op.results:
            if _shaped_type(result.type):
                tensor = self._tensor(result, node)
                node.outputs.append(Operand(tensor, result, None, ()))
                self._current[result] = tensor
                source = node.inputs[0].tensor if op.name.startswith("memref.") and node.inputs else None
                if source is not None:
                    self._viewed[result] = (op, source)
        self.nodes.append(node)

    def _read(self, node: Node, value: Any, affine: Any) -> Operand:
        if not _shaped_type(value.type):
            return Operand(None, value, affine, ())
        if value in self._fills and affine is not None:  # one number everywhere; its buffer is never written
            return Operand(None, self._fills[value], affine, ())
        tensor = self._lookup(value)
        tensor.users.append(node)
        return Operand(tensor, value, affine, _dims(affine) if affine is not None else ())

    def _lookup(self, value: Any) -> Tensor:
        view, source = self._viewed.get(value, (None, None))
        if view is not None and view.operands[0] in self._current and self._lookup(view.operands[0]) is not source:
            self._add_other(view)  # the buffer was written since: the same view is of something else now
        if value not in self._current:
            self._current[value] = self._tensor(value, None)
            self.arguments.append(self._current[value])
        return self._current[value]

    def _initial(self, node: Node, value: Any, body_argument: Any) -> Any:
        """What ``value`` holds before the op, where the body reads it."""
        if not any(True for _ in body_argument.uses):
            return None
        producer = functions.defining_op(value)
        if value in self._fills:
            return self._fills[value]
        if value not in self._current and producer is not None and producer.name == "linalg.fill":
            return producer.operands[0]
        tensor = self._lookup(value)
        tensor.users.append(node)
        return tensor

    def _write(self, operand: Operand, target: Any, result: Any) -> None:
        assert operand.tensor is not None
        written = target if result is None else result  # an op on tensors leaves its target as it was
        self._current[written] = operand.tensor
        self._fills.pop(written, None)

    def _tensor(self, value: Any, producer: Node | None) -> Tensor:
        kind = ir.ShapedType(value.type)
        shape = tuple(self._most if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))
        varying = None if kind.has_static_shape or self._most is None else shape.index(self._most)
        return Tensor(value, shape, kind.element_type, producer, varying=varying)


def _tensors(operands: Sequence[Operand]) -> Iterator[Tensor]:
    return (o.tensor for o in operands if o.tensor is not None)


def _is_temporary(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and producer.name == "memref.alloc"


def _shaped_type(kind: Any) -> bool:
    return isinstance(kind, (ir.RankedTensorType, ir.MemRefType))


def _shaped(op: Any) -> bool:
    return any(_shaped_type(result.type) for result in op.results)


def _output_count(op: Any) -> int:
    if len(op.results):
        return len(op.results)
    segments = op.attributes["operandSegmentSizes"]
    return int(ir.DenseI32ArrayAttr(segments)[1])


def _iterators(op: Any, loops: int, output_maps: Sequence[Any]) -> tuple[str, ...]:
    """ "parallel" for the loops that index an output, "reduction" for the others."""
    if "iterator_types" in op.attributes:
        return tuple(str(a).partition("<")[2].rstrip(">") for a in ir.ArrayAttr(op.attributes["iterator_types"]))
    written = {dim for affine in output_maps for dim in _dims(affine)}
    return tuple("parallel" if dim in written else "reduction" for dim in range(loops))


def _dims(affine: Any) -> tuple[int | None, ...]:
    return tuple(e.position if isinstance(e, ir.AffineDimExpr) else None for e in affine.results)


def _sizes(loops: int, operands: Sequence[Operand]) -> tuple[int | None, ...]:
    sizes: list[int | None] = [None] * loops
    for operand in operands:
        for position, dim in enumerate(operand.dims):
            if operand.tensor is not None and dim is not None and operand.tensor.shape[position] is not None:
                sizes[dim] = operand.tensor.shape[position]
    return tuple(sizes)


def _clone_constants(operation: Any, mapping: dict[Any, Any]) -> None:
    """Constants that stand outside of the body, copied to the insertion point."""
    for value in external_values(operation):
        constant = _constant(value)
        if value not in mapping and constant is not None:
            mapping[value] = constant.clone().operation.results[0]


def _constant(value: Any) -> Any | None:
    """The constant that ``value`` is the result of."""
    producer = functions.defining_op(value)
    return producer if producer is not None and producer.name in ("arith.constant", "complex.constant") else None
