"""The program and its own kernels part: IREE compiles the one, the stages of target ``cuda`` the others.

Takes a graph with dispatches formed, leaves the kernel functions alone in the module.  The program, still on tensors,
rides along (:mod:`mlirstack.passes.iree.program`) until the kernels are code and it is put together with them again
(:mod:`mlirstack.passes.iree.embed`, :mod:`mlirstack.passes.iree.rows_embed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.text import clone_module
from mlirstack.passes import abi, functions
from mlirstack.passes.iree.alignment import ALIGNMENT, copy_unaligned
from mlirstack.passes.iree.program import hide_program
from mlirstack.passes.regions import clone_body, inline_call
from mlirstack.pipeline.step import PythonPass

# Function attribute: for each result of a kernel, the argument it is written to; NEW where the kernel allocates it.
DESTINATIONS = "mlirstack.destinations"
NEW = -1
OVERWRITTEN = "mlirstack.overwritten"  # function attribute: the arguments whose memory a kernel writes

_ELEMENTS = frozenset({"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "i1"})
_SCALARS = frozenset({"index", "i64", "i32", "f32"})
_INTO_SECOND = ("tensor.insert_slice", "bufferization.materialize_in_destination")
_MOST_TENSORS = 14  # IREE binds 16 buffers at most to a dispatch; kernels may want memory of their own


@dataclass(frozen=True)
class SplitProgram(PythonPass):
    """Before: ``@main`` (and ``@prepare``) call kernel functions and hold ops on tensors.  After: the module holds the
    kernel functions, each with ``mlirstack.destinations`` and ``mlirstack.overwritten``, and the program as bytes in
    ``mlirstack.program``; it computes itself what ``@prepare`` did, which IREE does once at load.

    Kernels that cannot be dispatches of IREE's (element types that it stores otherwise, too many tensors) go back into the
    program; those whose results nothing uses are gone.  Slices that kernels cannot work on where they lie, because these
    begin at no multiple of ``alignment`` bytes, are copied (:mod:`mlirstack.passes.iree.alignment`); 1: kernels take them as
    they lie.
    """

    name = "mlirstack-iree-split"
    alignment: int = ALIGNMENT

    def apply(self, module: Any) -> None:
        _join_preparation(module)
        main = function(module, abi.MAIN)
        _drop_unused(module, main)
        for kernel in _kernels(module):
            if not can_be_dispatched(kernel):
                _inline_calls(main, kernel)
                kernel.operation.erase()
        copy_unaligned(main, self.alignment)
        for kernel in _kernels(module):
            kernel.attributes[DESTINATIONS] = ir.DenseI64ArrayAttr.get(_destinations(kernel))
            kernel.attributes[OVERWRITTEN] = ir.DenseI64ArrayAttr.get(_overwritten(kernel))
        program = clone_module(module)
        for kernel in _kernels(program):
            _declare(kernel)
        hide_program(module, program)
        for other in [f for f in functions_of(module) if KERNEL_ATTRIBUTE not in f.attributes]:
            other.operation.erase()


def _kernels(module: Any) -> list[Any]:
    return [f for f in functions_of(module) if KERNEL_ATTRIBUTE in f.attributes]


# --------------------------------------------------------------------------------------------------------------- @prepare


def _join_preparation(module: Any) -> None:
    """Let ``@main`` compute what ``@prepare`` does, of the parameters of both."""
    main = function(module, abi.MAIN)
    try:
        prepare = function(module, abi.PREPARE)
    except KeyError:
        return
    block, attributes = main.regions[0].blocks[0], functions.argument_attributes(main)
    by_number = {functions.integer(a[abi.ARGUMENT]): i for i, a in enumerate(attributes) if abi.ARGUMENT in a}
    mapping: dict[Any, Any] = {}
    source = prepare.regions[0].blocks[0]
    for argument, given in zip(source.arguments, functions.argument_attributes(prepare), strict=True):
        number = functions.integer(given[abi.ARGUMENT])
        if number not in by_number:
            by_number[number] = len(attributes)
            attributes.append(given)
            block.add_argument(argument.type, argument.location)
        mapping[argument] = block.arguments[by_number[number]]
    with ir.InsertionPoint.at_block_begin(block):
        results = clone_body(source, mapping)
    for argument, given in zip(block.arguments, attributes, strict=True):
        if abi.PREPARED in given:
            argument.replace_all_uses_with(results[functions.integer(given[abi.PREPARED])])
    prepare.operation.erase()
    _keep_arguments(main, attributes)


def _keep_arguments(main: Any, attributes: list[dict[str, Any]]) -> None:
    """The arguments of the program in their order; prepared values are none any more."""
    block = main.regions[0].blocks[0]
    kept = sorted(
        (i for i, given in enumerate(attributes) if abi.PREPARED not in given),
        key=lambda i: functions.integer(attributes[i][abi.ARGUMENT]),
    )
    old = list(block.arguments)
    for i in kept:
        old[i].replace_all_uses_with(block.add_argument(old[i].type, old[i].location))
    for i in reversed(range(len(old))):
        block.erase_argument(i)
    functions.set_type(main, [a.type for a in block.arguments], functions.type_of(main).results)
    functions.set_argument_attributes(main, [attributes[i] for i in kept])


# ---------------------------------------------------------------------------------------------------------------- kernels


def _destinations(kernel: Any) -> list[int]:
    """For each result, the number of the argument whose memory it is written to."""
    return [_written_argument(value) for value in functions.return_op(kernel).operands]


def _written_argument(value: Any) -> int:
    while not isinstance(value.owner, ir.Block):
        op = value.owner.operation
        if op.name in _INTO_SECOND:
            value = op.operands[1]
        elif op.name.startswith("linalg."):
            value = op.operands[len(op.operands) - len(op.results) + ir.OpResult(value).result_number]
        else:
            return NEW
    return int(ir.BlockArgument(value).arg_number)


def _overwritten(kernel: Any) -> list[int]:
    """The arguments that an op writes over, results and memory for what is between two ops."""
    block = kernel.regions[0].blocks[0]
    return [a.arg_number for a in block.arguments if any(_is_destination(use) for use in a.uses)]


def _is_destination(use: Any) -> bool:
    op = use.owner.operation
    if op.name in _INTO_SECOND:
        return bool(use.operand_number == 1)
    return op.name.startswith("linalg.") and use.operand_number >= len(op.operands) - len(op.results)


def can_be_dispatched(kernel: Any) -> bool:
    """Do its arguments have types that IREE passes as they are, and are they few enough?"""
    tensors = 0
    for kind in (*functions.type_of(kernel).inputs, *functions.type_of(kernel).results):
        if not isinstance(kind, ir.RankedTensorType):
            if str(kind) not in _SCALARS:
                return False
            continue
        tensors += 1
        if str(ir.RankedTensorType(kind).element_type) not in _ELEMENTS:
            return False
    return tensors - len(functions.type_of(kernel).results) <= _MOST_TENSORS


def _drop_unused(module: Any, main: Any) -> None:
    """Calls of kernels whose results nothing uses, and kernels that nothing calls: IREE would drop their dispatches, and the
    build miss them."""
    calls = [op for op in walk(main) if op.name == "func.call"]
    for call in reversed(calls):
        if not any(True for result in call.results for _ in result.uses):
            call.erase()
    called = {str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value) for op in walk(main) if op.name == "func.call"}
    for kernel in _kernels(module):
        if functions.name_of(kernel) not in called:
            kernel.operation.erase()


def _inline_calls(main: Any, kernel: Any) -> None:
    name = functions.name_of(kernel)
    for call in [op for op in walk(main) if op.name == "func.call"]:
        if str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value) == name:
            inline_call(call, kernel)


def _declare(kernel: Any) -> None:
    """The kernel without its body, and with what is said about it."""
    said = {name: kernel.attributes[name] for name in kernel.attributes if name.startswith("mlirstack.")}
    with ir.InsertionPoint(kernel), kernel.location:
        attributes = {
            "sym_name": kernel.attributes["sym_name"],
            "sym_visibility": ir.StringAttr.get("private"),
            "function_type": kernel.attributes["function_type"],
            **said,
        }
        ir.Operation.create("func.func", attributes=attributes, regions=1)
    kernel.operation.erase()
