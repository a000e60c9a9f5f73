"""Checks at run time in the torch dialect, and the truth values that they join.

Apart from :mod:`mlirstack.frontend.checks`, which captures a model where there are no MLIR bindings.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from mlirstack.bindings import ir
from mlirstack.frontend.checks import is_check

_JOINS = {operator.and_: "torch.aten.mul.int", operator.or_: "torch.aten.add.int"}  # on numbers that are 0 or 1


def checking_importer(base: Any) -> Any:
    """``base``, torch-mlir's importer of nodes, extended by checks."""

    class CheckingImporter(base):  # type: ignore[misc]
        def _import_torch_op_overload(self, loc: Any, node: fx.Node, concrete_target: Any = None) -> None:
            if not is_check(node):
                super()._import_torch_op_overload(loc, node, concrete_target)
                return
            condition, message = node.args
            if isinstance(condition, bool) and condition:
                return
            value = self._import_argument(loc, condition)
            if value.type != self._cc.torch_bool_type:
                raise NotImplementedError(f"a check of {value.type}")
            text = ir.StringAttr.get(str(message), context=loc.context)
            ir.Operation.create("torch.runtime.assert", operands=[value], attributes={"message": text}, loc=loc)

        def _import_symbolic_torch_op(self, loc: Any, node: fx.Node, target: Any) -> None:
            """Truth values that are joined, for which torch-mlir's importer has nothing: as the numbers 0 and 1."""
            if target not in _JOINS:
                super()._import_symbolic_torch_op(loc, node, target)
                return

            def call(name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
                made = ir.Operation.create(name, results=[kind], operands=operands, attributes=attributes, loc=loc)
                return made.result

            integer = self._cc.torch_int_type
            zero = call("torch.constant.int", integer, value=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0))
            left, right = (call("torch.aten.Int.bool", integer, self._import_argument(loc, part)) for part in node.args)
            joined = call(_JOINS[target], integer, left, right)
            self.bind_node_value(node, call("torch.aten.ne.int", self._cc.torch_bool_type, joined, zero))

    return CheckingImporter
