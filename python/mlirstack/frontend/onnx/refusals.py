"""Operators of ONNX that are refused before anything is tried, by name and with the reason.

They draw random numbers, or torch-mlir's conversion of them is known to be wrong or to end the process: each is a test of
ONNX's own that failed (torch-mlir 20261001).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import UnsupportedOp
from mlirstack.ir.ops import is_onnx, walk

_RANDOM = "draws random numbers"


def refused_operators(module: Any) -> tuple[UnsupportedOp, ...]:
    """The operators in ``module`` that are not even tried."""
    reasons = [(op, _reason(op)) for op in walk(module) if is_onnx(op)]
    return tuple(dict.fromkeys(UnsupportedOp(described(op), reason) for op, reason in reasons if reason))


def _reason(op: Any) -> str | None:
    is_refused, reason = _REFUSED.get(_name(op).removeprefix("onnx."), (_never, ""))
    return reason if is_refused(op) else None


def _never(op: Any) -> bool:
    return False


def _always(op: Any) -> bool:
    return True


def _drops(op: Any) -> bool:
    """Dropout in training, or where an input may say so."""
    if len(op.operands) < 3:
        return False
    mode = op.operands[2]
    if not is_constant(mode):
        return True
    value = mode.owner.attributes["torch.onnx.value"] if is_onnx(mode.owner) else None
    return value is not None and "dense<true>" in str(value)


def _has(position: int) -> Callable[[Any], bool]:
    """Whether an optional operand is given."""
    return lambda op: len(op.operands) > position and "none" not in str(op.operands[position].type)


def _says(name: str, text: str) -> Callable[[Any], bool]:
    return lambda op: f"torch.onnx.{name}" in op.attributes and text in str(op.attributes[f"torch.onnx.{name}"])


def _of_type(position: int, text: str) -> Callable[[Any], bool]:
    return lambda op: len(op.operands) > position and text in str(op.operands[position].type)


def _both(*conditions: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda op: all(condition(op) for condition in conditions)


def _is_empty(op: Any) -> bool:
    sizes = str(op.operands[0].type).partition("[")[2].partition("]")[0]
    return "0" in sizes.split(",")


def _grows_at_the_end(op: Any) -> bool:
    """Whether the last dimension alone is padded, or may be."""
    before, after = (str(v.type).partition("[")[2].partition("]")[0].split(",") for v in (op.operands[0], op.results[0]))
    return before[:-1] == after[:-1] and (before[-1] != after[-1] or "?" in after[-1])


_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"),
        (_always, _RANDOM),
    ),
    "Dropout": (_drops, _RANDOM),
    "Unique": (_always, "has no valid conversion: the number of its results depends on data"),
    "GridSample": (_always, "its conversion reads outside of the image, and rounds halves the other way"),
    "LpNormalization": (_always, "its conversion divides by a norm of zero"),
    "LSTM": (_has(7), "its conversion leaves peepholes out"),
    "QLinearMatMul": (
        lambda op: str(op.operands[0].type).partition("]")[0].count(",") > 1,
        "its conversion of batches is wrong",
    ),
    "Resize": (
        _both(_says("coordinate_transformation_mode", "align_corners"), _has(2)),
        "its conversion aligns corners of another size where scales are given",
    ),
    "SpaceToDepth": (_says("mode", "CRD"), "its conversion knows one order of channels"),
    "DequantizeLinear": (
        lambda op: "ui8" in str(op.operands[0].type) and "[]" not in str(op.operands[1].type),
        "its conversion takes unsigned numbers along an axis for signed ones",
    ),
    "Pad": (
        _both(_says("mode", "reflect"), _grows_at_the_end),
        "its conversion reflects the last dimension alone wrongly where its two ends are padded by different numbers",
    ),
    "QuantizeLinear": (_of_type(2, "ui16"), "its conversion ends the process"),
    "Reshape": (_is_empty, "its conversion of tensors without elements ends the process"),
}
"""Operator → when it is refused, and why."""


def is_constant(value: Any) -> bool:
    """Whether a value is a literal of ONNX, or the operand that is left out."""
    if not isinstance(value, ir.OpResult):
        return False
    maker = value.owner
    is_literal = is_onnx(maker) and _name(maker) == "onnx.Constant"
    return is_literal or maker.name == "torch.constant.none"


def _name(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["name"]).value)


def described(op: Any) -> str:
    """``onnx.Add(!torch.vtensor<[2],f32>, …)``, and the node's name if it has one."""
    node = str(op.location).removeprefix("loc(").removesuffix(")").strip('"')
    types = ", ".join(str(operand.type) for operand in op.operands)
    return f"{_name(op)}({types})" + (f" of node '{node}'" if node not in ("", "unknown") else "")
