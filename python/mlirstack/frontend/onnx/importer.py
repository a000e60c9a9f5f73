"""From an ONNX graph to MLIR: ``@main`` over the graph's inputs, one ``torch.operator "onnx.NAME"`` for each node.

The step to ATen operators is torch-mlir's pass ``convert-torch-onnx-to-torch``; :class:`FinishOnnx` stands behind it.  Where
that fails, :func:`unsupported_operators` names all that is in the way; where a later step fails,
:func:`first_failing_operator` names the first.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir, new_context, onnx_importer
from mlirstack.errors import StageError, UnsupportedOp
from mlirstack.frontend.onnx.refusals import described, is_constant
from mlirstack.frontend.program import ENTRY
from mlirstack.frontend.unsupported import Route, failure
from mlirstack.ir.ops import function, functions, is_onnx, walk
from mlirstack.ir.parameters import mark_parameters
from mlirstack.ir.text import clone_module
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Pass, PythonPass

_META = "torch.onnx_meta."
_CONVERT = "convert-torch-onnx-to-torch"


def import_onnx(model: Any, parameters: Sequence[str]) -> Any:
    """The module of an ``onnx.ModelProto`` with inferred shapes, in a context of its own; ``parameters`` name its weights
    among the inputs of the graph."""
    model.graph.name = ENTRY
    importer = onnx_importer()
    information = importer.ModelInfo(model)
    module = information.create_module(context=new_context())
    importer.NodeImporter.define_function(information.main_graph, module.operation).import_all()
    positions = {i: value.name for i, value in enumerate(model.graph.input) if value.name in set(parameters)}
    mark_parameters(function(module, ENTRY), positions)
    return module


@dataclass(frozen=True)
class FinishOnnx(PythonPass):
    """Before: what ``convert-torch-onnx-to-torch`` leaves.  After: the same, without the attributes that say which opset the
    function is of; :class:`StageError` where an operator of ONNX is left, which that pass passes over in silence.
    """

    name: ClassVar[str] = "mlirstack-finish-onnx"

    def apply(self, module: Any) -> None:
        """Check, then remove the attributes."""
        left = list(dict.fromkeys(described(op) for op in walk(module) if is_onnx(op)))
        if left:
            raise StageError(f"no conversion to the torch dialect for {', '.join(left)}", stage="torch")
        for op in functions(module):
            for name in [name for name in op.attributes if name.startswith(_META)]:
                del op.attributes[name]


def unsupported_operators(module: Any) -> tuple[UnsupportedOp, ...]:
    """All operators of ONNX in ``module`` that have no conversion, found by converting each alone.

    Operators with graphs inside (If, Loop) are not examined.
    """
    failing = [op for op in walk(module) if is_onnx(op) and not op.regions and not _converts(op)]
    return tuple(dict.fromkeys(UnsupportedOp(described(op), "has no conversion to the torch dialect") for op in failing))


def _converts(op: Any) -> bool:
    try:
        run_steps((Pass(_CONVERT, on="func.func"), FinishOnnx()), _alone(op))
    except StageError:
        return False
    return True


def first_failing_operator(module: Any, routes: Sequence[Route]) -> tuple[str, StageError] | None:
    """The first operator of ONNX up to which ``module`` fails on all ``routes``, with the error of the last; None where only
    the whole fails.

    What stands before an operator stays: many conversions read the constants that lead to it.
    """
    operators = [op for op in _operations(function(module, ENTRY)) if is_onnx(op)]

    def fails(count: int) -> StageError | None:
        return failure(functools.partial(_beginning, module, count), routes)

    position = bisect.bisect_left(range(len(operators)), True, key=lambda i: fails(i + 1) is not None)
    error = fails(position + 1) if position < len(operators) else None
    return None if error is None else (described(operators[position]), error)


def _operations(entry: Any) -> list[Any]:
    # As plain operations: those of the torch dialect have properties of their own, "name" among them.
    return [op.operation for op in entry.entry_block.operations]


def _beginning(module: Any, count: int) -> Any:
    """A copy of ``module`` that ends after its first ``count`` operators of ONNX, and returns what the last one gives."""
    copy = clone_module(module)
    entry = function(copy, ENTRY)
    operations = _operations(entry)
    last = [op for op in operations if is_onnx(op)][count - 1]
    for op in reversed(operations[operations.index(last) + 1 :]):
        op.erase()
    with copy.context, ir.Location.unknown():
        with ir.InsertionPoint(entry.entry_block):
            dialect("func").ReturnOp(list(last.results))
        results = [value.type for value in last.results]
        kind = ir.FunctionType.get([value.type for value in entry.arguments], results)
        entry.attributes["function_type"] = ir.TypeAttr.get(kind)
    return copy


def _alone(op: Any) -> Any:
    """A module of ``op`` only: operands are arguments, but for constants, which conversions look at."""
    func = dialect("func")
    with op.context, ir.Location.unknown():
        module = ir.Module.create()
        constants = {i: made.owner for i, made in enumerate(op.operands) if is_constant(made)}
        given = [value.type for i, value in enumerate(op.operands) if i not in constants]
        kind = ir.FunctionType.get(given, [value.type for value in op.results])
        with ir.InsertionPoint(module.body):
            entry = func.FuncOp("alone", kind)
        for name, attribute in _opset(op):
            entry.attributes[name] = attribute
        arguments = iter(entry.add_entry_block().arguments)
        with ir.InsertionPoint(entry.entry_block):
            operands = [
                constants[i].operation.clone().results[0] if i in constants else next(arguments)
                for i in range(len(op.operands))
            ]
            call = op.operation.clone()
            for i, value in enumerate(operands):
                call.operands[i] = value
            func.ReturnOp(list(call.results))
    return module


def _opset(op: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of the function around ``op`` that say what ONNX it is written in."""
    parent = op.parent
    for name in parent.attributes if parent is not None else ():
        if name.startswith(_META):
            yield name, parent.attributes[name]
