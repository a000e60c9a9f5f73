"""Run-time checks told after a call: a program that reads a condition back waits for the device in the middle of a call.

Takes a program whose checks of indices stand between its kernels, leaves a straight line of dispatches: whoever calls looks
at the conditions when the results are there.  Positions that are checked are clamped as well
(:mod:`mlirstack.passes.index_checks`), so a program that goes on touches nothing outside of its tensors.
"""

from __future__ import annotations

import json
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import function
from mlirstack.passes import functions
from mlirstack.passes.abi import MAIN
from mlirstack.passes.iree.archive import CHECKS
from mlirstack.passes.iree.arguments import reflect
from mlirstack.passes.iree.results import RESULT_SIZES

_TOGETHER = 8  # conditions of one kernel


def checks_to_results(module: Any) -> None:
    """Before: ``@main`` asserts on tensors of one boolean.  After: it returns them, as bytes in one tensor behind its other
    results, and their messages stand in its reflection::

        cf.assert (tensor.extract %ok[]), "…"; return %y      →      return %y, (%ok as bytes : tensor<1xi8>)
    """
    main = function(module, MAIN)
    if RESULT_SIZES not in main.attributes or len(main.regions[0].blocks) != 1:
        return
    checks = [(op.operation, source) for op in main.regions[0].blocks[0].operations if (source := _checked(op.operation))]
    if not checks:
        return
    leave = functions.return_op(main)
    with module.context, ir.Location.unknown():
        with ir.InsertionPoint(leave):
            returned = [*leave.operands, _joined([condition for _, condition in checks])]
            dialect("func").ReturnOp(returned)
        leave.operation.erase()
        functions.set_type(main, functions.type_of(main).inputs, [value.type for value in returned])
        sizes = [*json.loads(ir.StringAttr(main.attributes[RESULT_SIZES]).value), [len(checks)]]
        main.attributes[RESULT_SIZES] = ir.StringAttr.get(json.dumps(sizes))
    reflect(main.opview, CHECKS, json.dumps([str(ir.StringAttr(check.attributes["msg"]).value) for check, _ in checks]))
    for check, _ in checks:
        extract = functions.defining_op(check.operands[0])
        check.erase()
        if extract is not None and not any(True for _ in extract.results[0].uses):
            extract.erase()


def _checked(op: Any) -> Any | None:
    """The tensor of one boolean that ``op`` asserts on; None for anything else."""
    extract = functions.defining_op(op.operands[0]) if op.name == "cf.assert" else None
    if extract is None or extract.name != "tensor.extract" or len(extract.operands) != 1:
        return None
    return extract.operands[0]


def _joined(conditions: list[Any]) -> Any:
    """The conditions as the bytes of one tensor: one kernel writes some of them at a time, where a concatenation would be a
    kernel and a copy for each."""
    pieces = [_bytes(conditions[start : start + _TOGETHER]) for start in range(0, len(conditions), _TOGETHER)]
    if len(pieces) == 1:
        return pieces[0]
    kind = ir.RankedTensorType.get([len(conditions)], ir.IntegerType.get_signless(8))
    return dialect("tensor").ConcatOp(kind, 0, pieces).result


def _bytes(conditions: list[Any]) -> Any:
    """``[conditions]`` bytes: byte i is condition i."""
    linalg, arith, byte = dialect("linalg"), dialect("arith"), ir.IntegerType.get_signless(8)
    empty = dialect("tensor").EmptyOp([len(conditions)], byte).result
    scalar, own = ir.AffineMap.get(1, 0, []), ir.AffineMap.get_identity(1)
    maps = [ir.AffineMapAttr.get(m) for m in (*(scalar for _ in conditions), own)]
    loops = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")])
    op = linalg.GenericOp([empty.type], conditions, [empty], ir.ArrayAttr.get(maps), loops)
    boolean = ir.IntegerType.get_signless(1)
    block = op.regions[0].blocks.append(*(boolean for _ in conditions), byte)
    with ir.InsertionPoint(block):
        number, chosen = linalg.IndexOp(0).result, block.arguments[0]
        for i in range(1, len(conditions)):
            is_this = arith.CmpIOp(arith.CmpIPredicate.eq, number, arith.ConstantOp(number.type, i).result).result
            chosen = arith.SelectOp(is_this, block.arguments[i], chosen).result
        linalg.YieldOp([arith.ExtUIOp(byte, chosen).result])
    return op.results[0]
