"""Small helpers over func.func that several passes need: argument attributes, signatures, calls, unique names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import functions


def name_of(function: Any) -> str:
    """The symbol name of a function."""
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def type_of(function: Any) -> Any:
    """The ``ir.FunctionType`` of a func.func."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def set_type(function: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    """Set the type of a func.func; arguments and returns are changed by the caller."""
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(inputs), list(results)))


def is_declaration(function: Any) -> bool:
    """Has the function no body?"""
    return len(function.regions[0].blocks) == 0


def is_private(function: Any) -> bool:
    """Is the function visible in its module only?"""
    visibility = "sym_visibility"
    return visibility in function.attributes and ir.StringAttr(function.attributes[visibility]).value == "private"


def entry_points(module: Any) -> Iterator[Any]:
    """The public functions with a body."""
    return (f for f in functions(module) if not is_private(f) and not is_declaration(f))


def declarations(module: Any) -> Iterator[Any]:
    """The functions without a body."""
    return (f for f in functions(module) if is_declaration(f))


def declare(module: Any, types: Mapping[str, Any]) -> None:
    """Declare the private functions of these names and types that ``module`` does not have yet."""
    known = {name_of(op) for op in module.body if "sym_name" in op.attributes}
    with ir.InsertionPoint.at_block_begin(module.body):
        for symbol, kind in types.items():
            if symbol not in known:
                dialect("func").FuncOp(symbol, kind, visibility="private")


def argument_attributes(function: Any) -> list[dict[str, Any]]:
    """One dictionary of attributes per argument."""
    count = len(type_of(function).inputs)
    if "arg_attrs" not in function.attributes:
        return [{} for _ in range(count)]
    found = ir.ArrayAttr(function.attributes["arg_attrs"])
    return [{named.name: named.attr for named in ir.DictAttr(entry)} for entry in found]


def set_argument_attributes(function: Any, attributes: Sequence[dict[str, Any]]) -> None:
    """Inverse of :func:`argument_attributes`."""
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in attributes])


def integer(attribute: Any) -> int:
    """The value of an integer attribute."""
    return int(ir.IntegerAttr(attribute).value)


def index_attribute(value: int) -> Any:
    """A 64-bit integer attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def return_op(function: Any) -> Any:
    """The func.return of a function with one block."""
    return list(function.regions[0].blocks[0].operations)[-1]


def yield_op(block: Any) -> Any:
    """The terminator of a block."""
    return list(block.operations)[-1].operation


def defining_op(value: Any) -> Any | None:
    """The operation whose result ``value`` is; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation
