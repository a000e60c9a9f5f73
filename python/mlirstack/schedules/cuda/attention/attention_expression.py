"""Elementwise parts of a kernel graph as expressions: a tensor written as scalar ops over elements of other tensors.

Takes tensors of a :class:`~mlirstack.schedules.cuda.graph.KernelGraph`; looks through elementwise nodes, views, transposes
and repetitions, so that it does not matter how fusion has cut the graph into nodes.  Leaves expressions that can be
compared, and written into a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.passes.regions import clone_with
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, Layout, dimension
from mlirstack.schedules.cuda.graph import Node, Operand, Tensor

Move = Callable[[Layout], Layout | None]  # how a view changes where an index leads; None: not as digits
_VIEWS = ("collapse_shape", "expand_shape", "extract_slice", "subview")


@dataclass(frozen=True)
class Element:
    """The element of ``tensor`` at the place that ``layout`` says."""

    tensor: Tensor
    layout: Layout


@dataclass(frozen=True)
class Position:
    """A number: the place that ``layout`` says.  ``linalg.index`` and constants 0, 1, 2, … are such."""

    layout: Layout
    kind: Any  # MLIR type


@dataclass(frozen=True)
class Apply:
    """A scalar op (constants are ops without arguments).  ``text`` tells ops apart: name, attributes, type."""

    text: str
    arguments: tuple[Expression, ...]
    op: Any = field(compare=False)

    @property
    def name(self) -> str:
        """Name of the op."""
        return self.text.partition(" ")[0]


Expression = Union[Element, Position, Apply]  # noqa: UP007 — Apply names it before it is defined


def constant(expression: Expression) -> float | None:
    """The value of a floating-point or integer constant; None for anything else."""
    if not isinstance(expression, Apply) or expression.name != "arith.constant":
        return None
    value = expression.op.attributes["value"]
    if isinstance(value, ir.FloatAttr):
        return float(value.value)
    return float(ir.IntegerAttr(value).value) if isinstance(value, ir.IntegerAttr) else None


def uncast(expression: Expression) -> Expression:
    """Without conversions between floating-point types around it."""
    while isinstance(expression, Apply) and expression.name in ("arith.extf", "arith.truncf"):
        expression = expression.arguments[0]
    return expression


def factors_of(expression: Expression) -> tuple[list[Expression], float]:
    """Factors of a product that are no constants, without conversions, and the product of the constants.

    A constant that is divided by is a factor as well.
    """
    expression = uncast(expression)
    value = constant(expression)
    if value is not None:
        return [], value
    if not isinstance(expression, Apply) or expression.name not in ("arith.mulf", "arith.divf"):
        return [expression], 1.0
    left, right = (factors_of(argument) for argument in expression.arguments)
    if expression.name == "arith.mulf":
        return left[0] + right[0], left[1] * right[1]
    is_constant = not right[0] and right[1] != 0.0
    return (left[0], left[1] / right[1]) if is_constant else ([expression], 1.0)


def leaves(expression: Expression) -> Iterator[Element | Position]:
    """All elements and positions, each once."""
    seen: set[int] = set()
    stack = [expression]
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Apply):
            stack += reversed(current.arguments)
        else:
            yield current


def replace_leaves(expression: Expression, change: Callable[[Any], Expression | None]) -> Expression | None:
    """``expression`` with each leaf replaced; None if ``change`` gives None for one."""
    done: dict[int, Expression | None] = {}

    def visit(current: Expression) -> Expression | None:
        if id(current) not in done:
            done[id(current)] = rebuilt(current) if isinstance(current, Apply) else change(current)
        return done[id(current)]

    def rebuilt(current: Apply) -> Expression | None:
        arguments = [visit(argument) for argument in current.arguments]
        if any(argument is None for argument in arguments):
            return None
        return Apply(current.text, tuple(a for a in arguments if a is not None), current.op)

    return visit(expression)


def move(expression: Expression, change: Move) -> Expression | None:
    """The same values seen through a view."""

    def moved(leaf: Element | Position) -> Expression | None:
        layout = change(leaf.layout)
        if layout is None:
            return None
        return Element(leaf.tensor, layout) if isinstance(leaf, Element) else Position(layout, leaf.kind)

    return replace_leaves(expression, moved)


def emit(expression: Expression, leaf: Callable[[Element | Position], Any]) -> Any:
    """Write an expression at the insertion point; ``leaf`` gives the MLIR value of an element or a position."""
    done: dict[int, Any] = {}

    def visit(current: Expression) -> Any:
        if id(current) not in done:
            if isinstance(current, Apply):
                operands = [visit(argument) for argument in current.arguments]
                mapping = dict(zip(current.op.operands, operands, strict=True))
                done[id(current)] = clone_with(current.op, mapping).results[0]
            else:
                done[id(current)] = leaf(current)
        return done[id(current)]

    return visit(expression)


class Expressions:
    """Expressions of the tensors of a graph; ``visited`` collects the nodes that were looked through.

    ``only``: the ops that an elementwise node may have to be looked through (constants always); None for all.
    """

    def __init__(self, only: frozenset[str] | None = None) -> None:
        self._only = only
        self._known: dict[Tensor, Expression] = {}
        self.visited: set[Node] = set()

    def of(self, tensor: Tensor) -> Expression:
        """``tensor`` over its own dimensions."""
        if tensor not in self._known:
            self._known[tensor] = self._look_through(tensor) or Element(tensor, Layout.dense(_static(tensor)))
        return self._known[tensor]

    def operand(self, node: Node, number: int) -> Expression | None:
        """What input ``number`` of a node reads, over the loops of the node; None where the map is no choice of loops."""
        operand = node.inputs[number]
        if operand.tensor is None:
            return None
        change = _reading(operand, node)
        return move(self.of(operand.tensor), change) if change is not None else None

    def body(self, node: Node, result: int, arguments: Mapping[int, Expression]) -> Expression | None:
        """What the body of a node yields, over its loops; ``arguments`` stand for the body's arguments of these numbers.

        None where the body has ops with regions, or reads what is not known.
        """
        inside = list(node.body.arguments)
        values: dict[Any, Expression | None] = {inside[number]: value for number, value in arguments.items()}

        def value_of(value: Any) -> Expression | None:
            if value not in values:
                values[value] = argument(value) if value in inside else computed(functions.defining_op(value))
            return values[value]

        def argument(value: Any) -> Expression | None:
            number = inside.index(value)
            return self.operand(node, number) if number < len(node.inputs) else None

        def computed(op: Any | None) -> Expression | None:
            if op is None or len(op.regions) or len(op.results) != 1 or isinstance(op.results[0].type, ir.ShapedType):
                return None
            if op.name == "linalg.index":
                return _loop_index(functions.integer(op.attributes["dim"]), node, op.results[0].type)
            if op.name.partition(".")[0] not in ("arith", "math"):
                return None
            operands = [value_of(operand) for operand in op.operands]
            if any(operand is None for operand in operands):
                return None
            return Apply(_text(op), tuple(o for o in operands if o is not None), op)

        return value_of(functions.yield_op(node.body).operands[result])

    # ---------------------------------------------------------------------------------------------------- one step back

    def _look_through(self, tensor: Tensor) -> Expression | None:
        node = tensor.producer
        if node is None or not tensor.is_static:
            return None
        found: Expression | None
        if node.name == "arith.constant":
            found = _iota(tensor)
        elif is_view(node):
            source = node.inputs[0].tensor
            change = _view(node, tensor)
            found = move(self.of(source), change) if source is not None and change is not None else None
        elif is_elementwise(node) and (self._only is None or self._only.issuperset(node.body_ops())):
            found = self._elementwise(node, tensor)
        else:
            return None
        if found is not None:
            self.visited.add(node)
        return found

    def _elementwise(self, node: Node, tensor: Tensor) -> Expression | None:
        number = next(i for i, operand in enumerate(node.outputs) if operand.tensor is tensor)
        order = [loop for loop in node.outputs[number].dims if loop is not None]
        if sorted(order) != list(range(len(node.iterators))) or len(order) != len(tensor.shape):
            return None
        expression = self.body(node, number, {})
        return move(expression, lambda layout: layout.permute(order)) if expression is not None else None


def is_elementwise(node: Node) -> bool:
    """One scalar computed per index, and nothing accumulated?"""
    return (
        node.is_structured
        and not node.reductions
        and all(initial is None for initial in node.initial)
        and None not in node.sizes
    )


def is_iota(tensor: Tensor) -> bool:
    """Is it a constant 0, 1, 2, …?"""
    node = tensor.producer
    return node is not None and node.name == "arith.constant" and tensor.is_static and _iota(tensor) is not None


def is_view(node: Node) -> bool:
    """Does it only rename the indices of its first operand?"""
    dialect_name, _, name = node.name.partition(".")
    return dialect_name in ("tensor", "memref") and name in _VIEWS and bool(node.inputs) and len(node.op.operands) == 1


def uses_outside(tensor: Tensor, group: set[Node]) -> bool:
    """Is ``tensor`` read by a node outside of ``group``, directly or through views?"""
    for node in tensor.users:
        if is_view(node):
            views = [operand.tensor for operand in node.outputs if operand.tensor is not None]
            if any(uses_outside(view, group) for view in views):
                return True
        elif node not in group:
            return True
    return False


def _static(tensor: Tensor) -> list[int]:
    assert tensor.is_static
    return [size for size in tensor.shape if size is not None]


def _reading(operand: Operand, node: Node) -> Move | None:
    """From dimensions of an operand's tensor to loops of the node; loops that do not occur repeat what is read."""
    assert operand.tensor is not None
    shape, sizes = _static(operand.tensor), node.sizes
    used = [loop for loop in operand.dims if loop is not None]
    if len(set(used)) != len(used):
        return None
    for size, loop in zip(shape, operand.dims, strict=True):
        if (loop is None and size != 1) or (loop is not None and sizes[loop] != size):
            return None

    def change(layout: Layout) -> Layout:
        found: list[Dimension] = [dimension([(size or 1, 0)]) for size in sizes]
        for digits, loop in zip(layout.dimensions, operand.dims, strict=True):
            if loop is not None:
                found[loop] = digits
        return Layout(tuple(found), layout.offset)

    return change


def _loop_index(loop: int, node: Node, kind: Any) -> Position:
    digits = [dimension([(size or 1, int(i == loop))]) for i, size in enumerate(node.sizes)]
    return Position(Layout(tuple(digits)), kind)


def _iota(tensor: Tensor) -> Position | None:
    """A constant 0, 1, 2, …"""
    assert tensor.producer is not None
    value = tensor.producer.op.attributes["value"]
    if len(tensor.shape) != 1 or not isinstance(value, ir.DenseIntElementsAttr):
        return None
    numbers = [int(number) for number in value]
    return Position(Layout.dense(_static(tensor)), tensor.element) if numbers == list(range(len(numbers))) else None


def _view(node: Node, result: Tensor) -> Move | None:
    source = node.inputs[0].tensor
    if source is None or not source.is_static or not result.is_static:
        return None
    name, attributes = node.name.partition(".")[2], node.op.attributes
    if name in ("collapse_shape", "expand_shape"):
        groups = [[functions.integer(i) for i in group] for group in ir.ArrayAttr(attributes["reassociation"])]
        if name == "collapse_shape":
            return lambda layout: layout.collapse(groups)
        return lambda layout: layout.expand(groups, _static(result))
    offsets, sizes, steps = ([int(n) for n in attributes[f"static_{key}"]] for key in ("offsets", "sizes", "strides"))
    kept = _kept(sizes, _static(result))
    if kept is None:
        return None

    def change(layout: Layout) -> Layout | None:
        part = layout.slice(offsets, sizes, steps)
        return part.permute(kept) if part is not None else None

    return change


def _kept(sizes: list[int], shape: list[int]) -> list[int] | None:
    """Numbers of the dimensions that a slice keeps; the dropped ones have size 1."""
    kept: list[int] = []
    for number, size in enumerate(sizes):
        if len(kept) < len(shape) and size == shape[len(kept)]:
            kept.append(number)
        elif size != 1:
            return None
    return kept if len(kept) == len(shape) else None


def _text(op: Any) -> str:
    attributes = sorted(f"{name}={op.attributes[name]}" for name in op.attributes)
    return f"{op.name} {' '.join(attributes)} : {op.results[0].type}"
