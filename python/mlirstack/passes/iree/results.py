"""Results in memory of the caller's: IREE's CUDA device cannot hand out buffers that it allocated asynchronously, and waits
for the device wherever a program frees its temporaries.

What each size of a result is, as an expression over the sizes of the arguments, travels as an attribute of ``@main`` until
the module is handed to IREE's compiler; there results and temporaries become arguments, and the sizes go to the reflection.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import PassManager, dialect, ir
from mlirstack.ir.ops import function, walk
from mlirstack.ir.text import clone_module
from mlirstack.passes import functions
from mlirstack.passes.abi import ARGUMENT, MAIN
from mlirstack.passes.iree.archive import RESULTS, Size
from mlirstack.passes.iree.arguments import reflect
from mlirstack.passes.regions import inline_call
from mlirstack.pipeline.step import PythonPass

RESULT_SIZES = "mlirstack.result_sizes"  # function attribute: JSON, for each result its sizes, or null

_RESOLVE = "builtin.module(func.func(resolve-shaped-type-result-dims,canonicalize,lower-affine,cse))"
_ARITHMETIC = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.divsi": "//",
    "arith.divui": "//",
    "arith.floordivsi": "//",
    "arith.remsi": "%",
    "arith.remui": "%",
    "arith.maxsi": "max",
    "arith.maxui": "max",
    "arith.minsi": "min",
    "arith.minui": "min",
}
_CASTS = frozenset({"arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci"})


@dataclass(frozen=True)
class ResultSizes(PythonPass):
    """Before: linalg on tensors.  After: the same; ``@main`` says how large its results are, where the sizes of its
    arguments decide that::

        func.func @main(%x: tensor<?x4xf32>) -> tensor<?x8xf32> attributes {mlirstack.result_sizes = "[[[0, 0], 8]]"}
    """

    name = "mlirstack-iree-result-sizes"

    def apply(self, module: Any) -> None:
        main = function(module, MAIN)
        types = list(functions.type_of(main).results)
        sizes: list[list[Size] | None] = [_static_sizes(kind) for kind in types]
        if any(found is None and isinstance(kind, ir.RankedTensorType) for kind, found in zip(types, sizes, strict=True)):
            sizes = _resolved(module)
        with module.context:
            main.attributes[RESULT_SIZES] = ir.StringAttr.get(json.dumps(sizes))


def pass_results(module: Any) -> None:
    """Before: ``@main(%x) -> tensor``.  After: ``@main(%x, %result {iree.abi.output = 0}, %scratch {iree.abi.transients})``.

    Results of known sizes are computed into arguments behind the others.  Temporaries lie in one more, a buffer whose size
    the module is asked for; only where the program is a straight line, because IREE's compiler cannot place them in others.
    """
    main = function(module, MAIN)
    if RESULT_SIZES not in main.attributes:
        return
    sizes = json.loads(ir.StringAttr(main.attributes[RESULT_SIZES]).value)
    results = list(functions.type_of(main).results)
    given = [number for number, size in enumerate(sizes) if size is not None]
    with module.context, ir.Location.unknown():
        attributes = functions.argument_attributes(main)
        attributes += [{"iree.abi.output": ir.IntegerAttr.get(ir.IndexType.get(), number)} for number in given]
        added = [results[number] for number in given]
        if given and _is_straight(main):
            module.context.allow_unregistered_dialects = True
            attributes.append({"iree.abi.transients": ir.UnitAttr.get()})
            added.append(ir.Type.parse("!hal.buffer"))
        block = main.regions[0].blocks[0]
        for kind in added:
            block.add_argument(kind, ir.Location.unknown())
        functions.set_type(main, [a.type for a in block.arguments], results)
        functions.set_argument_attributes(main, attributes)
        del main.attributes[RESULT_SIZES]
    reflect(main.opview, RESULTS, json.dumps([sizes[number] if number in given else None for number in range(len(results))]))


def _static_sizes(kind: Any) -> list[Size] | None:
    if isinstance(kind, ir.RankedTensorType) and kind.has_static_shape:
        return [*kind.shape]
    return None


def _resolved(module: Any) -> list[list[Size] | None]:
    """The sizes of all results, read from a copy of the module that computes nothing else."""
    copy = clone_module(module)
    main = function(copy, MAIN)
    end = functions.return_op(main)
    kinds = [value.type for value in end.operands]
    arith, tensor, func = dialect("arith"), dialect("tensor"), dialect("func")
    sizes: list[Any] = []
    with copy.context, ir.Location.unknown(), ir.InsertionPoint(end):
        for call in [op for op in walk(main) if op.name == "func.call"]:  # of a kernel, whose destination has the size
            inline_call(call, function(copy, ir.FlatSymbolRefAttr(call.attributes["callee"]).value))
        for value in end.operands:
            if isinstance(value.type, ir.RankedTensorType):
                axes = range(ir.RankedTensorType(value.type).rank)
                sizes += [tensor.DimOp(value, arith.ConstantOp(ir.IndexType.get(), axis).result).result for axis in axes]
        func.ReturnOp(sizes)
        end.erase()
        functions.set_type(main, functions.type_of(main).inputs, [size.type for size in sizes])
    with copy.context:
        PassManager.parse(_RESOLVE).run(copy.operation)
    main = function(copy, MAIN)
    numbers = [
        functions.integer(a[ARGUMENT]) if ARGUMENT in a else i for i, a in enumerate(functions.argument_attributes(main))
    ]
    found = [_expression(value, numbers) for value in functions.return_op(main).operands]
    resolved: list[list[Size] | None] = []
    for kind in kinds:
        if not isinstance(kind, ir.RankedTensorType):
            resolved.append(None)
            continue
        own, found = found[: kind.rank], found[kind.rank :]
        resolved.append(None if None in own else [size for size in own if size is not None])
    return resolved


def _expression(value: Any, numbers: Sequence[int]) -> Size | None:
    """``value`` over the arguments of its function, which have these ``numbers`` in the program; None where it depends on
    anything but their sizes and integers."""
    if isinstance(value.owner, ir.Block):
        return [numbers[ir.BlockArgument(value).arg_number]]
    op: Any = functions.defining_op(value)
    if op.name == "arith.constant":
        return int(ir.IntegerAttr(op.attributes["value"]).value)
    if op.name == "tensor.dim":
        axis = _expression(op.operands[1], numbers)
        of_argument = isinstance(op.operands[0].owner, ir.Block) and isinstance(axis, int)
        return [numbers[ir.BlockArgument(op.operands[0]).arg_number], axis] if of_argument else None
    if op.name in _CASTS:
        return _expression(op.operands[0], numbers)
    operator = _ARITHMETIC.get(op.name)
    if operator is None:
        return None
    left, right = (_expression(operand, numbers) for operand in op.operands)
    return None if left is None or right is None else [operator, left, right]


def _is_straight(main: Any) -> bool:
    """No control flow outside of kernels, no value that the host reads back, no call."""
    blocks: Sequence[Any] = main.regions[0].blocks
    names = {op.operation.name for op in blocks[0].operations}
    branches = any(name.startswith(("scf.", "cf.")) for name in names)
    return len(blocks) == 1 and not branches and not names & {"tensor.extract", "func.call", "tensor.generate"}
