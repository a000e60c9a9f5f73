"""Linalg operations as plain data: loop sizes, iterator kinds, indexing maps, what the body computes.

In come operations of an MLIR module, out go frozen records over which schedules decide.  A module of its own, because
every target's schedules ask the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import functions, walk

KERNEL_ATTRIBUTE = "mlirstack.kernel"

# Ops of a linalg body that stand for one scalar operation and have a vector form of the same name.
_SCALAR_DIALECTS = ("arith.", "math.")
_NOT_VECTORIZABLE = frozenset({"arith.constant_index"})
# Combiners of which a reduction can keep several partial results (associative, with a neutral element).
_COMBINERS = frozenset(
    {
        "arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
        "arith.addi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui",
        "arith.andi", "arith.ori", "arith.xori",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """One tensor operand of a linalg op: which loop indexes each of its dimensions (None: not a plain loop index).

    ``shape`` holds static sizes, None for a dynamic one; scalars have no dimensions.  ``expressions`` are the affine
    expressions behind ``dims``.
    """

    value: Any
    shape: tuple[int | None, ...]
    dims: tuple[int | None, ...]
    element: Any
    expressions: tuple[Any, ...] = ()

    @property
    def windows(self) -> tuple[int, ...]:
        """The loops of dimensions that are not plain: of a window that slides."""
        found = {d for dim, e in zip(self.dims, self.expressions, strict=True) if dim is None for d in expression_loops(e)}
        return tuple(sorted(found))

    @property
    def loops(self) -> tuple[int, ...]:
        """All loops that it varies with."""
        return tuple(sorted({d for d in self.dims if d is not None} | set(self.windows)))

    @property
    def plain(self) -> bool:
        """Is every dimension indexed by one loop alone, no loop twice?"""
        return None not in self.dims and len(set(self.dims)) == len(self.dims)


@dataclass(frozen=True)
class LinalgOp:
    """A linalg operation on tensors: its loops (static sizes, None where dynamic) and operands, in order."""

    op: Any
    name: str
    sizes: tuple[int | None, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @cached_property
    def reductions(self) -> tuple[int, ...]:
        """Loops that no output is indexed by: the reduction loops."""
        used = {dim for output in self.outputs for dim in output.dims}
        return tuple(d for d in range(len(self.sizes)) if d not in used)

    @property
    def parallel(self) -> tuple[int, ...]:
        """Loops that are not reductions."""
        return tuple(d for d in range(len(self.sizes)) if d not in self.reductions)

    @property
    def static(self) -> bool:
        """Are all loop sizes known?"""
        return None not in self.sizes

    @property
    def points(self) -> int:
        """Number of iterations of a static op."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Loop sizes of a static op."""
        return tuple(size for size in self.sizes if size is not None)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @property
    def body(self) -> list[Any]:
        """Operations of the body, the yield excluded; empty for ops without a region."""
        if not len(self.op.regions) or not len(self.op.regions[0].blocks):
            return []
        return [op.operation for op in list(self.op.regions[0].blocks[0].operations)[:-1]]

    @property
    def is_fill(self) -> bool:
        """Does it only write one scalar everywhere?"""
        return self.name == "linalg.fill"

    @property
    def element_bits(self) -> int:
        """Width of the widest element type that is read, written or computed with."""
        widths = [_bits(operand.element) for operand in self.operands]
        widths += [_bits(result.type) for op in self.body for result in op.results]
        return max(widths)

    @property
    def combiners(self) -> tuple[str, ...] | None:
        """For each output the op that folds a value into the accumulator; None where one is not of the known kind."""
        block = self.op.regions[0].blocks[0]
        accumulators = list(block.arguments)[len(block.arguments) - len(self.outputs) :]
        found: list[str] = []
        for accumulator, yielded in zip(accumulators, list(block.operations)[-1].operands, strict=True):
            users = [use.owner for use in accumulator.uses]
            producer = yielded.owner
            if len(users) != 1 or not isinstance(producer, (ir.Operation, ir.OpView)):
                return None
            if users[0].operation != producer.operation or producer.operation.name not in _COMBINERS:
                return None
            found.append(producer.operation.name)
        return tuple(found)

    @property
    def vectorizable(self) -> bool:
        """Can it be computed on vectors as it stands: no window slides, and :attr:`has_vector_body`?"""
        return self.has_vector_body and all(operand.plain for operand in self.operands)

    @property
    def has_vector_body(self) -> bool:
        """Can its body be computed on vectors: scalar arithmetic only, on element types of whole bytes?

        Booleans are refused where they are stored: a tensor of i1 takes a byte an element, a vector of i1 a bit.  So are
        reductions that fold what no element is in: MLIR's vectorizer adds a number once for a whole vector.
        """
        if not self.static or 0 in self.sizes:
            return False
        if any(_bits(operand.element) % 8 or not _is_number(operand.element) for operand in self.operands):
            return False
        if not all(op.name.startswith(_SCALAR_DIALECTS) and _is_scalar(op) for op in self.body):
            return False
        return not self.reductions or self._folds_elements()

    def _folds_elements(self) -> bool:
        """Does each accumulator take up what is computed from elements of an input?"""
        block = self.op.regions[0].blocks[0]
        arguments = list(block.arguments)
        elements = {argument for argument, operand in zip(arguments, self.inputs, strict=False) if operand.shape}
        for op in self.body:
            if elements.intersection(op.operands):
                elements.update(op.results)
        yielded = [value.owner for value in list(block.operations)[-1].operands]
        return all(
            isinstance(folded, (ir.Operation, ir.OpView)) and bool(elements.intersection(folded.operands))
            for folded in yielded
        )


def _bits(element: Any) -> int:
    if isinstance(element, (ir.IntegerType, ir.FloatType)):
        return int(element.width)
    return 64


def _is_number(element: Any) -> bool:
    return isinstance(element, (ir.IntegerType, ir.FloatType, ir.IndexType))


def _is_scalar(op: Any) -> bool:
    return all(_is_number(result.type) for result in op.results) and len(op.regions) == 0


def _operand(value: Any, affine_map: Any) -> Operand:
    dims = tuple(e.position if isinstance(e, ir.AffineDimExpr) else None for e in affine_map.results)
    if not isinstance(value.type, ir.RankedTensorType):
        return Operand(value, (), dims, value.type, tuple(affine_map.results))
    kind = ir.RankedTensorType(value.type)
    shape = tuple(None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))
    return Operand(value, shape, dims, kind.element_type, tuple(affine_map.results))


def expression_loops(expression: Any) -> tuple[int, ...]:
    """The loops that an affine expression varies with."""
    if isinstance(expression, ir.AffineDimExpr):
        return (expression.position,)
    if isinstance(expression, ir.AffineBinaryExpr):
        return (*expression_loops(expression.lhs), *expression_loops(expression.rhs))
    return ()


def coefficient(expression: Any, loop: int) -> int:
    """The factor of ``loop`` in a linear expression: 2 for loop 0 in ``d0 * 2 + d3``."""
    if isinstance(expression, ir.AffineDimExpr):
        return int(expression.position == loop)
    if isinstance(expression, ir.AffineAddExpr):
        return coefficient(expression.lhs, loop) + coefficient(expression.rhs, loop)
    if isinstance(expression, ir.AffineMulExpr) and isinstance(expression.rhs, ir.AffineConstantExpr):
        return coefficient(expression.lhs, loop) * int(expression.rhs.value)
    return 0


def linalg_op(op: Any) -> LinalgOp | None:
    """The record of ``op``, or None where it is no structured linalg op on tensors (linalg.pack, linalg.index, …)."""
    op = op.operation
    maps = dialect("linalg").get_indexing_maps(op) if op.name.startswith("linalg.") else None
    if maps is None:
        return None
    maps = [ir.AffineMapAttr(m).value for m in maps]
    values = list(op.operands)[: len(maps)]
    operands = [_operand(value, m) for value, m in zip(values, maps, strict=True)]
    sizes: list[int | None] = [None] * maps[0].n_dims
    for operand in operands:
        for dim, size in zip(operand.dims, operand.shape, strict=False):
            if dim is not None and size is not None:
                sizes[dim] = size
    count = len(op.results)
    if not count:
        return None
    return LinalgOp(op, op.name, tuple(sizes), tuple(operands[:-count]), tuple(operands[-count:]))


def linalg_ops(function: Any) -> tuple[LinalgOp, ...]:
    """All structured linalg ops of a function in program order: the order in which a schedule matches them."""
    found = (linalg_op(op) for op in walk(function))
    return tuple(op for op in found if op is not None)


def kernels(module: Any) -> Iterator[tuple[str, str, Any]]:
    """``(symbol, class, func.func)`` of every kernel in ``module``."""
    for function in functions(module):
        if KERNEL_ATTRIBUTE in function.attributes:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            yield name, ir.StringAttr(function.attributes[KERNEL_ATTRIBUTE]).value, function
