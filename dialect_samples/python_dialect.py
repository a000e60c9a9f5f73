"""# A dialect defined in Python, and a pattern that lowers it

For: an abstraction of one's own without C++: ops and their constraints as Python classes (through IRDL), and a rewrite
pattern in Python that lowers them.
Level: wherever it is put; here between a front end and arith.
Try: python dialect_samples/python_dialect.py

RUN: %python %s | FileCheck %s
"""

# No "from __future__ import annotations": the bindings read the annotations of these classes.
from typing import Any

from mlirstack.bindings import dialect, ir, new_context, rewrite
from mlirstack.ir.diagnostics import collect_diagnostics

arith, ext = dialect("arith"), dialect("ext")

I32 = ir.IntegerType[32]


class Clamping(ext.Dialect, name="clamping"):
    """Arithmetic that saturates."""


class AddOp(Clamping.Operation, name="add"):
    """``clamping.add``: the sum of two integers, or 100 where it is more."""

    lhs: ext.Operand[I32]
    rhs: ext.Operand[I32]
    sum: ext.Result[I32] = ext.infer_result()


# An op of a Python dialect is printed in the generic form, and verified as IRDL says.
# CHECK-LABEL: before
# CHECK:       %[[S:.*]] = "clamping.add"(%{{.*}}, %{{.*}}) : (i32, i32) -> i32
# CHECK:       return %[[S]]
PROGRAM = """
func.func @main(%x: i32, %y: i32) -> i32 {
  %0 = "clamping.add"(%x, %y) : (i32, i32) -> i32
  return %0 : i32
}
"""


def lower_add(op: Any, rewriter: Any) -> None:
    """``clamping.add`` to ``arith.addi`` and ``arith.minsi``."""
    with rewriter.ip, op.location:
        i32 = ir.IntegerType.get_signless(32)
        total = arith.addi(op.operands[0], op.operands[1])
        most = arith.constant(i32, 100)
        rewriter.replace_op(op, [arith.minsi(total, most)])


# CHECK-LABEL: after
# CHECK-NOT:   clamping
# CHECK-DAG:   %[[SUM:.*]] = arith.addi
# CHECK-DAG:   %[[MOST:.*]] = arith.constant 100
# CHECK:       arith.minsi %[[SUM]], %[[MOST]]
def main() -> None:
    """Load the dialect, parse a program that uses it, lower it."""
    with new_context() as context, ir.Location.unknown():
        Clamping.load()
        module = ir.Module.parse(PROGRAM, context)
        print("before", module, sep="\n")
        patterns = rewrite().RewritePatternSet()
        patterns.add(AddOp, lower_add)
        rewrite().apply_patterns_and_fold_greedily(module, patterns.freeze())
        print("after", module, sep="\n")
        # CHECK-LABEL: wrong
        # CHECK:       expected 'i32' but got 'i64'
        print("wrong")
        with collect_diagnostics(context) as diagnostics:
            try:
                ir.Module.parse(PROGRAM.replace("i32", "i64"), context)
            except ir.MLIRError:
                print(diagnostics[0].message)


if __name__ == "__main__":
    main()
