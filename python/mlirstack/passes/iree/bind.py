"""Kernels with the parameters that IREE passes: one pointer a buffer, then 32-bit numbers.

Takes kernel functions that launch kernels of our own ABI (pointers, numbers of any width, in the order in which emitters
asked for them), leaves the same functions as entry points of a launch plan, so that the later stages of target ``cuda`` and
the emulator of the tests work on them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from mlirstack.bindings import dialect, ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes import abi, functions
from mlirstack.passes.cuda.plan_launches import read_launch
from mlirstack.passes.iree.launches import kernel_of, relaunch, set_parameters
from mlirstack.passes.iree.split import DESTINATIONS, NEW, OVERWRITTEN
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.kernel import Kernel

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
    places = {
        i: _place(value, launch) for i, value in enumerate(operands.arguments) if isinstance(value.type, _pointer_type())
    }
    pointers = sorted(places, key=lambda i: _role(places[i].memory, overwritten, results))
    numbers = [i for i in range(len(operands.arguments)) if i not in places]
    given: list[Any] = []
    bound: dict[Any, Any] = {}  # memory → its parameter
    for i in pointers:
        memory = places[i].memory
        if memory not in bound:
            with ir.InsertionPoint(launch), launch.location:
                cast = dialect("builtin").UnrealizedConversionCastOp([operands.arguments[i].type], [memory])
            given.append(cast.results[0])
            bound[memory] = parameters.add(operands.arguments[i].type)
        parameters.move(i, bound[memory], places[i].offset)
    with ir.InsertionPoint(launch), launch.location:
        for i in numbers:
            value = operands.arguments[i]
            if str(value.type) in ("i32", "f32"):
                given.append(value)
                parameters.move(i, parameters.add(value.type))
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

    def add(self, kind: Any) -> Any:
        """The next parameter, of type ``kind``."""
        return self.block.add_argument(kind, self.kernel.location)

    def move(self, number: int, new: Any, offset: int = 0) -> None:
        """What was the old parameter ``number`` is ``new``, moved by ``offset`` bytes."""
        if offset:
            kernel = Kernel.existing(None, self.kernel)
            with ir.InsertionPoint.at_block_begin(self.block), self.kernel.location:
                new = kernel.offset(new, offset)
        self.old[number].replace_all_uses_with(new)

    def join(self, number: int) -> None:
        """The next two parameters are the low and the high word of the old one with this number."""
        old, arith = self.old[number], dialect("arith")
        i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
        low, high = self.add(i32), self.add(i32)
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


_SAME_PLACE = frozenset(
    {"builtin.unrealized_conversion_cast", "memref.cast", "memref.expand_shape", "memref.collapse_shape"}
)


@dataclass(frozen=True)
class _Place:
    """A place in a buffer: the memref, and bytes from its begin."""

    memory: Any
    offset: int


def _place(pointer: Any, launch: Any) -> _Place:
    """Where ``pointer``, an argument of ``launch``, leads to."""
    offset = 0
    while not isinstance(pointer.owner, ir.Block):
        op = pointer.owner.operation
        if op.name == "memref.subview":
            whole, part = ir.MemRefType(op.operands[0].type), ir.MemRefType(pointer.type)
            (_, begin), (_, moved) = whole.get_strides_and_offset(), part.get_strides_and_offset()
            if ir.ShapedType.get_dynamic_stride_or_offset() in (begin, moved):
                _refuse(launch, "a place inside of a buffer that is known at run time only")
            offset += (moved - begin) * max(1, whole.element_type.width // 8)
        elif op.name not in _SAME_PLACE:
            break
        pointer = op.operands[0]
    return _Place(pointer, offset)


def _role(memory: Any, overwritten: set[int], results: set[int]) -> int:
    """What a buffer is: 0 if the function reads it, 1 if it is its own or an argument that it may use as such, 2 for an
    argument that holds a result."""
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


def _refuse(launch: Any, what: str) -> NoReturn:
    raise StageError(
        f"IREE cannot launch a kernel with {what}",
        stage="mapped",
        op=launch.name,
        location=source_line(launch.location),
        hint="--kernels iree builds without our kernels",
    )
