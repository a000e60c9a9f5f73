"""The failure that is a wrong number: a module is executed by the plain path before and after passes.

Apart from :mod:`.attempt`, because it needs torch, and most failures do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mlirstack.bindings import dialect, ir
from mlirstack.compare.accuracy import Answer, Reference
from mlirstack.compare.bisect.execute import executable_by_rest, executable_of_module
from mlirstack.compare.bisect.subject import Subject, drawn_inputs
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.frontend.mlir_source import program_of_module
from mlirstack.ir.ops import walk
from mlirstack.ir.text import clone_module
from mlirstack.pipeline.reproducer import Rest
from mlirstack.reduce.outcome import Outcome

if TYPE_CHECKING:
    from mlirstack.reduce.attempt import Task


def compared(before: Any, after: Any, task: Task) -> Outcome:
    """Execute both and compare: by the plain path, the latter by the rest of its table where the task has one."""
    subject: Subject | Outcome = Subject.load(Path(task.arguments)) if task.arguments else _drawn(before, task)
    if isinstance(subject, Outcome):
        return subject
    answered = _answer(after, subject, task.rest)
    if isinstance(answered, Outcome):
        return answered
    got, tf32 = answered
    accuracy = subject.judge(got, tf32=tf32)
    worst = accuracy.worst
    if accuracy.ok or worst is None:
        return Outcome("ok", "the numbers agree", rel_l2=worst.rel_l2 if worst else 0.0)
    if not task.arguments:
        again = _answer(_filled(before, _FILLINGS[1]), subject)
        if isinstance(again, Outcome) or not subject.judge(again[0]).ok:
            return Outcome("invalid", "the module reads memory that it never writes")
    return Outcome("wrong", accuracy.reason or "", rel_l2=worst.rel_l2)


def _drawn(module: Any, task: Task) -> Subject | Outcome:
    """Inputs that are drawn, and the module's own answer to them as the right one."""
    try:
        program = program_of_module(clone_module(module), "module")
    except UsageError as error:
        return Outcome("invalid", error.message)
    nothing = Answer({}, "")
    inputs = drawn_inputs(program.signature, task.seed)
    subject = Subject(program.signature, {}, inputs, Reference(nothing, nothing, "as is"))
    answered = _answer(_filled(module, _FILLINGS[0]), subject)
    if isinstance(answered, Outcome):
        return Outcome("invalid", f"before the passes: {answered.message}")
    right, _ = answered
    if not all(bool(leaf.isfinite().all()) for leaf in right.leaves.values() if isinstance(leaf, torch.Tensor)):
        return Outcome("invalid", "the right answer is not finite")
    return Subject(program.signature, {}, inputs, Reference(right, right, "as is"))


# What stands in memory that nothing was written to; an answer that depends on it is no answer.
_FILLINGS = (7, 99)


def _filled(module: Any, number: int) -> Any:
    """A copy in which fresh tensors and buffers are filled with ``number``."""
    copy = clone_module(module)
    with copy.context, ir.Location.unknown(copy.context):
        for op in walk(copy):
            if op.name not in ("tensor.empty", "memref.alloc", "memref.alloca"):
                continue
            element = op.results[0].type.element_type
            if not isinstance(element, (ir.IntegerType, ir.IndexType, ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)):
                continue
            floating = not isinstance(element, (ir.IntegerType, ir.IndexType))
            attribute = ir.FloatAttr.get(element, number) if floating else ir.IntegerAttr.get(element, number % 2)
            uses = list(op.results[0].uses)
            following = list(op.block.operations)
            position = next(i for i, other in enumerate(following) if other.operation == op)
            with ir.InsertionPoint(following[position + 1]):
                value = dialect("arith").ConstantOp(element, attribute).result
                filled = dialect("linalg").fill(value, outs=[op.results[0]])
            if op.name == "tensor.empty":
                for use in uses:
                    use.owner.operands[use.operand_number] = filled
    return copy


def _answer(module: Any, subject: Subject, rest: Rest | None = None) -> tuple[Answer, bool] | Outcome:
    """The answer, and whether f32 was multiplied as TF32; or why there is none."""
    try:
        executable = executable_by_rest(module, rest, subject) if rest else executable_of_module(module, subject)
        return subject.answer(executable), executable.tf32
    except MlirstackError as error:
        return Outcome("failure", f"cannot be executed: {error.message}")
