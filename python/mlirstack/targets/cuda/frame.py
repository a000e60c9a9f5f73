"""A frame: the argument blocks of all launches of a static plan, packed once, with what it takes to patch them.

Kernel arguments are read from host memory when a kernel is enqueued (or a graph node updated), so one frame serves many
calls, one after the other; between two calls only addresses change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.errors import BundleError, RuntimeCheckError
from mlirstack.passes.cuda.plan import Argument, Buffer, Check, Copy, Expr, Fill, Launch, PlannedFunction, Step, TensorMap
from mlirstack.targets.cuda.commands import (
    Addresses,
    Command,
    CopyMemory,
    FillMemory,
    LaunchKernel,
    Place,
    ReadFlag,
    RecordEvent,
)
from mlirstack.targets.cuda.driver import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, Driver, Handle, KernelCall

_WORD = 8
_PENDING = 0xEE  # the flag of a check before its byte has come from the device
_NUMBERS: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


@dataclass(frozen=True)
class Bases:
    """The numbers of the bases of one function: the arena is 0, then inputs, results and constants."""

    buffers: tuple[Buffer, ...]
    inputs: int
    results: tuple[int, ...]  # numbers of the buffers of kind "result"
    constants: int

    @staticmethod
    def of(function: PlannedFunction, constants: int) -> Bases:
        """Those of ``function`` in a program with so many constants."""
        results = tuple(i for i, buffer in enumerate(function.buffers) if buffer.kind == "result")
        return Bases(function.buffers, len(function.inputs), results, constants)

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 + self.inputs + len(self.results) + self.constants

    def input(self, index: int) -> int:
        """The base of an input of the function."""
        return 1 + index

    def result(self, position: int) -> int:
        """The base of the ``position``-th result buffer."""
        return 1 + self.inputs + position

    def constant(self, index: int) -> int:
        """The base of a constant."""
        return 1 + self.inputs + len(self.results) + index

    def place(self, buffer: int, offset: Expr = 0) -> Place:
        """Where byte ``offset`` of a buffer of a static function is."""
        assert isinstance(offset, int)
        entry = self.buffers[buffer]
        match entry.kind:
            case "temporary":
                return Place(0, (entry.offset or 0) + offset)
            case "input":
                return Place(self.input(entry.index), offset)
            case "result":
                return Place(self.result(self.results.index(buffer)), offset)
            case "constant":
                return Place(self.constant(entry.index), offset)


class Frame:
    """Argument blocks and commands of ``function``, which is static, for one call at a time.

    ``kernels`` maps the names of kernels to functions of the driver.  ``addresses`` are those that the blocks hold now.

    The flags of checks are read by the host, which must :meth:`check` them after each call.  With ``assertions``, kernels by
    the message of a check, nobody has to: the device stops where a check fails.
    """

    def __init__(
        self,
        function: PlannedFunction,
        bases: Bases,
        driver: Driver,
        kernels: Mapping[str, Handle],
        assertions: Mapping[str, Handle] | None = None,
    ) -> None:
        self._driver, self._assertions = driver, assertions
        self._block = _Block([argument for step in function.steps for argument in self._arguments(step)])
        self._words = self._block.words
        self._pointers: list[list[tuple[int, int]]] = [[] for _ in range(bases.count)]  # word, offset
        self._maps: list[list[tuple[int, TensorMap, int]]] = [[] for _ in range(bases.count)]  # host address, map, offset
        self.addresses: list[int | None] = [None] * bases.count
        checks = [step for step in function.steps if _reads_flag(step)] if assertions is None else []
        self._messages = [step.message for step in checks if isinstance(step, Check)]
        self.has_checks = bool(checks)  # must the caller reset_checks() before and check() after each call?
        self._flags = driver.pinned(len(checks)) if checks else None
        self._event = driver.event() if checks else None
        self.commands = self._commands(function, bases, kernels)

    def point(self, addresses: list[int]) -> list[int]:
        """Patch the blocks for these addresses; the bases that changed.  The list must not change afterwards."""
        if addresses == self.addresses:
            return []
        changed = [base for base, address in enumerate(addresses) if address != self.addresses[base]]
        words = self._words
        for base in changed:
            address = addresses[base]
            for word, offset in self._pointers[base]:
                words[word] = address + offset
            for place, tensor_map, offset in self._maps[base]:
                self._driver.encode(place, tensor_map, address + offset)
        self.addresses = list(addresses)
        return changed

    def reset_checks(self) -> None:
        """To be called before each call whose commands are enqueued, or launched as a graph: no check is done yet."""
        if self._flags is not None:
            self._flags.fill_(_PENDING)

    def enqueue(self, addresses: Addresses, stream: int) -> None:
        """Let the stream do all steps."""
        driver = self._driver
        for command in self.commands:
            command.enqueue(driver, addresses, stream)

    def check(self, stream: int) -> None:
        """Wait until the last check is done, no longer; :class:`RuntimeCheckError` for the first that failed."""
        if self._flags is None or self._event is None:
            return
        self._driver.wait(self._event)
        flags = self._flags.tolist()
        if _PENDING in flags:
            # An event that a graph records may still stand for an earlier launch.
            self._driver.synchronize(stream)
            flags = self._flags.tolist()
        if not all(flags):
            raise failed_check(self._messages[flags.index(0)])

    def _arguments(self, step: Step) -> tuple[Argument, ...]:
        """Those of the kernel that a step launches."""
        if isinstance(step, Launch):
            return step.arguments
        if isinstance(step, Check) and _reads_flag(step) and self._assertions is not None:
            return (Argument("pointer", step.buffer, step.offset),)
        return ()

    def _commands(self, function: PlannedFunction, bases: Bases, kernels: Mapping[str, Handle]) -> list[Command]:
        commands: list[Command] = []
        cell = flag = 0
        for step in function.steps:
            arguments = self._arguments(step)
            cells = range(cell, cell + len(arguments))
            cell = cells.stop
            used = {self._place(argument, i, bases) for argument, i in zip(arguments, cells, strict=True)}
            read = frozenset(base for base in used if base is not None)
            match step:
                case Launch():
                    call = KernelCall(
                        kernels[step.kernel],
                        _static(step.grid),
                        step.block,
                        step.shared,
                        self._block.pointers(cells),
                        step.overlaps,
                    )
                    commands.append(LaunchKernel(call, read))
                case Copy(bytes=int(size)):
                    destination = bases.place(step.destination, step.destination_offset)
                    commands.append(CopyMemory(destination, bases.place(step.source, step.source_offset), size))
                case Fill(bytes=int(size)):
                    if size % step.width:
                        raise BundleError(f"a fill of {size} bytes with a pattern of {step.width}")
                    place = bases.place(step.buffer, step.offset)
                    commands.append(FillMemory(place, step.value, step.width, size // step.width))
                case Check() if arguments and self._assertions is not None:
                    assertion = self._assertions[step.message]
                    call = KernelCall(assertion, (1, 1, 1), (1, 1, 1), 0, self._block.pointers(cells))
                    commands.append(LaunchKernel(call, read))
                case Check() if _reads_flag(step) and self._flags is not None:
                    commands.append(ReadFlag(self._flags.data_ptr() + flag, bases.place(step.buffer, step.offset)))
                    flag += 1
                    if flag == len(self._messages):
                        commands.append(RecordEvent(self._event))
        return commands

    def _place(self, argument: Argument, cell: int, bases: Bases) -> int | None:
        """Note where the address in ``cell`` must be patched; its base, None for a number."""
        if argument.buffer < 0:
            return None
        place = bases.place(argument.buffer, argument.offset)
        if argument.tensor_map is not None:
            self._maps[place.base].append((self._block.address(cell), argument.tensor_map, place.offset))
        else:
            self._pointers[place.base].append((self._block.word(cell), place.offset))
        return place.base


def failed_check(message: str) -> RuntimeCheckError:
    """The error of a check of the model that does not hold."""
    return RuntimeCheckError(
        f"a check of the model failed at run time: {message}",
        hint="the values of the inputs (an index, a size) are outside of what the model allows",
    )


def _reads_flag(step: Step) -> bool:
    """Is it a check of a byte on the device, not of a condition that the host knows?"""
    return isinstance(step, Check) and step.buffer >= 0


class _Block:
    """Cells of host memory, one for each argument: a word, or an aligned tensor map."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        at, offsets = 0, []
        for argument in arguments:
            is_map = argument.kind == "tensor_map"
            alignment = TENSOR_MAP_ALIGNMENT if is_map else _WORD
            at = -(-at // alignment) * alignment
            offsets.append(at)
            at += TENSOR_MAP_BYTES if is_map else _WORD
        raw = (ctypes.c_char * (at + TENSOR_MAP_ALIGNMENT))()
        skip = -ctypes.addressof(raw) % TENSOR_MAP_ALIGNMENT
        self.words = (ctypes.c_uint64 * max(at // _WORD, 1)).from_buffer(raw, skip)
        self._offsets, self._base = offsets, ctypes.addressof(self.words)
        self._arrays: list[Any] = []  # arrays of pointers to cells, kept alive
        for offset, argument in zip(offsets, arguments, strict=True):
            if argument.kind in _NUMBERS:
                _NUMBERS[argument.kind].from_buffer(self.words, offset).value = argument.value

    def address(self, cell: int) -> int:
        return self._base + self._offsets[cell]

    def word(self, cell: int) -> int:
        return self._offsets[cell] // _WORD

    def pointers(self, cells: range) -> int:
        """Address of an array of pointers to ``cells``, as launches take it."""
        array = (ctypes.c_void_p * max(len(cells), 1))(*(self.address(cell) for cell in cells))
        self._arrays.append(array)
        return ctypes.addressof(array)


def _static(grid: tuple[Expr, Expr, Expr]) -> tuple[int, int, int]:
    x, y, z = grid
    assert isinstance(x, int) and isinstance(y, int) and isinstance(z, int)
    return x, y, z
