"""Sizes that are known at run time only: what they stem from, and the most that they can be.

Takes values of the host program: index arithmetic, and dimensions of tensors and memrefs.  Users say the most that
dimensions of inputs can be; importers note it on the arguments.  Nothing here changes the program but those notes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import function as function_named
from mlirstack.ir.ops import functions as functions_of
from mlirstack.passes import functions

MOST = "mlirstack.most"  # argument attribute: the most that each dimension can be; UNKNOWN where nobody knows
UNKNOWN = -1

# ----------------------------------------------------------------------------------------------------------------- notes


def mark_most(function: Any, shapes: Mapping[int, Sequence[int | None]]) -> None:
    """Note the most that the dimensions of the arguments at these positions can be; None: any number."""
    with function.context:
        attributes = functions.argument_attributes(function)
        for position, shape in shapes.items():
            numbers = [UNKNOWN if size is None else size for size in shape]
            attributes[position][MOST] = ir.DenseI64ArrayAttr.get(numbers)
        functions.set_argument_attributes(function, attributes)


def forget_most(module: Any) -> None:
    """Drop what :func:`mark_most` has noted, for compilers that do not know it."""
    with module.context:
        for function in functions_of(module):
            attributes = functions.argument_attributes(function)
            if any(MOST in given for given in attributes):
                kept = [{name: value for name, value in given.items() if name != MOST} for given in attributes]
                functions.set_argument_attributes(function, kept)


# ------------------------------------------------------------------------------------------------------------ dimensions

Dimension = Any  # an int, a value of type index, or (tensor or memref, axis) where nothing more is known

# The sizes of the result that vary are the last operands, in the order of the dimensions.
_WITH_SIZES = ("tensor.empty", "memref.alloc", "tensor.expand_shape", "tensor.extract_slice")


def dimension(value: Any, axis: int) -> Dimension:
    """What the size of dimension ``axis`` of a tensor or memref is, as the op that made it says."""
    kind = ir.ShapedType(value.type)
    if not kind.is_dynamic_dim(axis):
        return int(kind.get_dim_size(axis))
    op = functions.defining_op(value)
    if op is None:
        return value, axis
    if op.name.startswith("linalg."):  # destinations come last
        first = len(op.operands) - len(op.results)
        return dimension(op.operands[first + ir.OpResult(value).result_number], axis)
    if op.name in _WITH_SIZES:
        varying = [a for a in range(kind.rank) if kind.is_dynamic_dim(a)]
        return op.operands[len(op.operands) - len(varying) + varying.index(axis)]
    if op.name == "tensor.collapse_shape":
        others = [size for size in collapsed(op, axis) if size != 1]
        return others[0] if len(others) == 1 else (value, axis)
    return dimension(op.operands[0], axis) if op.name == "tensor.cast" else (value, axis)


def collapsed(op: Any, axis: int) -> list[Dimension]:
    """The dimensions of its operand that a ``tensor.collapse_shape`` makes dimension ``axis`` of."""
    group = ir.ArrayAttr(ir.ArrayAttr(op.attributes["reassociation"])[axis])
    return [dimension(op.operands[0], functions.integer(a)) for a in group]


def origin(size: Any) -> Dimension:
    """What a value of type index stems from; equal for sizes that are the same as far as this can tell."""
    op = functions.defining_op(size)
    if op is None:
        return size
    if op.name == "arith.constant":
        return functions.integer(op.attributes["value"])
    found = size
    if op.name in _DIMENSIONS and (axis := constant(op.operands[1])) is not None:
        found = dimension(op.operands[0], axis)
    elif op.name in DIVISIONS:
        found = multiplied(op.operands[0], constant(op.operands[1]))
    elif op.name in _CHOICES:
        left, right = (origin(operand) for operand in op.operands)
        return left if left == right else size
    if found is None or found == size:
        return size
    return origin(found) if isinstance(found, ir.Value) else found


_DIMENSIONS = ("tensor.dim", "memref.dim")
DIVISIONS = ("arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi", "arith.ceildivui")
_CHOICES = ("arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui")


def multiplied(product: Any, factor: int | None) -> Any | None:
    """What ``product`` is ``factor`` times; None where it is no such product of an index."""
    op = functions.defining_op(product)
    if op is None or not factor or not isinstance(product.type, ir.IndexType):
        return None
    if op.name == "arith.muli":
        left, right = op.operands
        return left if constant(right) == factor else right if constant(left) == factor else None
    if op.name != "affine.apply" or len(op.operands) != 1:
        return None
    (expression,) = ir.AffineMapAttr(op.attributes["map"]).value.results
    if not isinstance(expression, ir.AffineMulExpr) or not isinstance(expression.rhs, ir.AffineConstantExpr):
        return None
    is_size = isinstance(expression.lhs, (ir.AffineDimExpr, ir.AffineSymbolExpr))
    return op.operands[0] if is_size and expression.rhs.value == factor else None


def constant(value: Any) -> int | None:
    """The integer that a value is; None where it is no constant."""
    op = functions.defining_op(value)
    return functions.integer(op.attributes["value"]) if op is not None and op.name == "arith.constant" else None


# ---------------------------------------------------------------------------------------------------------------- bounds


def most_of(value: Any, axis: int) -> int | None:
    """The most that dimension ``axis`` of a tensor or memref can be; None where nothing is known."""
    found = dimension(value, axis)
    if isinstance(found, int):
        return found
    if not isinstance(found, tuple):
        return most(found)
    value, axis = found
    op = functions.defining_op(value)
    if op is None:
        return _most_of_argument(value, axis)
    if op.name == "tensor.collapse_shape":
        sizes = [n if isinstance(n, int) else most_of(*n) if isinstance(n, tuple) else most(n) for n in collapsed(op, axis)]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)
    if op.name == "func.call":
        callee = function_named(op.parent.parent.opview, ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        return most_of(functions.return_op(callee).operands[ir.OpResult(value).result_number], axis)
    return None


def _most_of_argument(value: Any, axis: int) -> int | None:
    owner = value.owner.owner.operation
    if owner.name != "func.func":
        return None
    given = functions.argument_attributes(owner)[ir.BlockArgument(value).arg_number].get(MOST)
    found = UNKNOWN if given is None else ir.DenseI64ArrayAttr(given)[axis]
    return None if found == UNKNOWN else int(found)


def most(number: Any) -> int | None:
    """The most that a number of the host program can be, as sizes are computed: of numbers that are never negative; None
    where nothing is known."""
    op = functions.defining_op(number)
    if op is None:
        return None
    if op.name == "arith.constant":
        return functions.integer(op.attributes["value"])
    if op.name in _DIMENSIONS:
        axis = constant(op.operands[1])
        return None if axis is None else most_of(op.operands[0], axis)
    if op.name == "affine.apply":
        affine = ir.AffineMapAttr(op.attributes["map"]).value
        values = [most(operand) for operand in op.operands]
        return _of_affine(affine.results[0], values[: affine.n_dims], values[affine.n_dims :])
    if op.name in _SAME:
        return most(op.operands[0])
    if op.name not in _OPERATIONS:
        return None
    left, right = op.operands
    return _combined(_OPERATIONS[op.name], most(left), most(right), exact=constant(right) is not None)


_SAME = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui")
_OPERATIONS = {
    "arith.addi": "+", "arith.muli": "*", "arith.divsi": "floor", "arith.divui": "floor", "arith.floordivsi": "floor",
    "arith.ceildivsi": "ceil", "arith.ceildivui": "ceil", "arith.maxsi": "max", "arith.maxui": "max",
}  # fmt: skip
_EXPRESSIONS = {"AffineAddExpr": "+", "AffineMulExpr": "*", "AffineFloorDivExpr": "floor", "AffineCeilDivExpr": "ceil"}


def _of_affine(expression: Any, dims: Sequence[int | None], symbols: Sequence[int | None]) -> int | None:
    if isinstance(expression, ir.AffineConstantExpr):
        return int(expression.value)
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    left, right = (_of_affine(side, dims, symbols) for side in (expression.lhs, expression.rhs))
    kind = next((kind for name, kind in _EXPRESSIONS.items() if isinstance(expression, getattr(ir, name))), "")
    return _combined(kind, left, right, exact=isinstance(expression.rhs, ir.AffineConstantExpr))


def _combined(kind: str, left: int | None, right: int | None, *, exact: bool) -> int | None:
    """The most that ``left kind right`` can be; ``exact``: ``right`` is no bound but the number itself."""
    if left is None or right is None or min(left, right) < 0:
        return None
    if kind in ("floor", "ceil"):
        if not exact or not right:
            return None
        return left // right if kind == "floor" else -(-left // right)
    return {"+": left + right, "*": left * right, "max": max(left, right)}.get(kind)
