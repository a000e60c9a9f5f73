"""Inline PTX: the text of an ``llvm.inline_asm`` is parsed once; each instruction has a meaning in a table.

An instruction's meaning is a function of the frame and an :class:`Instruction` bound to values; registers hold bits, so
operands are read as the type that the instruction names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from .build import Op, Step, meaning
from .faults import Unsupported
from .frames import Frame
from .kinds import CLUSTER, CONSTANT, GLOBAL, LOCAL, SHARED, Kind, unsigned
from .numbers import reinterpret

_SIZES = {8: np.dtype(np.int8), 16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: np.dtype(np.int64)}
TYPES: dict[str, np.dtype[Any]] = {f"{letter}{bits}": dtype for letter in "bsu" for bits, dtype in _SIZES.items()}
TYPES |= {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
TYPES |= {"f64": np.dtype(np.float64), "pred": np.dtype(bool), "tf32": np.dtype(np.float32)}
TYPES |= {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
_SPACES = {"global": GLOBAL, "shared": SHARED, "shared::cta": SHARED, "shared::cluster": CLUSTER, "const": CONSTANT}
_SPACES |= {"local": LOCAL}

Meaning = Callable[[Frame, "Bound"], None]
INSTRUCTIONS: dict[str, Meaning] = {}
BLOCKING = ("bar.sync", "barrier.sync", "barrier.cluster.wait", "mbarrier.try_wait", "mbarrier.test_wait", "wgmma")


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
    widths: dict[str, int] = field(default_factory=dict)

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
        for each, act in zip(instructions, meanings, strict=True):
            _execute(frame, Bound(each, registers), act)
        if op.results:
            values = [_settle(registers[name], kind) for name, kind in zip(outputs, kinds, strict=True)]
            frame.env[op.results[0]] = tuple(values) if op.kind.members is not None else values[0]

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


# ------------------------------------------------------------------------------------------------------------------- numbers


def kind_suffix(bound: Bound) -> np.dtype[Any]:
    """The type that the last suffix names."""
    return TYPES[bound.instruction.suffixes[-1]]


_UNARY: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1.0 / a,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "neg": np.negative,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _lanes(bound: Bound, count: int) -> list[list[Any]]:
    """Operands after the first, as floats in double precision; packed types give two values."""
    last = bound.instruction.suffixes[-1]
    if last in ("f16x2", "bf16x2"):
        dtype = TYPES[last[:-2]]
        return [_halves(bound.read(o, np.int32), dtype) for o in bound.operands[1 : 1 + count]]
    return [[bound.read(o, TYPES[last])] for o in bound.operands[1 : 1 + count]]


def _halves(word: Any, dtype: np.dtype[Any]) -> list[Any]:
    bits = word.view(np.uint32)
    return [(bits & 0xFFFF).astype(np.uint16).view(dtype), (bits >> 16).astype(np.uint16).view(dtype)]


def pack_halves(low: Any, high: Any) -> Any:
    """Two 16-bit values as one i32."""
    bits = [np.asarray(v).view(np.uint16).astype(np.uint32) for v in (low, high)]
    return (bits[0] | (bits[1] << 16)).view(np.int32)[()]


def _numeric(bound: Bound, count: int, function: Callable[..., Any]) -> None:
    results = []
    for values in zip(*_lanes(bound, count), strict=True):
        dtype = values[0].dtype
        if dtype.kind == "i":
            results.append(function(*values).astype(dtype))
        else:
            wide = [np.asarray(v).astype(np.float64) for v in values]
            results.append(np.asarray(function(*wide)).astype(dtype)[()])
    bound.write(bound.operands[0], results[0] if len(results) == 1 else pack_halves(*results))


for _name, _function in _UNARY.items():
    instruction(_name)(lambda frame, bound, f=_function: _numeric(bound, 1, f))
for _name, _function2 in _BINARY.items():
    instruction(_name)(lambda frame, bound, f=_function2: _numeric(bound, 2, f))


@instruction("fma", "mad.lo")
def _(frame: Frame, bound: Bound) -> None:
    _numeric(bound, 3, lambda a, b, c: a * b + c)


@instruction("min", "max")
def _(frame: Frame, bound: Bound) -> None:
    largest = bound.instruction.suffixes[0] == "max"
    if bound.instruction.suffixes[-1] in ("u32", "u64", "u16"):
        bits = unsigned(kind_suffix(bound))
        a, b = (bound.read(o, kind_suffix(bound)).view(bits) for o in bound.operands[1:3])
        bound.write(bound.operands[0], (np.maximum if largest else np.minimum)(a, b).view(kind_suffix(bound)))
        return
    nan = bound.has("NaN") or kind_suffix(bound).kind == "i" if bound.instruction.suffixes[-1] in TYPES else bound.has("NaN")
    function = (np.maximum if largest else np.minimum) if nan else (np.fmax if largest else np.fmin)
    _numeric(bound, 2, function)


@instruction("shl", "shr")
def _(frame: Frame, bound: Bound) -> None:
    dtype = kind_suffix(bound)
    bits = dtype if bound.instruction.suffixes[-1].startswith("s") else unsigned(dtype)
    value = bound.read(bound.operands[1], dtype).view(bits)
    amount = bound.read(bound.operands[2], np.int32).astype(bits)
    limit = dtype.itemsize * 8 - 1
    shifted = value << np.minimum(amount, limit) if bound.has("shl") else value >> np.minimum(amount, limit)
    if bits.kind == "u" or bound.has("shl"):
        shifted = np.where(amount > limit, bits.type(0), shifted)[()]
    bound.write(bound.operands[0], shifted.view(dtype))


@instruction("mov")
def _(frame: Frame, bound: Bound) -> None:
    target, source = bound.operands
    bits = TYPES[bound.instruction.suffixes[-1]].itemsize * 8
    if isinstance(source, tuple):  # pack
        width = bits // len(source)
        parts = [bound.read(o, _SIZES[width]).view(unsigned(_SIZES[width])).astype(np.uint64) for o in source]
        word = sum((part << np.uint64(width * i) for i, part in enumerate(parts)), np.uint64(0))
        bound.write(target, word.astype(unsigned(_SIZES[bits])).view(_SIZES[bits]))
    elif isinstance(target, tuple):  # unpack
        width = bits // len(target)
        word = bound.read(source, _SIZES[bits]).view(unsigned(_SIZES[bits]))
        for position, register in enumerate(target):
            part = (word >> word.dtype.type(width * position)).astype(unsigned(_SIZES[width]))
            bound.write(register, part.view(_SIZES[width]))
    else:
        bound.write(target, bound.read(source, TYPES[bound.instruction.suffixes[-1]]))


@instruction("cvt")
def _(frame: Frame, bound: Bound) -> None:
    *_, to, source = bound.instruction.suffixes
    if to.endswith("x2"):
        _convert_pair(bound, to, source)
        return
    value = bound.read(bound.operands[1], TYPES[source])
    if to == "tf32":
        bound.write(bound.operands[0], round_tf32(value))
        return
    if source[0] == "u":
        value = value.view(unsigned(value.dtype))
    if TYPES[to].kind == "i" and value.dtype.kind not in "iu":
        raise Unsupported(f"{bound.instruction.name}: conversions to integers")
    bound.write(bound.operands[0], value.astype(TYPES[to]))


def _convert_pair(bound: Bound, to: str, source: str) -> None:
    """``cvt.rn.bf16x2.f32 d, a, b``: a becomes the upper half.  Also from and to pairs of 8-bit floats."""
    dtype = TYPES[to[:-2]]
    if source.endswith("x2"):
        narrow = TYPES[source[:-2]]
        word = bound.read(bound.operands[1], np.int16).view(np.uint16)
        values = [(word & 0xFF).astype(np.uint8).view(narrow), (word >> 8).astype(np.uint8).view(narrow)]
        bound.write(bound.operands[0], pack_halves(*[value.astype(dtype) for value in values]))
        return
    high, low = (bound.read(operand, TYPES[source]) for operand in bound.operands[1:3])
    if bound.has("relu"):
        high, low = (np.maximum(value, value.dtype.type(0)) for value in (high, low))
    if dtype.itemsize == 2:
        bound.write(bound.operands[0], pack_halves(low.astype(dtype), high.astype(dtype)))
        return
    limit = float(ml_dtypes.finfo(dtype).max)  # satfinite
    bits = [np.clip(value, -limit, limit).astype(dtype).view(np.uint8).astype(np.uint16) for value in (low, high)]
    bound.write(bound.operands[0], (bits[0] | (bits[1] << 8)).view(np.int16))


def round_tf32(value: Any) -> Any:
    """f32 rounded to 10 bits of fraction, ties away from zero (``cvt.rna.tf32.f32``)."""
    bits = value.view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(value), rounded, value)[()]


def truncate_tf32(value: Any) -> Any:
    """What tensor cores see of an f32: its low 13 bits are ignored."""
    return (value.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@instruction("prmt")
def _(frame: Frame, bound: Bound) -> None:
    a, b, selector = (bound.read(o, np.int32).view(np.uint32).astype(np.uint64) for o in bound.operands[1:4])
    pool = a | (b << np.uint64(32))
    result = np.uint32(0)
    for position in range(4):
        choice = (selector >> np.uint64(4 * position)) & np.uint64(0xF)
        byte = (pool >> (np.uint64(8) * (choice & np.uint64(7)))) & np.uint64(0xFF)
        byte = np.where(choice & np.uint64(8), np.where(byte & np.uint64(0x80), 0xFF, 0), byte)
        result = result | (byte.astype(np.uint32) << np.uint32(8 * position))
    bound.write(bound.operands[0], np.asarray(result, np.uint32)[()].view(np.int32))


@instruction("lop3")
def _(frame: Frame, bound: Bound) -> None:
    a, b, c = (bound.read(o, np.int32) for o in bound.operands[1:4])
    table = int(bound.operands[4], 0)
    result = np.int32(0)
    for index in range(8):
        if table >> index & 1:
            terms = [x if index >> (2 - i) & 1 else ~x for i, x in enumerate((a, b, c))]
            result = result | (terms[0] & terms[1] & terms[2])
    bound.write(bound.operands[0], result)
