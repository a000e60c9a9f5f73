"""A kernel graph seen as a matrix product: ``C[b, m, n] = epilogue(Σ_k A[b, m, k] · B[b, n, k])``.

Takes a :class:`KernelGraph` with one multiply-add reduction and elementwise nodes around it, in any operand order and
layout; leaves sizes, strides and the steps that come after the product.  Every matrix-product emitter starts here, so that
none of them looks at loops or affine maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.extent import Extent, Size, ceil_div
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Operand, Tensor
from mlirstack.schedules.cuda.product.access import Access
from mlirstack.schedules.cuda.product.contraction_loops import Body, Roles, known, loop_strides, multiply_add

Loops = tuple[int | None, ...]  # per dimension of a tensor (or loop of a node): the contraction's loop; None for size 1


@dataclass(frozen=True)
class Matrix:
    """A factor: ``rows`` by K, once per batch.  Strides in elements; a batch stride of 0 shares the matrix.

    ``signed`` says how an integer element is extended; floating-point elements are always signed.  ``copied``: a kernel
    before the product lays it out so.  ``extent``: how many rows there are at run time, where ``rows`` is the most.
    """

    tensor: Tensor
    rows: int
    row_stride: int
    k_stride: int
    batch_strides: tuple[int, ...]
    signed: bool = True
    copied: bool = False
    extent: Extent | None = None

    @property
    def row_points(self) -> Size:
        """How many rows there are at run time."""
        return self.extent or self.rows

    @property
    def element(self) -> Any:
        """The MLIR type in memory."""
        return self.tensor.element

    @property
    def k_major(self) -> bool:
        """Is K the contiguous dimension?"""
        return self.k_stride == 1

    @property
    def is_contiguous(self) -> bool:
        """Is one of the two dimensions contiguous?"""
        return 1 in (self.row_stride, self.k_stride)

    @property
    def leading_stride(self) -> int:
        """Elements from one row to the next (``k_major``), or from one k to the next."""
        return self.row_stride if self.k_major else self.k_stride


@dataclass(frozen=True)
class Result:
    """A value computed earlier: output ``output`` of step ``step``; -1 is the product itself, -2 a second one beside it."""

    step: int
    output: int = 0


PRODUCT = Result(-1)
SECOND = Result(-2)
Source = Any  # an Access, a Result, a constant MLIR scalar, or None: not read


@dataclass(frozen=True)
class Step:
    """An elementwise node; ``sources``: what each operand of its body is (inputs, then outputs).

    ``positions``: per loop of the node its index, for ``linalg.index``: an :class:`Access` whose offset it is (None: 0).
    """

    node: Node
    sources: tuple[Source, ...]
    positions: tuple[Access | None, ...]


@dataclass(frozen=True)
class Output:
    """A tensor that leaves the kernel, where its elements lie, and which value it holds."""

    access: Access
    value: Result


@dataclass(frozen=True)
class Product:
    """A sum of products over K for each row, column and batch, whatever its factors, and what comes after it.

    ``batches`` are sizes of the batch axes, outermost first (empty: one product).  ``accumulator`` is the MLIR type that the
    sum has in the IR.  The product is ``scale * Σ + initial``; ``initial`` is an :class:`Access`, a :class:`Result`, a
    constant or None for zero.  ``row_points`` and ``batch_points`` are the numbers of rows and of products at run time, of
    which ``m`` and ``batch`` are the most.
    """

    node: Node
    m: int
    n: int
    k: int
    batches: tuple[int, ...]
    accumulator: Any
    scale: float
    initial: Source
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    row_points: Size
    batch_points: Size

    @property
    def batch(self) -> int:
        """Number of products."""
        total = 1
        for size in self.batches:
            total *= size
        return total

    @property
    def outer_batch_points(self) -> Size:
        """Size of the outermost batch axis at run time."""
        return ceil_div(self.batch_points, prod(self.batches[1:]))

    @property
    def flops(self) -> int:
        """Multiplications and additions of the products."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def extra_operands(self) -> tuple[Access, ...]:
        """What the steps read besides the product."""
        sources = [source for step in self.steps for source in step.sources] + [self.initial]
        return tuple(source for source in sources if isinstance(source, Access))


@dataclass(frozen=True)
class Contraction(Product):
    """A product of two matrices: ``a`` has the rows of the outputs, ``b`` their columns."""

    a: Matrix
    b: Matrix

    def sampled(self) -> list[Contraction]:
        """The product with some of the numbers of rows that it may have at run time: what a choice is to be good for."""
        if not isinstance(self.row_points, Extent):
            return [self]
        unit = self.row_points.factor
        most = min(self.m // unit, _SAMPLED_MOST)
        counts = [*(count for count in _SAMPLED if count < most), most]
        return [replace(self, m=count * unit, a=replace(self.a, rows=count * unit)) for count in counts]


_SAMPLED = (8, 64, 512)
_SAMPLED_MOST = 4096  # where there is no limit, or a distant one


def match_contraction(graph: KernelGraph) -> Contraction | None:
    """``graph`` as a matrix product; None where it is something else, or has a size 0 or one that is not known."""
    if not graph.is_plain:
        return None
    found = [node for node in graph.nodes if node.reductions]
    if len(found) != 1 or not all(found[0].sizes):
        return None
    body = multiply_add(found[0])
    roles = Roles.of(found[0], body, graph.extent) if body is not None else None
    if roles is None or body is None:
        return None
    product = product_around(graph, roles, body)
    if product is None:
        return None
    a, b = (matrix_of(roles, number, body.signed[number]) for number in (roles.first, 1 - roles.first))
    return Contraction(**{field.name: getattr(product, field.name) for field in fields(product)}, a=a, b=b)


def product_around(
    graph: KernelGraph, roles: Roles, body: Body, absorbed: Sequence[Node] = (), second: Node | None = None
) -> Product | None:
    """The product whose loops have these roles, with everything around it; None where something cannot be followed.

    ``absorbed``: nodes that are part of a factor.  ``second``: another product of the same loops, which steps may read too.
    """
    return _Builder(graph, roles, body, absorbed, second).build()


def matrix_of(roles: Roles, number: int, signed: bool) -> Matrix:
    operand = roles.node.inputs[number]
    strides = loop_strides(operand, len(roles.node.sizes))
    assert strides is not None and operand.tensor is not None
    rows = roles.rows if number == roles.first else roles.columns
    k = roles.size(roles.k)
    k_stride = strides[roles.k[-1]] if roles.k else 1
    row_stride = strides[rows[-1]] if rows else (k if k_stride == 1 else 1)
    batches = tuple(strides[group[-1]] for group in roles.batches)
    points = roles.points(rows)
    extent = points if isinstance(points, Extent) else None
    return Matrix(operand.tensor, roles.size(rows), row_stride, k_stride, batches, signed, extent=extent)


class _Builder:
    """Follows the graph from the product to the outputs, and from extra operands back to their tensors."""

    def __init__(self, graph: KernelGraph, roles: Roles, body: Body, absorbed: Sequence[Node], second: Node | None) -> None:
        self._graph = graph
        self._products = (roles.node,) if second is None else (roles.node, second)
        self._absorbed = frozenset(absorbed)
        self._roles = roles
        self._body = body
        self._steps: list[Step] = []
        self._done: dict[tuple[Node, Loops], int] = {}  # node at loops → its step
        self._places: dict[Tensor, tuple[Result, Loops]] = {}  # what depends on the product, and its dimensions' loops

    def build(self) -> Product | None:
        roles, node = self._roles, self._roles.node
        operand = node.outputs[0]
        assert operand.tensor is not None
        loops = self._clean(operand.dims)
        initial = self._initial(node.initial[0], loops)
        if initial is False:
            return None
        for product, result in zip(self._products, (PRODUCT, SECOND), strict=False):
            sums = product.outputs[0].tensor
            assert sums is not None
            self._places[sums] = (result, loops)
        for other in self._graph.nodes:
            if any(o.tensor in self._places for o in other.inputs) and not self._follow(other):
                return None
        outputs = self._outputs()
        used = {step.node for step in self._steps} | {*self._products} | self._absorbed
        if outputs is None or any(other not in used for other in self._graph.nodes):
            return None
        return Product(
            node, roles.size(roles.rows), roles.size(roles.columns), roles.size(roles.k),
            tuple(roles.size(group) for group in roles.batches), operand.tensor.element, self._body.scale, initial,
            tuple(self._steps), outputs, roles.points(roles.rows),
            roles.points([loop for group in roles.batches for loop in group]),
        )  # fmt: skip

    def _clean(self, loops: Loops) -> Loops:
        """Loops of size 1 left out: any index of theirs is 0."""
        return tuple(None if d is None or self._roles.node.sizes[d] == 1 else d for d in loops)

    def _strides(self, tensor: Tensor, loops: Loops) -> dict[int, int]:
        strides: dict[int, int] = {}
        step = 1
        for size, loop in zip(reversed(known(tensor.shape)), reversed(loops), strict=True):
            if loop is not None:
                strides[loop] = strides.get(loop, 0) + step
            step *= size
        return strides

    def _initial(self, initial: Any, loops: Loops) -> Source:
        """What the sum starts from; False where it cannot be followed."""
        if isinstance(initial, Tensor):
            return self._source(initial, loops)
        if initial is None:
            return False
        producer = functions.defining_op(initial)
        if producer is None or producer.name != "arith.constant":
            return False
        return None if _is_zero(producer.attributes["value"]) else initial

    def _follow(self, node: Node) -> bool:
        """Make a step of a node that reads the product or what came of it."""
        if node.reductions or len({o.tensor for o in node.outputs}) != len(node.outputs):
            return False
        loops: list[int | None] = [None] * len(node.sizes)
        for operand in node.inputs:
            if operand.tensor not in self._places:
                continue
            for dim, loop in zip(operand.dims, self._places[operand.tensor][1], strict=True):
                if dim is not None and loop is not None:
                    if loops[dim] not in (None, loop):
                        return False
                    loops[dim] = loop
        if any(loop is None and size != 1 for loop, size in zip(loops, node.sizes, strict=True)):
            return False
        return self._step(node, tuple(loops)) is not None

    def _step(self, node: Node, loops: Loops) -> int | None:
        """The number of the step that evaluates ``node``, whose loops are these loops of the contraction."""
        if (node, loops) in self._done:
            return self._done[node, loops]
        if not node.is_structured or node.reductions:
            return None
        sources: list[Source] = []
        for operand in node.inputs:
            source = self._operand(operand, loops)
            if source is False:
                return None
            sources.append(source)
        for operand, initial in zip(node.outputs, node.initial, strict=True):
            dims = tuple(None if d is None else loops[d] for d in operand.dims)
            source = self._source(initial, dims) if isinstance(initial, Tensor) else initial
            if source is False or (initial is not None and not isinstance(initial, Tensor) and not _is_constant(initial)):
                return None
            sources.append(source)
        roles = self._roles
        positions = tuple(None if loop is None else roles.position(loop) for loop in loops)
        number = len(self._steps)
        self._steps.append(Step(node, tuple(sources), positions))
        self._done[node, loops] = number
        for position, operand in enumerate(node.outputs):
            assert operand.tensor is not None
            dims = tuple(None if d is None else loops[d] for d in operand.dims)
            if any(s.step < 0 or self._depends(s.step) for s in sources if isinstance(s, Result)):
                self._places[operand.tensor] = (Result(number, position), dims)
        return number

    def _depends(self, step: int) -> bool:
        """Does a step depend on the product?"""
        return any(isinstance(s, Result) and (s.step < 0 or self._depends(s.step)) for s in self._steps[step].sources)

    def _operand(self, operand: Operand, loops: Loops) -> Source:
        if operand.tensor is None:
            return operand.value if _is_constant(operand.value) else False
        shape = known(operand.tensor.shape)
        if any(d is None and size != 1 for d, size in zip(operand.dims, shape, strict=True)):
            return False
        return self._source(operand.tensor, tuple(None if d is None else loops[d] for d in operand.dims))

    def _source(self, tensor: Tensor, loops: Loops) -> Source:
        """The value of ``tensor`` where its dimensions are these loops; False where it cannot be had."""
        if tensor in self._places:
            result, places = self._places[tensor]
            return result if places == loops else False
        if tensor.producer is None:
            return self._roles.access(tensor, self._strides(tensor, loops))
        node = tensor.producer
        if node in self._products:
            return False
        number = next(i for i, o in enumerate(node.outputs) if o.tensor is tensor)
        own: list[int | None] = [None] * len(node.sizes)
        for dim, loop in zip(node.outputs[number].dims, loops, strict=True):
            if dim is None:
                return False
            own[dim] = loop
        if any(loop is None and size != 1 for loop, size in zip(own, node.sizes, strict=True)):
            return False
        step = self._step(node, tuple(own))
        return False if step is None else Result(step, number)

    def _outputs(self) -> tuple[Output, ...] | None:
        outputs = []
        for tensor in _leaving(self._graph):
            if tensor not in self._places:
                return None
            result, loops = self._places[tensor]
            strides = self._strides(tensor, loops)
            if any(loop not in strides for loop in _wide(self._roles)):
                return None
            outputs.append(Output(self._roles.access(tensor, strides), result))
        return tuple(outputs) or None


def _wide(roles: Roles) -> tuple[int, ...]:
    return (*(loop for group in roles.batches for loop in group), *roles.rows, *roles.columns)


def _leaving(graph: KernelGraph) -> list[Tensor]:
    """Tensors that are read outside of the graph: on memrefs what is last written to each argument."""
    members = {node.op for node in graph.nodes}
    found: dict[Tensor, None] = dict.fromkeys(graph.results)
    written: dict[Any, Tensor] = {}
    for node in graph.nodes:
        for position, operand in enumerate(node.outputs):
            if operand.tensor is None:
                continue
            if len(node.op.results):
                users = {use.owner.operation for use in node.op.results[position].uses}
                if any(user not in members for user in users):
                    found.setdefault(operand.tensor)
            elif isinstance(operand.value.owner, ir.Block):
                written[operand.value] = operand.tensor
    for tensor in written.values():
        found.setdefault(tensor)
    return list(found)


def _is_constant(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and producer.name == "arith.constant"


def starts_at_zero(node: Node) -> bool:
    """Does a sum start from the constant zero?"""
    (initial,) = node.initial
    producer = None if initial is None or isinstance(initial, Tensor) else functions.defining_op(initial)
    return producer is not None and producer.name == "arith.constant" and _is_zero(producer.attributes["value"])


def _is_zero(attribute: Any) -> bool:
    kind: Callable[[Any], Any] = ir.FloatAttr if isinstance(attribute, ir.FloatAttr) else ir.IntegerAttr
    return bool(kind(attribute).value == 0)
