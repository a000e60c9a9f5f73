"""The edits that make a module smaller: each takes something out and leaves a module that is still well-formed, mostly.

An edit is plain data, ``{"edit": name, …}``; operations are named by their number in :func:`mlirstack.ir.ops.walk`.  Whether
the result is valid is the verifier's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlirstack.bindings import PassManager, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.reduce.shapes import dimensions, resize, simplify_constant

Edit = dict[str, Any]

_SIGNATURE = ("sym_name", "function_type")
# What holds a body together; taken out with the op that holds it.
_FRAMES = ("func.func", "llvm.func", "builtin.module", "gpu.module", "gpu.func")


def inventory(module: Any) -> dict[str, Any]:
    """What there is to edit: ``ops`` (numbers of those that can be dropped), ``count`` (of all), ``functions`` (names),
    ``results`` and ``arguments`` (function → how many), ``regions`` (ops that could be replaced by their body),
    ``sizes`` (of static dimensions, largest first), ``attributes`` ([op, attribute, name of the op])."""
    operations = list(walk(module))
    found: dict[str, Any] = {"count": len(operations), "ops": [], "regions": [], "attributes": [], "functions": []}
    found |= {"results": {}, "arguments": {}, "sizes": dimensions(module), "constants": []}
    for number, op in enumerate(operations):
        if op.name in _FRAMES:
            if "sym_name" in op.attributes:
                found["functions"].append(functions.name_of(op))
            if op.name == "func.func" and not functions.is_declaration(op):
                kind = functions.type_of(op)
                found["results"][functions.name_of(op)] = len(kind.results)
                found["arguments"][functions.name_of(op)] = len(kind.inputs)
        elif not _is_terminator(op):
            found["ops"].append(number)
            if any(len(region.blocks) == 1 for region in op.regions) and not op.name.startswith("linalg."):
                found["regions"].append(number)
        if "value" in op.attributes or "values" in op.attributes:
            found["constants"].append(number)
        found["attributes"] += [
            [number, named, op.name] for named in op.attributes if named not in ("sym_name", "function_type")
        ]
    return found


def apply(module: Any, edit: Edit) -> None:
    """Edit ``module`` in place."""
    with module.context, ir.Location.unknown(module.context):
        _EDITS[edit["edit"]](module, edit)


def _drop_functions(module: Any, edit: Edit) -> None:
    names = set(edit["names"])
    for op in list(module.body.operations):
        if "sym_name" in op.attributes and functions.name_of(op) in names:
            op.operation.erase()


def _drop_ops(module: Any, edit: Edit) -> None:
    """Take ops out, the last first; what used their results uses an operand of the same type, or a new argument."""
    operations = list(walk(module))
    for number in sorted(edit["ops"], reverse=True):
        op = operations[number]
        for result in op.results:
            if next(iter(result.uses), None) is not None:
                result.replace_all_uses_with(_substitute(op, result, operands=edit.get("operands", True)))
        op.erase()


def _substitute(op: Any, result: Any, *, operands: bool) -> Any:
    if operands:
        for operand in op.operands:
            if operand.type == result.type:
                return operand
    zero = _zero(op, result.type)
    return zero if zero is not None else _new_argument(op, result.type)


def _zero(op: Any, kind: Any) -> Any | None:
    """A constant for scalars and for LLVM's types; None for what is better handed in from outside."""
    text = str(kind)
    if text.startswith("!llvm.") or op.name.startswith("llvm."):
        return ir.Operation.create("llvm.mlir.zero", results=[kind], ip=ir.InsertionPoint(op)).result
    if not isinstance(kind, (ir.IntegerType, ir.IndexType, ir.F16Type, ir.F32Type, ir.F64Type, ir.BF16Type)):
        return None
    floating = not isinstance(kind, (ir.IntegerType, ir.IndexType))
    value = ir.FloatAttr.get(kind, 1.0) if floating else ir.IntegerAttr.get(kind, 0)
    return ir.Operation.create(
        "arith.constant", results=[kind], attributes={"value": value}, ip=ir.InsertionPoint(op)
    ).result


def _new_argument(op: Any, kind: Any) -> Any:
    """A new argument of the function around ``op``."""
    parent = op.parent
    while parent is not None and parent.name != "func.func":
        parent = parent.operation.parent
    if parent is None:
        raise ValueError(f"no function around {op.name}")
    signature = functions.type_of(parent)
    attributes = [*functions.argument_attributes(parent), {}]
    argument = parent.regions[0].blocks[0].add_argument(kind, op.location)
    functions.set_type(parent, [*signature.inputs, kind], signature.results)
    functions.set_argument_attributes(parent, attributes)
    return argument


def _drop_results(module: Any, edit: Edit) -> None:
    """Keep the results ``keep`` of a function."""
    entry = _function(module, edit["function"])
    kept = set(edit["keep"])
    for op in [op for op in walk(entry) if op.name == "func.return" and op.parent.operation == entry.operation]:
        operands = [value for i, value in enumerate(op.operands) if i in kept]
        ir.Operation.create("func.return", operands=operands, ip=ir.InsertionPoint(op))
        op.erase()
    signature = functions.type_of(entry)
    functions.set_type(entry, signature.inputs, [t for i, t in enumerate(signature.results) if i in kept])
    if "res_attrs" in entry.attributes:
        given = ir.ArrayAttr(entry.attributes["res_attrs"])
        entry.attributes["res_attrs"] = ir.ArrayAttr.get([a for i, a in enumerate(given) if i in kept])


def _return_operand(module: Any, edit: Edit) -> None:
    """Return an operand of the op that computes a result, in the place of that result."""
    entry = _function(module, edit["function"])
    leave = functions.return_op(entry)
    operation = functions.defining_op(leave.operands[edit["index"]])
    if operation is None:
        raise ValueError("the result is an argument")
    leave.operation.operands[edit["index"]] = operation.operands[edit["operand"]]
    functions.set_type(entry, functions.type_of(entry).inputs, [value.type for value in leave.operands])


def _drop_arguments(module: Any, edit: Edit) -> None:
    """Drop the arguments of a function that nothing uses."""
    entry = _function(module, edit["function"])
    block = entry.regions[0].blocks[0]
    unused = [i for i, a in enumerate(block.arguments) if next(iter(a.uses), None) is None]
    signature, attributes = functions.type_of(entry), functions.argument_attributes(entry)
    for i in reversed(unused):
        block.erase_argument(i)
    kept = [i for i in range(len(signature.inputs)) if i not in unused]
    functions.set_type(entry, [signature.inputs[i] for i in kept], signature.results)
    functions.set_argument_attributes(entry, [attributes[i] for i in kept])


def _inline_region(module: Any, edit: Edit) -> None:
    """Replace an op by the body of its first region with one block: a loop by one iteration, a branch by one side."""
    op = list(walk(module))[edit["op"]]
    block = next(region.blocks[0] for region in op.regions if len(region.blocks) == 1)
    operations = list(block.operations)
    for argument in block.arguments:
        value = next((operand for operand in op.operands if operand.type == argument.type), None)
        argument.replace_all_uses_with(value if value is not None else _substitute(op, argument, operands=False))
    yielded = list(operations[-1].operation.operands)
    for inner in operations[:-1]:
        inner.operation.move_before(op)
    for result, value in zip(op.results, yielded, strict=False):
        result.replace_all_uses_with(value)
    op.erase()


def _drop_attributes(module: Any, edit: Edit) -> None:
    operations = list(walk(module))
    for number, name, _ in edit["attributes"]:
        del operations[number].attributes[name]


def _simplify_constants(module: Any, edit: Edit) -> None:
    operations = list(walk(module))
    for number in edit["ops"]:
        simplify_constant(operations[number])


def _resize(module: Any, edit: Edit) -> None:
    resize(module, {int(size): new for size, new in edit["sizes"].items()})


def _passes(module: Any, edit: Edit) -> None:
    PassManager.parse(edit["pipeline"]).run(module.operation)


def _own_arguments(module: Any, edit: Edit) -> None:
    """Make the entry function stand alone: it is handed all that another function prepares for it."""
    for op in list(module.body.operations):
        if op.operation.name != "func.func":
            continue
        if functions.name_of(op) == "prepare":
            op.operation.erase()
            continue
        for name in ("arg_attrs", "res_attrs"):
            if name in op.attributes:
                del op.attributes[name]


def _function(module: Any, name: str) -> Any:
    return next(op for op in module.body.operations if op.operation.name == "func.func" and functions.name_of(op) == name)


def _is_terminator(op: Any) -> bool:
    block = op.block
    last = list(block.operations)[-1].operation
    return bool(last == op) and (op.name.rsplit(".", 1)[-1] in _TERMINATORS or len(op.successors) > 0)


_TERMINATORS = {"return", "yield", "condition", "br", "cond_br", "switch", "unreachable", "in_parallel", "terminator"}

_EDITS: dict[str, Callable[[Any, Edit], None]] = {
    "drop-functions": _drop_functions,
    "drop-ops": _drop_ops,
    "drop-results": _drop_results,
    "return-operand": _return_operand,
    "drop-arguments": _drop_arguments,
    "inline-region": _inline_region,
    "drop-attributes": _drop_attributes,
    "simplify-constants": _simplify_constants,
    "resize": _resize,
    "passes": _passes,
    "own-arguments": _own_arguments,
}
