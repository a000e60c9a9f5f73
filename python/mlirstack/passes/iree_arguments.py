"""What is made of the arguments of ``@main`` before IREE's compiler sees them.

Booleans are passed as bytes.  Parameters become globals, so that IREE may fold, transpose and pack them once at load:
arguments of ``@main`` that are marked as parameters become ``util.global`` ops, filled by the runtime from a parameter
archive in memory.  IREE keeps what it computes from globals alone; what it computes from arguments it computes per call
(docs/decisions/iree-weights.md has the numbers).
"""

from __future__ import annotations

import json
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import function
from mlirstack.ir.parameters import PARAMETER, marked_parameters
from mlirstack.passes.abi import MAIN
from mlirstack.passes.iree_archive import REFLECTION, SCOPE


def booleans_to_bytes(module: Any) -> None:
    """Before: ``@main(%m: tensor<4xi1>)``.  After: ``@main(%m: tensor<4xi8>)`` of zeros and ones, truncated inside.

    A contraction whose fused epilogue reads a boolean argument does not compile with data tiling: IREE packs the operand,
    and pads what it stores as i8 with an i1.  Of bytes it makes no such difference.
    """
    main = function(module, MAIN).opview
    with module.context, ir.Location.unknown():
        for argument in main.entry_block.arguments:
            kind = argument.type
            if isinstance(kind, ir.RankedTensorType) and kind.element_type == ir.IntegerType.get_signless(1):
                argument.set_type(ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(8), kind.encoding))
                uses = list(argument.uses)
                truncated = ir.Operation.create(
                    "arith.trunci",
                    results=[kind],
                    operands=[argument],
                    loc=argument.location,
                    ip=ir.InsertionPoint.at_block_begin(main.entry_block),
                )
                for use in uses:
                    use.owner.operands[use.operand_number] = truncated.result
        types = [a.type for a in main.entry_block.arguments]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, main.type.results))


def parameters_to_globals(module: Any) -> None:
    """Before: ``@main(%w {mlirstack.parameter = "w"}, %x)``.  After: ``util.global @parameter_0``, ``@main(%x)``.

    The names stand in the reflection of ``@main``, in the order of their globals, so that a compiled module says itself
    what it has to be given.  IREE's ops are not known to these bindings: they are built as unregistered ops, and IREE's
    compiler reads them from bytecode as its own.
    """
    main = function(module, MAIN).opview
    arguments = list(main.entry_block.arguments)
    names = {i: name for i, name in marked_parameters(main).items() if _fits_archive(arguments[i].type)}
    if not names:
        return
    module.context.allow_unregistered_dialects = True
    with module.context, ir.Location.unknown():
        for symbol, (i, name) in enumerate(names.items()):
            _declare_global(module, f"parameter_{symbol}", name, arguments[i].type)
            value = _load_global(main, f"parameter_{symbol}", arguments[i])
            arguments[i].replace_all_uses_with(value)
        _drop_arguments(main, set(names))
        reflection = {REFLECTION: ir.StringAttr.get(json.dumps(list(names.values())))}
        main.attributes["iree.reflection"] = ir.DictAttr.get(reflection)


def _fits_archive(kind: Any) -> bool:
    """Archives hold non-empty static tensors of numbers; complex ones and scalars stay arguments."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape or 0 in kind.shape:
        return False
    return isinstance(kind.element_type, (ir.FloatType, ir.IntegerType))


def _declare_global(module: Any, symbol: str, name: str, kind: Any) -> None:
    scope, key = json.dumps(SCOPE), json.dumps(name)
    ir.Operation.create(
        "util.global",
        attributes={
            "sym_name": ir.StringAttr.get(symbol),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(kind),
            "initial_value": ir.Attribute.parse(f"#flow.parameter.named<{scope}::{key}> : {kind}"),
        },
        ip=ir.InsertionPoint.at_block_begin(module.body),
    )


def _load_global(main: Any, symbol: str, argument: Any) -> Any:
    load = ir.Operation.create(
        "util.global.load",
        results=[argument.type],
        attributes={"global": ir.FlatSymbolRefAttr.get(symbol)},
        loc=argument.location,
        ip=ir.InsertionPoint.at_block_begin(main.entry_block),
    )
    return load.result


def _drop_arguments(main: Any, positions: set[int]) -> None:
    kept = [i for i in range(len(main.entry_block.arguments)) if i not in positions]
    types = [main.entry_block.arguments[i].type for i in kept]
    attributes = [ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes["arg_attrs"])]
    for i in sorted(positions, reverse=True):
        main.entry_block.erase_argument(i)
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, main.type.results))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([_without_mark(attributes[i]) for i in kept])


def _without_mark(attributes: Any) -> Any:
    return ir.DictAttr.get({named.name: named.attr for named in attributes if named.name != PARAMETER})
