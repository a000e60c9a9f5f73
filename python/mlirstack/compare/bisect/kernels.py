"""The first kernel of a wrong module of a GPU that makes the answer wrong.

Kernels are exchanged, one after the other in their order, between the wrong module and a right one: what the passes make, if
the wrong one was given by hand; else the same kernels by the general mapping, which is slow and simple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlirstack.bindings import ir
from mlirstack.compare.accuracy import Accuracy
from mlirstack.compare.bisect.ops import location_text, shortened
from mlirstack.ir.diff import unified
from mlirstack.ir.locations import fused_location
from mlirstack.ir.ops import functions, walk
from mlirstack.ir.text import clone_module, module_bytecode, parse_module
from mlirstack.schedules.cuda.emitter import GENERAL, Choice, choice_of
from mlirstack.schedules.cuda.kernel import SCHEDULE

Judge = Callable[[Any], Accuracy]
"""Executes a module and judges its answer; raises :class:`MlirstackError` where it cannot."""


def first_exchanged(wrong: Any, right: Any, judge: Judge) -> dict[str, Any]:
    """The first top-level op of ``wrong`` that makes ``right`` wrong: ``found`` (fields of an :class:`OpFinding` except its
    stage) or None, and a ``note``.  Both are modules of one stage, with the same names."""
    ours, theirs = _units(right), _units(wrong)
    if ours.keys() != theirs.keys():
        return _nothing("the module has other kernels than the one that the passes make")
    differing = [name for name in theirs if _text(ours[name]) != _text(theirs[name])]
    if not differing:
        return _nothing("no kernel differs from what the passes make")
    for count, name in enumerate(differing, 1):
        accuracy = judge(_with_units(right, wrong, differing[:count]))
        if not accuracy.ok:
            alone = judge(_with_units(wrong, right, [name])).ok
            changed = unified(_text(ours[name]).splitlines(), _text(theirs[name]).splitlines(), "passes", "given", context=1)
            return _found(f"@{name}", ours[name], list(changed)[2:], accuracy, alone, "what the passes make")
    return _nothing("no kernel alone makes the answer wrong")


def first_emitted(module: Any, judge: Judge) -> dict[str, Any]:
    """As :func:`first_exchanged`, of a module before kernels are mapped: the first kernel, in the order of their functions,
    that is wrong as its emitter writes it, and right by the general mapping."""
    kernels = _emitted(module)
    if not kernels:
        return _nothing("no kernel is written by an emitter here")
    if not judge(_general(module, lambda number: True)).ok:
        return _nothing("with the general mapping in the place of every emitter the answer is as wrong")
    right, wrong = 0, len(kernels)  # numbers of kernels, from the first one, that emitters write
    accuracy: Accuracy | None = None
    while wrong - right > 1:
        count = (right + wrong) // 2
        tried = judge(_general(module, lambda number, count=count: number >= count))  # type: ignore[misc]
        right, wrong = (count, wrong) if tried.ok else (right, count)
        accuracy = accuracy if tried.ok else tried
    guilty = kernels[wrong - 1]
    accuracy = accuracy or judge(module)
    alone = judge(_general(module, lambda number: number == wrong - 1)).ok
    name = f"@{ir.StringAttr(guilty.attributes['sym_name']).value} by emitter '{choice_of(guilty).name}'"
    return _found(name, guilty, _text(guilty).splitlines(), accuracy, alone, "the general mapping")


def _nothing(note: str) -> dict[str, Any]:
    return {"found": None, "note": note}


def _found(name: str, op: Any, lines: list[str], accuracy: Accuracy, confirmed: bool, instead: str) -> dict[str, Any]:
    worst = accuracy.worst
    location = fused_location([inner.location for inner in walk(op)], op.operation.context)
    fields = {
        "op": f"kernel {name}",
        "text": shortened(lines),
        "location": location_text(location),
        "rel_l2": worst.rel_l2 if worst else 0.0,
        "confirmed": confirmed,
        "instead": instead,
    }
    return {"found": fields, "note": None}


# --------------------------------------------------------------------------------------------------------------- exchanging


def _units(module: Any) -> Mapping[str, Any]:
    """The top-level ops that have a name, in order."""
    named = [op.operation for op in module.body.operations if "sym_name" in op.operation.attributes]
    return {str(ir.StringAttr(op.attributes["sym_name"]).value): op for op in named}


def _text(op: Any) -> str:
    return str(op.get_asm(enable_debug_info=False, use_local_scope=True))


def _with_units(module: Any, other: Any, names: list[str]) -> Any:
    """A copy of ``module`` in which the ops of these names are those of ``other``."""
    copy = clone_module(module)
    parsed = parse_module(module_bytecode(other), copy.context)  # held: its ops live no longer than it does
    given = _units(parsed)
    for name, op in _units(copy).items():
        if name in names:
            given[name].clone(ip=ir.InsertionPoint(op))
            op.erase()
    return copy


def _emitted(module: Any) -> list[Any]:
    """The functions that emitters are going to write kernels for."""
    return [f for f in functions(module) if SCHEDULE in f.attributes and choice_of(f).name != GENERAL]


def _general(module: Any, chosen: Callable[[int], bool]) -> Any:
    """A copy in which the chosen ones, by number, of the kernels that emitters write are left to the general mapping."""
    copy = clone_module(module)
    with copy.context:
        for number, kernel in enumerate(_emitted(copy)):
            if chosen(number):
                kernel.attributes[SCHEDULE] = Choice(GENERAL, {}).attribute()
    return copy
