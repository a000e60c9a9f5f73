"""Kernels with the parameters that IREE passes: one pointer a buffer, then 32-bit numbers.

Takes kernel functions that launch kernels of our own ABI (pointers, numbers of any width, in the order in which emitters
asked for them), leaves the same functions as entry points of a launch plan, so that the later stages of target ``cuda`` and
the emulator of the tests work on them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes import abi, functions
from mlirstack.passes.cuda.plan_launches import read_launch
from mlirstack.passes.iree_launches import kernel_of, relaunch, set_parameters
from mlirstack.passes.iree_split import DESTINATIONS, NEW, OVERWRITTEN
from mlirstack.pipeline.step import PythonPass

MOST_BUFFERS, MOST_NUMBERS = 16, 64  # of one dispatch
_WORD = 1 << 32


@dataclass(frozen=True)
class BindKernels(PythonPass):
    """Before: functions marked ``mlirstack.kernel`` launch kernels.  After: a kernel takes pointers to the buffers that its
    function only reads, then to the function's own memory, then to its results, then ``i32`` and ``f32`` numbers, a wider
    one as two words; the functions are public, with a description of their arguments.

    Clusters of blocks are in the code itself.  More than 16 buffers or 64 numbers are refused with :class:`StageError`.
    """

    name = "mlirstack-iree-bind"

    def apply(self, module: Any) -> None:
        for function in [f for f in functions_of(module) if KERNEL_ATTRIBUTE in f.attributes]:
            for launch in [op for op in walk(function) if op.name == "gpu.launch_func"]:
                _bind(function, launch)
            _open(function)


def _bind(function: Any, launch: Any) -> None:
    operands = read_launch(launch)
    kernel = kernel_of(launch)
    parameters = _Parameters(kernel)
    results = set(ir.DenseI64ArrayAttr(function.attributes[DESTINATIONS]))
    overwritten = set(ir.DenseI64ArrayAttr(function.attributes[OVERWRITTEN]))
    pointers = [i for i, value in enumerate(operands.arguments) if isinstance(value.type, _pointer_type())]
    pointers.sort(key=lambda i: _role(operands.arguments[i], overwritten, results))
    numbers = [i for i in range(len(operands.arguments)) if i not in pointers]
    given: list[Any] = []
    bound: dict[Any, Any] = {}  # memory → its parameter
    for i in pointers:
        memory = _memory(operands.arguments[i])
        if memory in bound:
            parameters.old[i].replace_all_uses_with(bound[memory])
        else:
            given.append(operands.arguments[i])
            bound[memory] = parameters.keep(i)
    with ir.InsertionPoint(launch), launch.location:
        for i in numbers:
            value = operands.arguments[i]
            if str(value.type) in ("i32", "f32"):
                given.append(value)
                parameters.keep(i)
            else:
                given += _words(value, launch)
                parameters.join(i)
    if len(bound) > MOST_BUFFERS or len(given) - len(bound) > MOST_NUMBERS:
        _refuse(launch, f"{len(bound)} buffers and {len(given) - len(bound)} numbers")
    parameters.finish()
    relaunch(launch, given)


def _pointer_type() -> Any:
    return dialect("llvm").PointerType


class _Parameters:
    """The parameters of a kernel being put into another order: new ones at the end, the old ones dropped at last."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.block = kernel.regions[0].blocks[0]
        self.old = list(self.block.arguments)

    def keep(self, number: int) -> Any:
        """The next parameter is the old one with this number; the new argument."""
        old = self.old[number]
        new = self.block.add_argument(old.type, old.location)
        old.replace_all_uses_with(new)
        return new

    def join(self, number: int) -> None:
        """The next two parameters are the low and the high word of the old one with this number."""
        old, arith = self.old[number], dialect("arith")
        i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
        low, high = (self.block.add_argument(i32, old.location) for _ in range(2))
        with ir.InsertionPoint.at_block_begin(self.block), old.location:
            upper = arith.ShLIOp(arith.ExtUIOp(i64, high).result, arith.ConstantOp(i64, 32).result).result
            value = arith.OrIOp(upper, arith.ExtUIOp(i64, low).result).result
            if isinstance(old.type, ir.IndexType):
                value = arith.IndexCastOp(old.type, value).result
        old.replace_all_uses_with(value)

    def finish(self) -> None:
        """Drop the old parameters."""
        for number in reversed(range(len(self.old))):
            self.block.erase_argument(number)
        set_parameters(self.kernel)


def _words(value: Any, launch: Any) -> list[Any]:
    """Low and high word of an integer."""
    arith = dialect("arith")
    i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
    if isinstance(value.type, ir.IndexType):
        value = arith.IndexCastOp(i64, value).result
    elif value.type != i64:
        _refuse(launch, f"a number of type {value.type}")
    upper = arith.FloorDivSIOp(value, arith.ConstantOp(i64, _WORD).result).result
    return [arith.TruncIOp(i32, word).result for word in (value, upper)]


_VIEWS = frozenset({"builtin.unrealized_conversion_cast", "memref.cast", "memref.expand_shape", "memref.collapse_shape"})


def _memory(pointer: Any) -> Any:
    """The buffer that ``pointer``, of a launch, is the begin of; a place inside of one is memory of its own here."""
    while not isinstance(pointer.owner, ir.Block) and pointer.owner.operation.name in _VIEWS:
        pointer = pointer.owner.operation.operands[0]
    return pointer


def _role(pointer: Any, overwritten: set[int], results: set[int]) -> int:
    """What ``pointer``, of a launch, leads to: 0 for memory that the function reads, 1 for its own and for arguments that it
    may use as such, 2 for arguments that hold results."""
    memory = _memory(pointer)
    if not isinstance(memory.owner, ir.Block):
        return 1
    number = ir.BlockArgument(memory).arg_number
    return 2 if number in results else int(number in overwritten)


def _open(function: Any) -> None:
    """Make the function an entry point that takes its arguments in order."""
    signature = functions.type_of(function)
    expected = list(ir.DenseI64ArrayAttr(function.attributes[DESTINATIONS])).count(NEW)
    if len(signature.results) != expected:
        raise StageError(
            f"'{functions.name_of(function)}' returns {len(signature.results)} buffers that it allocates, not {expected}",
            stage="mapped",
        )
    del function.attributes[KERNEL_ATTRIBUTE]
    del function.attributes["sym_visibility"]
    inputs = tuple(_described(kind, position) for position, kind in enumerate(signature.inputs))
    returned = tuple(_described(kind, position) for position, kind in enumerate(signature.results))
    described = abi.FunctionAbi(functions.name_of(function), inputs, (), returned, tuple(range(expected)))
    function.attributes[abi.ENTRY_ABI] = ir.StringAttr.get(described.text())


def _described(kind: Any, position: int) -> abi.ValueAbi:
    if not isinstance(kind, ir.MemRefType):
        return abi.ValueAbi(str(kind), None, "argument", position)
    sizes = [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
    return abi.ValueAbi(str(kind.element_type), tuple(sizes), "argument", position)


def _refuse(launch: Any, what: str) -> None:
    raise StageError(
        f"IREE cannot launch a kernel with {what}",
        stage="mapped",
        op=launch.name,
        location=source_line(launch.location),
        hint="--kernels iree builds without our kernels",
    )
