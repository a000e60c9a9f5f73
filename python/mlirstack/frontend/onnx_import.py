"""From an ONNX graph to MLIR: ``@main`` over the graph's inputs, one ``torch.operator "onnx.NAME"`` for each node.

The step to ATen operators is torch-mlir's pass ``convert-torch-onnx-to-torch``; :class:`FinishOnnx` stands behind it.  Where
that fails, :func:`unsupported_operators` names all that is in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir, new_context, onnx_importer
from mlirstack.errors import StageError, UnsupportedOp
from mlirstack.frontend.program import ENTRY
from mlirstack.ir.ops import function, functions, is_onnx, walk
from mlirstack.ir.parameters import mark_parameters
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Pass, PythonPass

_META = "torch.onnx_meta."
_CONVERT = "convert-torch-onnx-to-torch"
_RANDOM = frozenset(
    f"onnx.{name}"
    for name in ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)


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
        left = list(dict.fromkeys(_described(op) for op in walk(module) if is_onnx(op)))
        if left:
            raise StageError(f"no conversion to the torch dialect for {', '.join(left)}", stage="torch")
        for op in functions(module):
            for name in [name for name in op.attributes if name.startswith(_META)]:
                del op.attributes[name]


def random_operators(module: Any) -> tuple[UnsupportedOp, ...]:
    """The operators in ``module`` that draw random numbers, which no compiled program draws as ONNX's evaluator does."""
    drawing = [op for op in walk(module) if is_onnx(op) and (_name(op) in _RANDOM or _drops(op))]
    return tuple(dict.fromkeys(UnsupportedOp(_described(op), "draws random numbers") for op in drawing))


def _drops(op: Any) -> bool:
    """Dropout in training, or where an input may say so."""
    if _name(op) != "onnx.Dropout" or len(op.operands) < 3:
        return False
    mode = op.operands[2]
    if not _is_constant(mode):
        return True
    value = mode.owner.attributes["torch.onnx.value"] if is_onnx(mode.owner) else None
    return value is not None and "dense<true>" in str(value)


def unsupported_operators(module: Any) -> tuple[UnsupportedOp, ...]:
    """All operators of ONNX in ``module`` that have no conversion, found by converting each alone.

    Operators with graphs inside (If, Loop) are not examined.
    """
    failing = [op for op in walk(module) if is_onnx(op) and not op.regions and not _converts(op)]
    return tuple(dict.fromkeys(UnsupportedOp(_described(op), "has no conversion to the torch dialect") for op in failing))


def _converts(op: Any) -> bool:
    try:
        run_steps((Pass(_CONVERT, on="func.func"), FinishOnnx()), _alone(op))
    except StageError:
        return False
    return True


def _alone(op: Any) -> Any:
    """A module of ``op`` only: operands are arguments, but for constants, which conversions look at."""
    func = dialect("func")
    with op.context, ir.Location.unknown():
        module = ir.Module.create()
        constants = {i: made.owner for i, made in enumerate(op.operands) if _is_constant(made)}
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


def _is_constant(value: Any) -> bool:
    if not isinstance(value, ir.OpResult):
        return False
    maker = value.owner
    is_literal = is_onnx(maker) and _name(maker) == "onnx.Constant"
    return is_literal or maker.name == "torch.constant.none"


def _opset(op: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of the function around ``op`` that say what ONNX it is written in."""
    parent = op.parent
    for name in parent.attributes if parent is not None else ():
        if name.startswith(_META):
            yield name, parent.attributes[name]


def _name(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["name"]).value)


def _described(op: Any) -> str:
    """``onnx.Add(!torch.vtensor<[2],f32>, …)``, and the node's name if it has one."""
    node = str(op.location).removeprefix("loc(").removesuffix(")").strip('"')
    types = ", ".join(str(operand.type) for operand in op.operands)
    return f"{_name(op)}({types})" + (f" of node '{node}'" if node not in ("", "unknown") else "")
