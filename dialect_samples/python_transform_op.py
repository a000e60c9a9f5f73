"""# A transform op defined in Python

For: a step of a schedule that the transform dialect lacks: an op whose effect is a Python function.
Level: beside the payload.
Try: python dialect_samples/python_transform_op.py

RUN: %python %s | FileCheck %s
"""

# No "from __future__ import annotations": the bindings read the annotations of these classes.
from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir, new_context

ext, transform, interpreter = dialect("ext"), dialect("transform"), dialect("transform.interpreter")


class Counting(ext.Dialect, name="counting"):
    """Transform ops that count."""


class NumberOp(Counting.Operation, name="number"):
    """``counting.number``: gives every payload op of its handle an attribute ``number``."""

    target: ext.Operand[transform.AnyOpType]


class Effect(transform.TransformOpInterface):
    """What ``counting.number`` does to the payload."""

    @staticmethod
    def apply(op: Any, rewriter: Any, results: Any, state: Any) -> Any:
        """Number the payload ops."""
        for number, payload in enumerate(state.get_payload_ops(op.operands[0])):
            payload.attributes["number"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
        return transform.DiagnosedSilenceableFailure.Success

    @staticmethod
    def allow_repeated_handle_operands(_op: Any) -> bool:
        """May two operands be the same handle?"""
        return False


class Effects(ir.MemoryEffectsOpInterface):
    """``counting.number`` reads its handle and changes the payload."""

    @staticmethod
    def get_effects(op: Any, effects: Sequence[Any]) -> None:
        """Say so to the interpreter's checks."""
        transform.only_reads_handle(op.op_operands, effects)
        transform.modifies_payload(effects)


# CHECK-LABEL: func.func @main
# CHECK:       arith.addi {{.*}}{number = 0 : i64}
# CHECK:       arith.muli
# CHECK-NOT:   number
# CHECK:       arith.addi {{.*}}{number = 1 : i64}
PROGRAM = """
func.func @main(%x: i32) -> i32 {
  %0 = arith.addi %x, %x : i32
  %1 = arith.muli %0, %x : i32
  %2 = arith.addi %1, %x : i32
  return %2 : i32
}
"""
SCHEDULE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %adds = transform.structured.match ops{["arith.addi"]} in %root : (!transform.any_op) -> !transform.any_op
    "counting.number"(%adds) : (!transform.any_op) -> ()
    transform.yield
  }
}
"""


def main() -> None:
    """Load the op, apply a schedule that uses it."""
    with new_context() as context, ir.Location.unknown():
        Counting.load()
        Effect.attach(NumberOp.OPERATION_NAME)
        Effects.attach(NumberOp.OPERATION_NAME)
        payload, schedule = ir.Module.parse(PROGRAM, context), ir.Module.parse(SCHEDULE, context)
        entry = schedule.body.operations[0]
        interpreter.apply_named_sequence(payload, entry, schedule)
        print(payload)


if __name__ == "__main__":
    main()
