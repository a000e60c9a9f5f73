"""Inline PTX: the text of an ``llvm.inline_asm`` is parsed once; each instruction has a meaning in a table.

An instruction's meaning is a function of the frame and an :class:`Instruction` bound to values; registers hold bits, so
operands are read as the type that the instruction names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .build import Op, Step, meaning
from .faults import Unsupported
from .frames import Flight, Frame, InFlight
from .kinds import CLUSTER, CONSTANT, GLOBAL, LOCAL, SHARED, Kind, unsigned
from .values import reinterpret

INTEGERS = {8: np.dtype(np.int8), 16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: np.dtype(np.int64)}
TYPES: dict[str, np.dtype[Any]] = {f"{letter}{bits}": dtype for letter in "bsu" for bits, dtype in INTEGERS.items()}
TYPES |= {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
TYPES |= {"f64": np.dtype(np.float64), "pred": np.dtype(bool), "tf32": np.dtype(np.float32)}
TYPES |= {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
_SPACES = {"global": GLOBAL, "shared": SHARED, "shared::cta": SHARED, "shared::cluster": CLUSTER, "const": CONSTANT}
_SPACES |= {"local": LOCAL}

Meaning = Callable[[Frame, "Bound"], None]
INSTRUCTIONS: dict[str, Meaning] = {}


def instruction(*names: str) -> Callable[[Meaning], Meaning]:
    """Decorator: the meaning of instructions whose mnemonic begins with one of ``names`` (the longest match wins)."""

    def register(function: Meaning) -> Meaning:
        for name in names:
            INSTRUCTIONS[name] = function
        return function

    return register


@dataclass(frozen=True)
class Instruction:
    """``name`` with all its suffixes, and operands: strings, or tuples of strings for ``{…}``; ``[a+8]`` stays as it is."""

    name: str
    operands: tuple[Any, ...]
    guard: str | None = None

    @property
    def suffixes(self) -> list[str]:
        """What stands between the dots."""
        return self.name.split(".")


@dataclass
class Bound:
    """An instruction with its registers' values: ``registers`` by name (``$0``, or declared in the text)."""

    instruction: Instruction
    registers: dict[str, Any]
    flight: Flight | None = None  # set by instructions whose results come later

    @property
    def operands(self) -> tuple[Any, ...]:
        """Operands as text."""
        return self.instruction.operands

    def has(self, suffix: str) -> bool:
        """Is ``suffix`` one of the mnemonic's?"""
        return suffix in self.instruction.suffixes

    def read(self, operand: str, dtype: Any) -> Any:
        """A register or an immediate as ``dtype``."""
        dtype = np.dtype(dtype)
        negate = operand.startswith("-$") or operand.startswith("!")
        operand = operand[1:] if negate else operand
        if operand in self.registers:
            return as_bits(self.registers[operand], dtype)
        return immediate(operand, dtype)

    def read_all(self, operand: Any, dtype: Any) -> list[Any]:
        """The registers of ``{…}``, or the only one."""
        return [self.read(o, dtype) for o in (operand if isinstance(operand, tuple) else (operand,))]

    def write(self, operand: str, value: Any) -> None:
        """Set a register; ``_`` takes nothing."""
        if operand != "_":
            self.registers[operand] = value

    def address(self, operand: str) -> Any:
        """The pointer of ``[register+offset]``."""
        base, _, offset = operand.strip("[] ").partition("+")
        value = self.registers.get(base.strip())
        pointer = np.int64(int(base, 0)) if value is None else value
        if pointer.dtype != np.int64:
            pointer = pointer.view(unsigned(pointer.dtype)).astype(np.int64)
        return pointer + int(offset, 0) if offset else pointer

    def space(self) -> int:
        """The state space that the mnemonic names; generic if none."""
        return next((_SPACES[s] for s in self.instruction.suffixes if s in _SPACES), 0)


def as_bits(value: Any, dtype: np.dtype[Any]) -> Any:
    """The bits of a register as ``dtype``; wider registers give their low part, narrower ones are extended with zeros."""
    if value.dtype == dtype:
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind != "b" and _is_packed(value, dtype):
        return np.ascontiguousarray(value).view(dtype)[..., 0]
    source = value.view(np.dtype(f"uint{8 * value.dtype.itemsize}"))
    if value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)
    bits = source.astype(np.dtype(f"uint{8 * dtype.itemsize}"))
    return bits.view(dtype)


def _is_packed(value: Any, dtype: np.dtype[Any]) -> bool:
    """Is it a vector (of 16- or 8-bit elements) that fills one register?"""
    return bool(value.ndim and value.shape[-1] * value.dtype.itemsize == dtype.itemsize and value.dtype.itemsize < 4)


def immediate(text: str, dtype: np.dtype[Any]) -> Any:
    """A constant of PTX: integers, ``0f3F800000``, ``0d…``, decimal floats."""
    text = text.strip()
    if text.lower().startswith("0f"):
        return np.uint32(int(text[2:], 16)).view(np.float32).astype(dtype)
    if text.lower().startswith("0d"):
        return np.uint64(int(text[2:], 16)).view(np.float64).astype(dtype)
    try:
        number: Any = int(text, 0)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            raise Unsupported(f"operand {text} of inline PTX") from None
    if dtype.kind == "i":
        bits = dtype.itemsize * 8
        number = (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return np.asarray(number).astype(dtype)[()]


# ------------------------------------------------------------------------------------------------------------------- parsing


def parse(text: str) -> list[Instruction]:
    """The instructions of an assembly text; register declarations are left out."""
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    parsed = []
    for line in re.split(r";|\n", body):
        statement = re.fullmatch(r"\s*(?:\w+:)?\s*(?:@(!?\S+)\s+)?([\w.:]+)\s*(.*)", line)  # label, guard, name, operands
        if statement and not statement[2].startswith((".reg", "//", "bra")):
            parsed.append(Instruction(statement[2], tuple(_operands(statement[3])), statement[1]))
    return parsed


def _operands(text: str) -> list[Any]:
    found: list[Any] = []
    for match in re.finditer(r"\{([^}]*)\}|\[([^\]]*)\]|[^,\s{}\[\]]+", text):
        if match.group(1) is not None:
            found.append(tuple(part.strip() for part in match.group(1).split(",") if part.strip()))
        elif match.group(2) is not None:
            found.append(f"[{match.group(2)}]")
        else:
            found.append(match.group(0))
    return found


def find(name: str) -> Meaning:
    """The meaning of a mnemonic."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in INSTRUCTIONS:
            return INSTRUCTIONS[prefix]
    raise Unsupported(f"the emulator has no meaning for the PTX instruction {name}")


@meaning("llvm.inline_asm")
def _(op: Op) -> Step:
    instructions = parse(op.attribute("asm_string"))
    meanings = [find(i.name) for i in instructions]
    outputs, names, tied = constraints(op)
    kinds = list(op.kind.members or (op.kind,)) if op.results else []

    def step(frame: Frame) -> None:
        registers = {name: frame.env[number] for name, number in zip(names, op.operands, strict=True)}
        registers |= {output: registers[source] for output, source in tied.items()}
        flight = None
        for each, act in zip(instructions, meanings, strict=True):
            bound = Bound(each, registers)
            _execute(frame, bound, act)
            flight = bound.flight or flight
        if op.results:
            values = [_settle(registers[name], kind) for name, kind in zip(outputs, kinds, strict=True)]
            struct = tuple(values) if flight is None else InFlight.of(values, flight)
            frame.env[op.results[0]] = struct if op.kind.members is not None else values[0]

    return step


def _execute(frame: Frame, bound: Bound, act: Meaning) -> None:
    guard = bound.instruction.guard
    if guard is None:
        act(frame, bound)
        return
    condition = bound.read(guard.lstrip("!"), np.dtype(bool)) ^ guard.startswith("!")
    if condition.all():
        act(frame, bound)
    elif condition.any():
        raise Unsupported("a guarded PTX instruction that only some threads execute")


def constraints(op: Op) -> tuple[list[str], list[str], dict[str, str]]:
    """Names of the output registers, of the inputs, and which output starts as which input."""
    entries = [e for e in op.attribute("constraints").split(",") if e and not e.startswith("~")]
    outputs = [f"${i}" for i, e in enumerate(entries) if e.startswith(("=", "+"))]
    inputs = [f"${i}" for i, e in enumerate(entries) if not e.startswith(("=", "+"))]
    tied = {f"${e}": f"${i}" for i, e in enumerate(entries) if e.isdigit()}
    return outputs, inputs, tied


def _settle(value: Any, kind: Kind) -> Any:
    """A register's bits as a value of the type that the op gives it."""
    if not kind.shape:
        return as_bits(value, kind.dtype)
    word = Kind(value.dtype)
    return reinterpret(value, word, kind)
