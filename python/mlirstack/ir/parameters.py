"""Which arguments of the entry function are parameters, said in the IR itself.

The importer marks them, every lowering keeps the mark (an argument attribute), and a target that can do more with a weight
than with an input, such as packing it once at load, finds them by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlirstack.bindings import ir

PARAMETER = "mlirstack.parameter"


def mark_parameters(function: Any, names: Mapping[int, str]) -> None:
    """Give the arguments of a ``func.func`` at the positions ``names`` the attribute ``mlirstack.parameter = name``.

    Mark only what never changes between calls: a parameter that the program writes to is like any other argument.
    """
    function = function.opview
    with function.context:
        marked = [
            {named.name: named.attr for named in attributes}
            | ({PARAMETER: ir.StringAttr.get(names[i])} if i in names else {})
            for i, attributes in enumerate(_argument_attributes(function))
        ]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in marked])


def marked_parameters(function: Any) -> dict[int, str]:
    """Position and name of every argument that :func:`mark_parameters` has marked."""
    return {
        i: ir.StringAttr(attributes[PARAMETER]).value
        for i, attributes in enumerate(_argument_attributes(function.opview))
        if PARAMETER in attributes
    }


def _argument_attributes(function: Any) -> list[Any]:
    """One dictionary attribute an argument; the function may have none at all."""
    if "arg_attrs" in function.attributes:
        return [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["arg_attrs"])]
    with function.context:
        return [ir.DictAttr.get({}) for _ in function.type.inputs]
