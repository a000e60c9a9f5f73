"""Corrections and simplifications of linalg ops that no upstream pass makes, each a function from op to op.

What they look for is what TOSA leaves behind: TOSA has no infinities in its reductions and clamps, torch has.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.pipeline.step import PythonPass

_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


@dataclass(frozen=True)
class SimplifyLinalg(PythonPass):
    """Before and after: linalg on tensors.

    - A maximum reduction starts from minus infinity, not from the lowest finite number (minimum: plus infinity), so that a
      row of -inf stays -inf, as in torch; so does what an image is padded with before its windows are reduced.
    - ``maximum(minimum(x, largest), 0)``, TOSA's relu, is ``maximum(x, 0)``.
    - An op that reduces nothing, as a sum over no dimensions, has the number that it starts from in its body: fused into
      another op, it would be written once for each of that one's elements.
    - A generic op that only yields scalars is a ``linalg.fill`` for each.
    - An integer power is a product where the exponent is a small constant, else a power of floats: LLVM's own integer
      power takes one exponent for a whole vector.
    - The size of -1 that torch infers, in ``x.reshape(-1, 6)`` of a dynamic size, is computed.
    - Tensors that are joined keep their static sizes: torch-mlir casts them away.
    """

    name = "mlirstack-simplify-linalg"

    def apply(self, module: Any) -> None:
        # One walk: no rule makes operations that a later one is for, or erases any but those of its own name.
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for op in walk(module):
            found[op.name].append(op)
        for op in found["arith.maximumf"]:
            _drop_upper_clamp(op)
        for op in found["math.fpowi"]:
            _integer_power(op)
        for name, ops in found.items():
            for op in ops if name.startswith("linalg.") and name != "linalg.fill" else ():
                if len(op.results):
                    _exact_identity(op)
        for op in found["linalg.generic"]:
            _start_in_body(op)
            _to_fill(op)
        for op in found["tensor.expand_shape"]:
            _inferred_size(op)
        for op in found["tensor.concat"]:
            _joined_as_they_are(op)


def _joined_as_they_are(op: Any) -> None:
    for number, piece in enumerate(op.operands):
        cast = functions.defining_op(piece)
        if cast is not None and cast.name == "tensor.cast" and ir.RankedTensorType(cast.operands[0].type).has_static_shape:
            op.operands[number] = cast.operands[0]


def _inferred_size(op: Any) -> None:
    """``expand_shape %x [[0, 1]] output_shape [-1, 6]``: the size is that of ``%x`` through the others of its group."""
    sizes: list[Any] = list(ir.DenseI64ArrayAttr(op.attributes["static_output_shape"]))
    dynamic = [axis for axis, size in enumerate(sizes) if size == ir.ShapedType.get_dynamic_size()]
    for axis, value in zip(dynamic, list(op.operands)[1:], strict=True):
        sizes[axis] = value
    groups = [
        [ir.IntegerAttr(i).value for i in ir.ArrayAttr(group)] for group in ir.ArrayAttr(op.attributes["reassociation"])
    ]
    arith, tensor, index = dialect("arith"), dialect("tensor"), ir.IndexType.get()
    for number, axis in enumerate(dynamic, 1):
        made = functions.defining_op(op.operands[number])
        if made is None or made.name != "arith.constant" or ir.IntegerAttr(made.attributes["value"]).value != -1:
            continue
        source = next(i for i, group in enumerate(groups) if axis in group)
        with ir.InsertionPoint(op), op.location:
            size = tensor.DimOp(op.operands[0], arith.ConstantOp(index, source).result).result
            for other in (sizes[i] for i in groups[source] if i != axis):
                part = arith.ConstantOp(index, other).result if isinstance(other, int) else other
                size = arith.DivSIOp(size, part).result
        op.operands[number] = size


def _float_constant(value: Any) -> float | None:
    """The value of a floating-point constant, scalar or splat, or None."""
    operation = functions.defining_op(value)
    if operation is None or operation.name != "arith.constant":
        return None
    attribute = operation.attributes["value"]
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    return None


def _drop_upper_clamp(op: Any) -> None:
    for inner, bound in (tuple(op.operands), tuple(op.operands)[::-1]):
        clamp = functions.defining_op(inner)
        if clamp is None or clamp.name != "arith.minimumf" or _float_constant(bound) != 0.0:
            continue
        for x, limit in (tuple(clamp.operands), tuple(clamp.operands)[::-1]):
            if _float_constant(limit) == _LARGEST.get(str(limit.type)):
                inner_position = 0 if op.operands[0] == inner else 1
                op.operands[inner_position] = x
                return


_LARGEST_PRODUCT = 8  # exponents up to which a product is quicker than a call


def _integer_power(op: Any) -> None:
    base, exponent = op.operands
    arith, kind = dialect("arith"), base.type
    constant = functions.defining_op(exponent)
    number: int | None = None
    if (
        constant is not None
        and constant.name == "arith.constant"
        and isinstance(constant.attributes["value"], ir.IntegerAttr)
    ):
        number = functions.integer(constant.attributes["value"])
    with ir.InsertionPoint(op), op.location:
        if number is None or abs(number) > _LARGEST_PRODUCT:
            result = dialect("math").PowFOp(base, arith.SIToFPOp(kind, exponent).result).result
        else:
            one = arith.ConstantOp(kind, ir.FloatAttr.get(kind, 1.0)).result
            result = base if number else one
            for _ in range(abs(number) - 1):
                result = arith.MulFOp(result, base).result
            if number < 0:
                result = arith.DivFOp(one, result).result
    op.results[0].replace_all_uses_with(result)
    op.erase()


_IDENTITIES = {"arith.maximumf": -math.inf, "arith.minimumf": math.inf}


def _exact_identity(op: Any) -> None:
    """Replace the lowest (highest) finite number that a maximum (minimum) reduction of ``op`` starts from."""
    maps = dialect("linalg").get_indexing_maps(op)
    if maps is None or len(op.results) != 1 or not len(op.regions):
        return
    identity = _combiner_identity(op)
    if identity is None:
        return
    start = functions.defining_op(op.operands[len(op.operands) - 1])
    if start is not None and start.name == "linalg.fill" and _is_largest(start.operands[0], identity):
        with ir.InsertionPoint(op), op.location:
            exact = _constant_like(start.operands[0], identity)
            fill = start.operation.clone()
        fill.operands[0] = exact
        op.operands[len(op.operands) - 1] = fill.results[0]
    padded = functions.defining_op(op.operands[0])
    if padded is not None and padded.name == "tensor.pad" and len(list(padded.results[0].uses)) == 1:
        ending = functions.yield_op(padded.regions[0].blocks[0])
        if _is_largest(ending.operands[0], identity):
            with ir.InsertionPoint(padded), padded.location:
                ending.operands[0] = _constant_like(ending.operands[0], identity)


def _is_largest(value: Any, identity: float) -> bool:
    """Is ``value`` the finite number that is nearest to the infinity ``identity``?"""
    largest = _LARGEST.get(str(value.type))
    return largest is not None and _float_constant(value) == math.copysign(largest, identity)


def _constant_like(value: Any, number: float) -> Any:
    return dialect("arith").ConstantOp(value.type, ir.FloatAttr.get(value.type, number)).result


def _combiner_identity(op: Any) -> float | None:
    """The neutral element of a reduction whose body is one maximum or minimum with the accumulator."""
    block = op.regions[0].blocks[0]
    combiner = functions.defining_op(functions.yield_op(block).operands[0])
    accumulator = block.arguments[len(block.arguments) - 1]
    if combiner is None or accumulator not in list(combiner.operands):
        return None
    return _IDENTITIES.get(combiner.name)


def _start_in_body(op: Any) -> None:
    start = functions.defining_op(op.operands[len(op.operands) - 1])
    if (
        len(op.results) != 1
        or start is None
        or start.name != "linalg.fill"
        or "reduction" in str(op.attributes["iterator_types"])
    ):
        return
    block = op.regions[0].blocks[0]
    accumulator = block.arguments[len(block.arguments) - 1]
    if next(iter(accumulator.uses), None) is None:
        return
    accumulator.replace_all_uses_with(start.operands[0])
    op.operands[len(op.operands) - 1] = start.operands[1]


def _to_fill(op: Any) -> None:
    block = op.regions[0].blocks[0]
    if not len(op.results) or len(block.operations) != 1:
        return
    numbers = [_outside(value, op, block) for value in functions.yield_op(block).operands]
    if any(number is None for number in numbers):
        return
    for result, number, written in zip(op.results, numbers, list(op.operands)[-len(op.results) :], strict=True):
        with ir.InsertionPoint(op), op.location:
            result.replace_all_uses_with(dialect("linalg").fill(number, outs=[written]))
    op.erase()


def _outside(value: Any, op: Any, block: Any) -> Any | None:
    """The scalar that a body yields, as a value outside of the body: captured, or given as a scalar operand."""
    operation = functions.defining_op(value)
    if operation is not None:
        return value
    if value.owner == block and value.arg_number < len(op.operands) - len(op.results):
        given = op.operands[value.arg_number]
        return None if isinstance(given.type, ir.ShapedType) else given
    return None
