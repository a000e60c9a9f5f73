"""Checks inside tensor ops, taken out of them: a kernel cannot stop a program, the code between kernels can.

``linalg.generic`` bodies assert on, and extract at, positions that the data say (embedding, gather, indexing).  Each such
condition becomes a reduction of its own in front of the op, over just the dimensions it depends on, and one assertion of
its result; the position itself is clamped, so that nothing outside the tensor is touched meanwhile.  So are integers that
data divide by: processors end the process where that is 0, and where the least number is divided by -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.pipeline.step import PythonPass

_QUOTIENTS = ("arith.divsi", "arith.floordivsi", "arith.ceildivsi")
_UNSIGNED = ("arith.divui", "arith.remui")
_DIVISIONS = (*_QUOTIENTS, "arith.remsi", *_UNSIGNED)
_CONVERSIONS = ("arith.index_cast", "arith.trunci", "arith.extsi")
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
TORCH_MLIR_INDEX_CHECK = "index must be"  # its assertions on the position of an extraction in the same body


@dataclass(frozen=True)
class ChecksOutOfKernels(PythonPass):
    """Before: linalg on tensors.  After: no ``cf.assert`` in bodies of ``linalg.generic``, every extraction there at a
    position that the data say is in range, and an assertion before the op that fails where one was or would have been::

        linalg.generic ins(%i) {             %ok = linalg.generic ins(%i) { and of (0 <= i < 10) }
          cf.assert (%i < 10)        →       cf.assert (tensor.extract %ok[]), "index out of range …"
          tensor.extract %t[%i]              linalg.generic ins(%i) { tensor.extract %t[clamp(%i)] }

    The quotient of the least number by -1 is itself, as in eager, and no integer is divided by 0.
    """

    name: ClassVar[str] = "mlirstack-checks-out-of-kernels"

    def apply(self, module: Any) -> None:
        kernels = [op for op in walk(module) if op.name == "linalg.generic"]
        for kernel in kernels:
            ops = [op.operation for op in kernel.regions[0].blocks[0].operations]
            checked = sum(_check_extraction(kernel, op) for op in ops if op.name == "tensor.extract")
            for op in ops:
                if op.name in _DIVISIONS and _may_trap(kernel, op):
                    _check_division(kernel, op)
                if op.name == "cf.assert":
                    message = ir.StringAttr(op.attributes["msg"]).value
                    if not (checked and message.startswith(TORCH_MLIR_INDEX_CHECK)):
                        _assert_before(kernel, [op.operands[0]], message, lambda values: values[0])
                    op.erase()


def _check_extraction(kernel: Any, extract: Any) -> int:
    """Check and clamp the positions of one ``tensor.extract``; how many of them needed it."""
    body = kernel.regions[0].blocks[0]
    source = ir.RankedTensorType(extract.operands[0].type)
    count = 0
    for axis in range(source.rank):
        index = extract.operands[1 + axis]
        if not _depends_on_data(body, index):
            continue
        size = None if source.is_dynamic_dim(axis) else source.get_dim_size(axis)
        if size is not None and _is_known_in_range(kernel, index, size):
            continue
        tensor = extract.operands[0]
        if size is None and _inside(body, tensor):
            continue  # a tensor made in the body: its size is not known outside
        with ir.InsertionPoint(kernel), kernel.location:
            bound = _size(tensor, axis, size)
        shown = size if size is not None else "dynamic"
        message = f"index out of range: dimension {axis} of {source} has size {shown}"
        _assert_before(kernel, [index], message, lambda values, bound=bound: _in_range(values[0], bound))
        with ir.InsertionPoint(extract), extract.location:
            extract.operands[1 + axis] = _clamped(index, bound)
        count += 1
    return count


def _check_division(kernel: Any, division: Any) -> None:
    """Check the divisor, and divide by 1 instead of 0, or of a signed -1: the dividend, negated, is the quotient by -1."""
    dividend, divisor = division.operands
    kind = divisor.type
    _assert_before(kernel, [divisor], "integer division by zero", lambda values: _compared(values[0], 0, equal=False))
    with ir.InsertionPoint(division), division.location:
        one, zero = _integer(kind, 1), _compared(divisor, 0, equal=True)
        if division.name in _UNSIGNED:
            division.operands[1] = _op("arith.select", [kind], [zero, one, divisor])
            return
        negates = _compared(divisor, -1, equal=True)
        unsafe = _op("arith.ori", [negates.type], [negates, zero])
        negated = _op("arith.subi", [kind], [_integer(kind, 0), dividend])
        division.operands[1] = _op("arith.select", [kind], [unsafe, one, divisor])
    if division.name not in _QUOTIENTS:
        return  # of a division by 1 nothing is left either
    readers = [use.owner for use in division.results[0].uses]
    with ir.InsertionPoint.after(division), division.location:
        quotient = _op("arith.select", [kind], [negates, negated, division.results[0]])
    for reader in readers:
        for i, operand in enumerate(reader.operands):
            if operand == division.results[0]:
                reader.operands[i] = quotient


# ------------------------------------------------------------------------------------------------------------ what to check


def _may_trap(kernel: Any, division: Any) -> bool:
    """Do data say what is divided by?  Known numbers that are no 0 and no -1 do not."""
    divisor = division.operands[1]
    if not isinstance(divisor.type, ir.IntegerType) or not _depends_on_data(kernel.regions[0].blocks[0], divisor):
        return False
    numbers, count = _known_numbers(kernel, divisor), 2**divisor.type.width
    return numbers is None or any(number % count in (0, count - 1) for number in numbers)


def _inside(body: Any, value: Any) -> bool:
    """Is ``value`` an argument of ``body`` or computed in it?"""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return bool(owner == body)
    return any(op.operation == owner.operation for op in body.operations)


def _slice(body: Any, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The ops of ``body`` that ``values`` are computed by, in order, and the arguments of ``body`` that they read."""
    wanted: list[Any] = []
    arguments: list[Any] = []
    stack = list(values)
    while stack:
        value = stack.pop()
        if not _inside(body, value):
            continue
        if isinstance(value.owner, ir.Block):
            if value not in arguments:
                arguments.append(value)
        elif value.owner.operation not in wanted:
            wanted.append(value.owner.operation)
            stack.extend(value.owner.operation.operands)
    return [op for op in body.operations if op.operation in wanted], arguments


def _depends_on_data(body: Any, index: Any) -> bool:
    ops, arguments = _slice(body, [index])
    return bool(arguments) or any(op.operation.name == "tensor.extract" for op in ops)


def _is_known_in_range(kernel: Any, index: Any, size: int) -> bool:
    """Is ``index`` a number of a constant tensor, none outside of 0 … ``size`` - 1?  Places of words are such."""
    numbers = _known_numbers(kernel, index)
    return numbers is not None and all(0 <= number < size for number in numbers)


def _known_numbers(kernel: Any, value: Any) -> Any:
    """The numbers of the constant tensor that ``value`` is one of, but for its integer type; None where there is none."""
    ops, arguments = _slice(kernel.regions[0].blocks[0], [value])
    if len(arguments) != 1 or any(op.operation.name not in _CONVERSIONS for op in ops):
        return None
    producer = functions.defining_op(kernel.operands[arguments[0].arg_number])
    while producer is not None and (producer.name in _RESHAPES or _converts(producer)):
        producer = functions.defining_op(producer.operands[0])
    numbers = producer.attributes["value"] if producer is not None and producer.name == "arith.constant" else None
    return numbers if isinstance(numbers, ir.DenseIntElementsAttr) else None


def _converts(op: Any) -> bool:
    """Does ``op`` give numbers of its one operand in another integer type?"""
    if op.name != "linalg.generic" or len(op.operands) != 2:
        return False
    *computed, leave = (inner.operation for inner in op.regions[0].blocks[0].operations)
    return {inner.name for inner in computed} <= set(_CONVERSIONS) and _inside(op.regions[0].blocks[0], leave.operands[0])


# --------------------------------------------------------------------------------------------------------------- reductions


def _assert_before(kernel: Any, values: Sequence[Any], message: str, condition: Any) -> None:
    """Insert, before ``kernel``, the conjunction of ``condition`` over all its iterations, and an assertion of that."""
    body = kernel.regions[0].blocks[0]
    ops, arguments = _slice(body, values)
    with ir.InsertionPoint(kernel), kernel.location:
        truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
        true = _op("arith.constant", [truth], [], value=ir.DenseElementsAttr.get_splat(truth, ir.BoolAttr.get(True)))
        operands, maps, dims = _iteration(kernel, ops, arguments)
        reduction = dialect("linalg").GenericOp(
            [truth],
            operands,
            [true],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in [*maps, ir.AffineMap.get(len(dims), 0, [])]]),
            ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<reduction>")] * len(dims)),
        )
        types = [ir.RankedTensorType(v.type).element_type for v in operands]
        block = reduction.regions[0].blocks.append(*types, truth.element_type, arg_locs=[kernel.location] * (len(types) + 1))
        with ir.InsertionPoint(block):
            known = dict(zip(arguments, block.arguments, strict=False))
            for op in ops:
                _copy(op.operation, known, dims)
            holds = condition([known.get(v, v) for v in values])
            _op("linalg.yield", [], [_op("arith.andi", [truth.element_type], [holds, block.arguments[len(types)]])])
        result = _op("tensor.extract", [truth.element_type], [reduction.result])
        _op("cf.assert", [], [result], msg=ir.StringAttr.get(message))


def _iteration(kernel: Any, ops: Sequence[Any], arguments: Sequence[Any]) -> tuple[list[Any], list[Any], list[int]]:
    """Operands and maps of a reduction over what ``ops`` and ``arguments`` depend on, and the dimensions that remain.

    Dimensions that no operand spans get their size from the kernel's own result, an operand that is not read.
    """
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(kernel.attributes["indexing_maps"])]
    operands = [kernel.operands[a.arg_number] for a in arguments]
    used = [maps[a.arg_number] for a in arguments]
    indexed = {ir.IntegerAttr(op.operation.attributes["dim"]).value for op in ops if op.operation.name == "linalg.index"}
    if not all(_is_projection(m) for m in maps):
        kept = set(range(maps[0].n_dims))
    else:
        kept = {e.position for m in used for e in m.results if isinstance(e, ir.AffineDimExpr)} | indexed
    spanned = {e.position for m in used for e in m.results if isinstance(e, ir.AffineDimExpr)}
    if not kept <= spanned:
        operands, used = [*operands, kernel.operands[len(maps) - 1]], [*used, maps[-1]]
        kept = set(range(maps[0].n_dims))
    dims = sorted(kept)
    return operands, [_restricted(m, dims) for m in used], dims


def _is_projection(affine: Any) -> bool:
    return all(isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in affine.results)


def _restricted(affine: Any, dims: list[int]) -> Any:
    """``affine`` over the dimensions ``dims`` alone, renumbered."""
    if len(dims) == affine.n_dims:
        return affine
    results = [
        ir.AffineDimExpr.get(dims.index(e.position)) if isinstance(e, ir.AffineDimExpr) else e for e in affine.results
    ]
    return ir.AffineMap.get(len(dims), 0, results)


def _copy(op: Any, known: dict[Any, Any], dims: list[int]) -> None:
    copied = op.clone()
    for i, operand in enumerate(op.operands):
        copied.operation.operands[i] = known.get(operand, operand)
    if op.name == "linalg.index":
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        copied.operation.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dims.index(dim))
    known.update(zip(op.results, copied.operation.results, strict=True))


# ------------------------------------------------------------------------------------------------------------------ building


def _op(name: str, results: Sequence[Any], operands: Sequence[Any], **attributes: Any) -> Any:
    """A new op at the insertion point; its result, or None where it has none."""
    op = ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes)
    return op.results[0] if results else None


def _integer(kind: Any, value: int) -> Any:
    return _op("arith.constant", [kind], [], value=ir.IntegerAttr.get(kind, value))


def _compared(value: Any, number: int, *, equal: bool) -> Any:
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0 if equal else 1)  # eq, ne
    operands = [value, _integer(value.type, number)]
    return _op("arith.cmpi", [ir.IntegerType.get_signless(1)], operands, predicate=predicate)


def _index(value: int) -> Any:
    kind = ir.IndexType.get()
    return _op("arith.constant", [kind], [], value=ir.IntegerAttr.get(kind, value))


def _size(tensor: Any, axis: int, size: int | None) -> Any:
    return _index(size) if size is not None else _op("tensor.dim", [ir.IndexType.get()], [tensor, _index(axis)])


def _in_range(index: Any, bound: Any) -> Any:
    """``0 <= index < bound``: as unsigned numbers, one comparison."""
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 6)  # ult
    return _op("arith.cmpi", [ir.IntegerType.get_signless(1)], [index, bound], predicate=predicate)


def _clamped(index: Any, bound: Any) -> Any:
    kind = ir.IndexType.get()
    last = _op("arith.subi", [kind], [bound, _index(1)])
    return _op("arith.maxsi", [kind], [_op("arith.minsi", [kind], [index, last]), _index(0)])
