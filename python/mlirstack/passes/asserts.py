"""Run-time checks (``cf.assert``) as error returns instead of ``abort()``.

torch-mlir emits assertions for gather, embedding, batch norm and dynamic shapes; LLVM's lowering of them would end the
process.  Here every function that can fail gets an error number as its last argument, and leaves early once it is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes import abi, functions
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class AssertsToErrors(PythonPass):
    """Before: control flow is a graph of blocks (no scf loops around assertions).  After: no ``cf.assert``; a function that
    held one, or calls one that did, takes a trailing ``memref<i64>``, stores the number of the failed check there (messages
    are an attribute of the module, numbered from 1) and returns at once, with unspecified results.  What the call had
    allocated until then is not released.

    ::

        cf.assert %ok, "index out of range"      →      cf.cond_br %ok, ^next, ^failed
                                                     ^failed: memref.store %c1, %error[] ; return poison
    """

    name = "mlirstack-asserts-to-errors"

    def apply(self, module: Any) -> None:
        bodies = {functions.name_of(f): f for f in functions_of(module) if not functions.is_declaration(f)}
        asserting = {name for name, f in bodies.items() if any(op.name == "cf.assert" for op in walk(f))}
        if not asserting:
            return
        failing = _callers(bodies, asserting)
        messages: list[str] = []
        errors = {name: _add_error_argument(bodies[name]) for name in bodies if name in failing}
        for name, error in errors.items():
            _rewrite_asserts(bodies[name], error, messages)
        for name, error in errors.items():
            _rewrite_calls(bodies[name], error, failing)
        module.operation.attributes[abi.ASSERT_MESSAGES] = ir.ArrayAttr.get([ir.StringAttr.get(m) for m in messages])


def _error_type() -> Any:
    return ir.MemRefType.get([], ir.IntegerType.get_signless(64))


def _callee(call: Any) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


def _calls(function: Any) -> Iterable[Any]:
    return (op for op in walk(function) if op.name == "func.call")


def _callers(bodies: dict[str, Any], failing: set[str]) -> set[str]:
    """``failing`` and everything that calls into it, directly or not."""
    found = set(failing)
    while True:
        more = {n for n, f in bodies.items() if n not in found and any(_callee(c) in found for c in _calls(f))}
        if not more:
            return found
        found |= more


def _add_error_argument(function: Any) -> Any:
    signature = functions.type_of(function)
    attributes = [*functions.argument_attributes(function), {}]
    functions.set_type(function, [*signature.inputs, _error_type()], signature.results)
    functions.set_argument_attributes(function, attributes)
    function.attributes[abi.CHECKED] = ir.UnitAttr.get()
    return function.regions[0].blocks[0].add_argument(_error_type(), function.location)


def _rewrite_asserts(function: Any, error: Any, messages: list[str]) -> None:
    for check in [op for op in walk(function) if op.name == "cf.assert"]:
        message = str(ir.StringAttr(check.attributes["msg"]).value)
        if message not in messages:
            messages.append(message)
        rest = _split_after(check)
        failed = _failure_block(function, check, error, messages.index(message) + 1)
        with ir.InsertionPoint(check), check.location:
            dialect("cf").CondBranchOp(check.operands[0], [], [], rest, failed)
        check.erase()


def _rewrite_calls(function: Any, error: Any, failing: set[str]) -> None:
    for call in [c for c in _calls(function) if _callee(c) in failing]:
        with ir.InsertionPoint(call), call.location:
            new = ir.Operation.create(
                "func.call",
                results=[r.type for r in call.results],
                operands=[*call.operands, error],
                attributes={"callee": call.attributes["callee"]},
            )
        for old, result in zip(call.results, new.results, strict=True):
            old.replace_all_uses_with(result)
        call.erase()
        rest = _split_after(new)
        failed = _failure_block(function, new, error, None)
        i64 = ir.IntegerType.get_signless(64)
        with ir.InsertionPoint(new.block), new.location:
            number = dialect("memref").LoadOp(error, []).result
            zero = dialect("arith").ConstantOp(i64, 0).result
            fine = dialect("arith").CmpIOp(dialect("arith").CmpIPredicate.eq, number, zero).result
            dialect("cf").CondBranchOp(fine, [], [], rest, failed)


def _split_after(op: Any) -> Any:
    """Move what follows ``op`` in its block to a new block."""
    block = op.operation.block
    following = list(block.operations)
    position = next(i for i, other in enumerate(following) if other.operation == op.operation)
    rest = block.create_after()
    for other in following[position + 1 :]:
        rest.append(other.operation)
    return rest


def _failure_block(function: Any, at: Any, error: Any, number: int | None) -> Any:
    """A block that stores ``number`` (None: it is stored already) and returns poison."""
    block = function.regions[0].blocks[len(function.regions[0].blocks) - 1].create_after()
    with ir.InsertionPoint(block), at.location:
        if number is not None:
            value = dialect("arith").ConstantOp(ir.IntegerType.get_signless(64), number).result
            dialect("memref").StoreOp(value, error, [])
        poison = [ir.Operation.create("ub.poison", results=[t]).result for t in functions.type_of(function).results]
        dialect("func").ReturnOp(poison)
    return block
