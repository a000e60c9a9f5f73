"""What is made of the arguments of ``@main`` before IREE's compiler sees them.

Booleans are passed as bytes, arguments that IREE may write to are named, and parameters become globals, which IREE may
fold, transpose and pack once at load: ``util.global`` ops, filled by the runtime from a parameter archive in memory.  IREE
keeps what it computes from globals alone; what it computes from arguments it computes per call
(docs/decisions/iree-weights.md has the numbers).
"""

from __future__ import annotations

import json
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import function
from mlirstack.ir.parameters import PARAMETER, marked_parameters
from mlirstack.passes import functions
from mlirstack.passes.abi import ARGUMENT, MAIN
from mlirstack.passes.iree.archive import ARGUMENTS, PARAMETERS, SCOPE, WRITTEN
from mlirstack.passes.iree.executables import written_operands


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


def name_written_arguments(module: Any) -> None:
    """Name, in the reflection of ``@main``, the positions of arguments that IREE may take as the buffer of a result.

    What computes into its destination (scatter, insert_slice, an accumulation) computes into the caller's memory where the
    destination is an argument without further use (iree-org/iree issue 16168).  Whoever calls passes a copy instead.
    """
    main = function(module, MAIN).opview
    written = [i for i, a in enumerate(main.entry_block.arguments) if _may_be_written(a)]
    if written:
        reflect(main, WRITTEN, json.dumps(written))


def name_arguments(module: Any) -> None:
    """Name, in the reflection of ``@main``, the arguments of the program that are left, where passes have numbered them:
    parameters that nothing uses are gone."""
    main = function(module, MAIN).opview
    attributes = functions.argument_attributes(main)
    numbers = [functions.integer(given.pop(ARGUMENT)) for given in attributes if ARGUMENT in given]
    if len(numbers) == len(attributes):
        with module.context:
            functions.set_argument_attributes(main, attributes)
        reflect(main, ARGUMENTS, json.dumps(numbers))


def reflect(main: Any, key: str, value: str) -> None:
    """Add an entry to the reflection of ``@main``, which the compiled module answers with."""
    with main.context:
        known = ir.DictAttr(main.attributes["iree.reflection"]) if "iree.reflection" in main.attributes else ()
        entries = {named.name: named.attr for named in known} | {key: ir.StringAttr.get(value)}
        main.attributes["iree.reflection"] = ir.DictAttr.get(entries)


_VIEWS = frozenset({"tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.extract_slice", "tensor.reshape"})
_READERS = frozenset(
    {
        "tensor.extract",
        "tensor.dim",
        "tensor.concat",
        "tensor.pad",
        "shape.shape_of",
        "func.return",
        "arith.trunci",  # of bytes to booleans: another type, so never in place
    }
)


def _may_be_written(value: Any) -> bool:
    """Might an op take the buffer of ``value`` for its result?  Destinations do; what is not known to read only, too."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in _VIEWS:
            if any(_may_be_written(result) for result in op.results):
                return True
        elif op.name == "tensor.insert_slice":
            if use.operand_number == 1:
                return True
        elif op.name.startswith(("linalg.", "tm_tensor.")):
            if use.operand_number >= len(op.operands) - len(op.results):  # destinations stand last, one a result
                return True
        elif op.name == "flow.dispatch":  # of a kernel that is compiled already: it says what it writes
            if use.operand_number in written_operands(op):
                return True
        elif op.name not in _READERS:
            return True
    return False


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
    reflect(main, PARAMETERS, json.dumps(list(names.values())))


def describe_device(module: Any, targets: str | None) -> None:
    """Give the module the attribute ``hal.device.targets``: a device that IREE's compiler does not know by name."""
    if targets is None:
        return
    module.context.allow_unregistered_dialects = True
    with module.context:
        module.operation.attributes["hal.device.targets"] = ir.Attribute.parse(targets)


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
