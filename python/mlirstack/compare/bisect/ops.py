"""The first op of a wrong module whose value the right one does not have.

The entry function is rewritten to return the values of all its ops and executed by the plain path; a value that neither a
node of the exported graph nor an op of the right module has is a suspect.  A suspect is confirmed by substitution: with the
right value handed in from outside instead, the answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mlirstack.bindings import dialect, ir
from mlirstack.compare.accuracy import TOLERANCES
from mlirstack.compare.bisect.execute import executable_of_module
from mlirstack.compare.bisect.subject import Subject
from mlirstack.errors import MlirstackError
from mlirstack.frontend.dtypes import parse_type
from mlirstack.frontend.program import ENTRY, ArgumentSpec, ResultSpec
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.ops import function
from mlirstack.ir.text import clone_module
from mlirstack.passes import abi, functions
from mlirstack.supervised import Tell

# Not computed: nothing can be wrong with their values alone.
_FREE = frozenset(
    {"tensor.empty", "arith.constant", "tosa.const", "tosa.const_shape", "tensor.cast", "bufferization.alloc_tensor"}
)
_BYTES = 1 << 30  # of all values together
_TRIALS = 24  # suspects that are tried by substitution
_LINES, _COLUMNS = 12, 400  # that are shown of an op


@dataclass(frozen=True)
class _Value:
    """A value of the entry block: the number of its op there, of its result, and what it was when executed."""

    op: int
    result: int
    value: torch.Tensor


def first_wrong_op(
    wrong: Any, right: Any | None, graph: Sequence[tuple[str, torch.Tensor]], subject: Subject, tell: Tell
) -> dict[str, Any]:
    """``found``: the fields of an :class:`OpFinding` except its stage, or None and a ``note`` that says why."""
    tell("executing")
    known = [value for _, value in graph]
    if right is not None:
        known += [found.value for found in _values(right, subject)]
    known += [t for t in (*subject.parameters.values(), *subject.inputs) if isinstance(t, torch.Tensor)]
    fallback: dict[str, Any] | None = None
    trials = 0
    for found in _values(wrong, subject):
        candidates = [value for value in known if value.numel() == found.value.numel() and value.dtype == found.value.dtype]
        errors = [_distance(found.value, value) for value in candidates]
        if not errors or min(errors) <= _tolerance(found.value):
            continue
        op = _block(wrong).operations[found.op]
        fields = {
            "op": op.operation.name,
            "text": shortened(_text(op).splitlines()),
            "location": location_text(op.location),
            "rel_l2": min(errors),
            "confirmed": False,
        }
        fallback = fallback or fields
        for value in {id(v): v for v in reversed(candidates)}.values():
            trials += 1
            tell("executing")
            if trials <= _TRIALS and _right_with(wrong, found, value, subject):
                error = relative_distance(found.value.double(), value.double().reshape(found.value.shape))
                return {"found": {**fields, "rel_l2": error, "confirmed": True}, "note": None}
    note = "every value that can be compared is one of the right module's: the mistake is in how they are put together"
    return {"found": fallback, "note": None if fallback else note}


def location_text(location: Any) -> str | None:
    """The line of the user's program that a location names first; None where it names none."""
    line = source_line(location)
    return str(line) if line and line.file != "-" else None  # "-": a line of the module's own text


def _text(op: Any) -> str:
    return str(op.operation.get_asm(large_elements_limit=8, use_local_scope=True)).strip()


def shortened(lines: Sequence[str]) -> str:
    """The lines as text, the first ones if there are many, and the begin of long ones."""
    shown = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], "…"]
    return "\n".join(line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…" for line in shown)


def _block(module: Any) -> Any:
    return function(module, ENTRY).regions[0].blocks[0]


def _candidates(block: Any) -> Iterator[tuple[int, int, Any]]:
    """Op, result and type of each computed tensor of static shape, as long as all of them together are not too large."""
    total = 0
    for number, op in enumerate(block.operations):
        if op.operation.name in _FREE:
            continue
        for index, result in enumerate(op.results):
            shape, dtype = parse_type(str(result.type))
            if not str(result.type).startswith("tensor<") or shape is None or None in shape or dtype is None:
                continue
            total += math.prod(size or 0 for size in shape) * getattr(torch, dtype).itemsize
            if total > _BYTES:
                return
            yield number, index, result.type


def _values(module: Any, subject: Subject) -> list[_Value]:
    """The value of every op of the entry block, in order: one execution of a function that returns all of them."""
    copy = clone_module(module)
    block = _block(copy)
    wanted = list(_candidates(block))
    if not wanted:
        return []
    operations = list(block.operations)
    with copy.context, ir.Location.unknown(copy.context):
        entry = function(copy, ENTRY)
        leave = functions.return_op(entry)
        returned = [operations[op].results[index] for op, index, _ in wanted]
        with ir.InsertionPoint(leave):
            dialect("func").ReturnOp(returned)
        leave.operation.erase()
        functions.set_type(entry, functions.type_of(entry).inputs, [value.type for value in returned])
        if "res_attrs" in entry.attributes:
            del entry.attributes["res_attrs"]
    results = tuple(_result_spec(kind) for _, _, kind in wanted)
    signature = replace(subject.signature, results=results)
    executable = executable_of_module(copy, replace(subject, signature=signature))
    tensors = executable.run(subject.leaves())
    return [_Value(op, index, tensor) for (op, index, _), tensor in zip(wanted, tensors, strict=True)]


def _result_spec(kind: Any) -> ResultSpec:
    shape, dtype = parse_type(str(kind))
    assert shape is not None and dtype is not None
    return ResultSpec(tuple(int(size or 0) for size in shape), dtype)


def _right_with(module: Any, found: _Value, value: torch.Tensor, subject: Subject) -> bool:
    """Is the answer right where ``value`` stands in the place of the one that was found?"""
    copy = clone_module(module)
    entry = function(copy, ENTRY)
    block = entry.regions[0].blocks[0]
    result = block.operations[found.op].results[found.result]
    position = len(subject.signature.arguments)
    with copy.context, ir.Location.unknown(copy.context):
        kind = functions.type_of(entry)
        attributes = functions.argument_attributes(entry)
        argument = block.add_argument(result.type, entry.location)
        functions.set_type(entry, [*kind.inputs, result.type], kind.results)
        given = {abi.ARGUMENT: functions.index_attribute(position)} if any(abi.ARGUMENT in a for a in attributes) else {}
        functions.set_argument_attributes(entry, [*attributes, given])
        result.replace_all_uses_with(argument)
    extra = ArgumentSpec("substituted", "parameter", tuple(found.value.shape), str(value.dtype).removeprefix("torch."))
    signature = replace(subject.signature, arguments=(*subject.signature.arguments, extra))
    parameters = {**subject.parameters, "substituted": value.reshape(found.value.shape).contiguous()}
    changed = replace(subject, signature=signature, parameters=parameters)
    try:
        return changed.judge(changed.answer(executable_of_module(copy, changed))).ok
    except MlirstackError:  # what cannot be executed confirms nothing
        return False


def _tolerance(value: torch.Tensor) -> float:
    known = TOLERANCES.get(value.dtype)
    return known.ceiling if known else 0.0


def _distance(got: torch.Tensor, value: torch.Tensor) -> float:
    """Relative L2 distance between the values as they lie in memory, or sorted: another layout is no other value."""
    a, b = got.double().flatten(), value.double().flatten()
    return min(relative_distance(a, b), relative_distance(a.sort().values, b.sort().values))


def relative_distance(got: torch.Tensor, value: torch.Tensor) -> float:
    """Relative L2 distance of what is finite; infinite where the same places do not hold the same NaN and infinities."""
    finite = value.isfinite()
    if torch.equal(got.isfinite(), finite) and torch.equal(got[~finite].nan_to_num(), value[~finite].nan_to_num()):
        got, value = got[finite], value[finite]
        return float(torch.linalg.vector_norm(got - value)) / (float(torch.linalg.vector_norm(value)) or 1.0)
    return math.inf
