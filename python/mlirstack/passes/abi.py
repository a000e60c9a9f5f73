"""How compiled code is called: the arguments and results of each entry point as they stand after bufferization.

The pass that fixes the calling convention writes a :class:`ModuleAbi`; it travels as an attribute of the module, then as
constant text inside the object file, so that the object describes itself.  Plain data: a machine that only loads objects
imports nothing else of this package.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Literal

ARGUMENT = "mlirstack.argument"  # argument attribute: position among the program's arguments
PREPARED = "mlirstack.prepared"  # argument attribute: position among the results of @prepare
RESULT = "bufferize.result"  # argument attribute that MLIR gives to out-parameters
RESULT_IS_ARGUMENT = "mlirstack.result_is_argument"  # function attribute: one flag per result of the program
ENTRY_ABI = "mlirstack.abi"  # function attribute: JSON of a FunctionAbi
CHECKED = "mlirstack.checked"  # function attribute: its last argument is the error number
ASSERT_MESSAGES = "mlirstack.asserts"  # module attribute: messages of the run-time checks, numbered from 1

MAIN = "main"
PREPARE = "prepare"
SYMBOL_PREFIX = "mlirstack_"  # entry point @main is exported as mlirstack_main
ABI_SYMBOL = SYMBOL_PREFIX + "abi"


@dataclass(frozen=True)
class ValueAbi:
    """One value that crosses the border: ``shape`` of a memref with identity layout (None: dynamic), or None for a scalar.

    ``source`` says where an input comes from: argument ``index`` of the program, or result ``index`` of @prepare.
    """

    element: str
    shape: tuple[int | None, ...] | None
    source: Literal["argument", "prepared"] | None = None
    index: int | None = None

    @property
    def is_static(self) -> bool:
        """Is it a memref whose every size is known?"""
        return self.shape is not None and None not in self.shape

    def text(self) -> str:
        """The MLIR type."""
        if self.shape is None:
            return self.element
        return "memref<" + "".join(f"{'?' if size is None else size}x" for size in self.shape) + self.element + ">"


@dataclass(frozen=True)
class FunctionAbi:
    """One entry point.

    It takes one pointer to an array of pointers, the frame: first the struct of returned values (where there are any), then
    one for each of ``inputs`` and of ``outs``, then, where the module has run-time checks, one to the descriptor of the
    error number.  Memrefs stand in the frame as pointers to descriptors, scalars as pointers to their value.
    ``outs`` are allocated by the caller; ``returned`` are allocated by the callee with malloc and owned by the caller.
    ``order`` maps results to values: position in ``outs`` followed by ``returned``.
    """

    name: str
    inputs: tuple[ValueAbi, ...]
    outs: tuple[ValueAbi, ...]
    returned: tuple[ValueAbi, ...]
    order: tuple[int, ...]
    checked: bool = False

    def text(self) -> str:
        """``main(a0: memref<8x64xf32>, p0: i64) outs(memref<8xf32>) returned() order(0)``, ``checked`` behind it if it is.

        ``a0`` is argument 0 of the program, ``p0`` result 0 of @prepare.
        """
        inputs = ", ".join(f"{(value.source or ' ')[0]}{value.index}: {value.text()}" for value in self.inputs)
        outs, returned = (", ".join(v.text() for v in values) for values in (self.outs, self.returned))
        order = ", ".join(map(str, self.order))
        return f"{self.name}({inputs}) outs({outs}) returned({returned}) order({order})" + " checked" * self.checked

    @staticmethod
    def parse(text: str) -> FunctionAbi:
        """Inverse of :meth:`text`; ValueError where it is not one."""
        match = _FUNCTION.fullmatch(text)
        if not match:
            raise ValueError(f"not the description of an entry point: {text!r}")
        name, inputs, outs, returned, order, checked = match.groups()
        return FunctionAbi(
            name,
            tuple(_parse_input(part) for part in _parts(inputs)),
            tuple(_parse_value(part) for part in _parts(outs)),
            tuple(_parse_value(part) for part in _parts(returned)),
            tuple(int(part) for part in _parts(order)),
            checked is not None,
        )


_FUNCTION = re.compile(r"(\w+)\((.*)\) outs\((.*)\) returned\((.*)\) order\((.*)\)( checked)?")
_MEMREF = re.compile(r"memref<((?:(?:\d+|\?)x)*)(.+)>")


def _parts(text: str) -> list[str]:
    return text.split(", ") if text else []


def _parse_value(text: str) -> ValueAbi:
    match = _MEMREF.fullmatch(text)
    if not match:
        return ValueAbi(text, None)
    return ValueAbi(match[2], tuple(None if size == "?" else int(size) for size in match[1].split("x")[:-1]))


def _parse_input(text: str) -> ValueAbi:
    place, _, kind = text.partition(": ")
    source: Literal["argument", "prepared"] = "argument" if place[0] == "a" else "prepared"
    return dataclasses.replace(_parse_value(kind), source=source, index=int(place[1:]))


@dataclass(frozen=True)
class ModuleAbi:
    """All entry points of a module, by name, and the messages of its run-time checks."""

    functions: tuple[FunctionAbi, ...]
    asserts: tuple[str, ...] = ()

    def function(self, name: str) -> FunctionAbi | None:
        """The entry point called ``name``, or None."""
        return next((f for f in self.functions if f.name == name), None)

    def text(self) -> str:
        """One line per function, then one line per assertion: what :meth:`parse` reads."""
        return "\n".join([*(f.text() for f in self.functions), *(f"assert: {message}" for message in self.asserts)])

    @staticmethod
    def parse(text: str) -> ModuleAbi:
        """Inverse of :meth:`text`; ValueError where it is not one."""
        lines = text.split("\n")
        asserts = tuple(line.removeprefix("assert: ") for line in lines if line.startswith("assert: "))
        return ModuleAbi(tuple(FunctionAbi.parse(line) for line in lines if not line.startswith("assert: ")), asserts)
