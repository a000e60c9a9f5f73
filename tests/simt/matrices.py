"""Meanings of matrix instructions of a warp: ldmatrix, stmatrix, mma.sync, as NVVM ops and as inline PTX.

PTX ISA, "Matrix Fragments": whatever the element, a register of A holds 4 bytes of row ``lane / 4`` (or 8 further down) at
byte ``4 * (lane % 4)`` of a 16-byte half of k.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .accesses import load, store
from .build import Op, Step, meaning
from .faults import Unsupported
from .frames import Frame
from .kinds import Kind
from .ptx import TYPES, Bound, as_bits, instruction
from .ptx_numbers import truncate_tf32

_WORD = np.dtype(np.int32)
_ROW = Kind(_WORD, (4,))  # 16 bytes


def _by_warp(frame: Frame, values: Sequence[Any], dtype: Any = _WORD) -> Any:
    """Registers as an array [warps, 32, registers]."""
    count = len(frame.warps)
    parts = [frame.per_thread(as_bits(value, np.dtype(dtype))).reshape(count, 32) for value in values]
    return np.stack(parts, axis=-1)


# ------------------------------------------------------------------------------------------------- loads and stores of tiles


def load_matrices(frame: Frame, pointer: Any, space: int, number: int, *, transposed: bool) -> list[Any]:
    """ldmatrix: registers of 1, 2 or 4 matrices of 8 rows of 16 bytes."""
    lanes = frame.warps[:, : 8 * number].reshape(-1)
    part = frame if number == 4 else frame.child(lanes)
    addresses = frame.per_thread(pointer)[lanes]
    tiles = load(part, addresses, space, _ROW, 16).reshape(-1, number, 8, 4)
    if transposed:
        tiles = _transpose(tiles)
    return [np.ascontiguousarray(tiles[:, i]).reshape(-1) for i in range(number)]


def store_matrices(frame: Frame, pointer: Any, space: int, registers: Sequence[Any], *, transposed: bool) -> None:
    """stmatrix: the inverse of :func:`load_matrices`."""
    number = len(registers)
    lanes = frame.warps[:, : 8 * number].reshape(-1)
    part = frame if number == 4 else frame.child(lanes)
    tiles = _by_warp(frame, registers).reshape(-1, 8, 4, number).transpose(0, 3, 1, 2)
    if transposed:
        tiles = _transpose(tiles)
    rows = np.ascontiguousarray(tiles).reshape(-1, 4)
    store(part, frame.per_thread(pointer)[lanes], space, rows, _ROW, 16)


def _transpose(tiles: Any) -> Any:
    """8 x 8 matrices of 16-bit elements, given and returned as 8 x 4 words."""
    elements = np.ascontiguousarray(tiles).view(np.int16)
    return np.ascontiguousarray(elements.swapaxes(-1, -2)).view(_WORD)


@meaning("nvvm.ldmatrix")
def _(op: Op) -> Step:
    number, transposed = op.attribute("num"), "col" in op.text("layout")
    space = op.operand_kinds[0].space
    _only_b16(op)

    def step(frame: Frame) -> None:
        registers = load_matrices(frame, frame.env[op.operands[0]], space, number, transposed=transposed)
        frame.env[op.results[0]] = tuple(registers) if op.kind.members is not None else registers[0]

    return step


@meaning("nvvm.stmatrix")
def _(op: Op) -> Step:
    pointer, *registers = op.operands
    transposed, space = "col" in op.text("layout"), op.operand_kinds[0].space
    _only_b16(op)

    def step(frame: Frame) -> None:
        values = [frame.env[number] for number in registers]
        store_matrices(frame, frame.env[pointer], space, values, transposed=transposed)

    return step


def _only_b16(op: Op) -> None:
    if "m = 8, n = 8" not in op.text("shape") or "b16" not in op.text("eltType"):
        raise Unsupported(f"{op.operation.name} of {op.text('shape')} {op.text('eltType')}")


@instruction("ldmatrix")
def _(frame: Frame, bound: Bound) -> None:
    target, source = bound.operands
    registers = target if isinstance(target, tuple) else (target,)
    pointer = bound.address(source)
    values = load_matrices(frame, pointer, bound.space(), len(registers), transposed=bound.has("trans"))
    for register, value in zip(registers, values, strict=True):
        bound.write(register, value)


@instruction("stmatrix")
def _(frame: Frame, bound: Bound) -> None:
    target, source = bound.operands
    values = bound.read_all(source, _WORD)
    store_matrices(frame, bound.address(target), bound.space(), values, transposed=bound.has("trans"))


@instruction("movmatrix")
def _(frame: Frame, bound: Bound) -> None:
    target, source = bound.operands
    tiles = _by_warp(frame, [bound.read(source, _WORD)]).reshape(-1, 8, 4)
    bound.write(target, _transpose(tiles).reshape(-1))


# ---------------------------------------------------------------------------------------------------------------- products

_ELEMENTS = TYPES | {"s8": np.dtype(np.int8), "u8": np.dtype(np.uint8)}


def factor_a(frame: Frame, registers: Sequence[Any]) -> Any:
    """The bytes of A, [warps, 16, 16 * halves]."""
    halves = len(registers) // 2
    parts = _by_warp(frame, registers).view(np.uint8).reshape(-1, 8, 4, halves, 2, 4)
    return np.ascontiguousarray(parts.transpose(0, 4, 1, 3, 2, 5)).reshape(-1, 16, 16 * halves)


def factor_b(frame: Frame, registers: Sequence[Any]) -> Any:
    """The bytes of B transposed, [warps, 8, 16 * halves]."""
    halves = len(registers)
    parts = _by_warp(frame, registers).view(np.uint8).reshape(-1, 8, 4, halves, 4)
    return np.ascontiguousarray(parts.transpose(0, 1, 3, 2, 4)).reshape(-1, 8, 16 * halves)


def elements(raw: Any, name: str) -> Any:
    """Bytes as numbers of a tensor-core type, in the precision that products are summed in here."""
    if name == "tf32":
        return truncate_tf32(raw.view(np.float32)).astype(np.float64)
    values = raw.view(_ELEMENTS[name])
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def multiply(frame: Frame, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], names: tuple[str, str]) -> list[Any]:
    """mma.sync: the four sums of each thread; f32 and i32 results."""
    left, right = elements(factor_a(frame, a), names[0]), elements(factor_b(frame, b), names[1])
    dtype = np.dtype(np.int32) if left.dtype.kind == "i" else np.dtype(np.float32)
    sums = _by_warp(frame, c, dtype).reshape(-1, 8, 4, 2, 2).transpose(0, 3, 1, 2, 4).reshape(-1, 16, 8)
    total = (sums + left @ right.swapaxes(1, 2)).astype(dtype)
    fragments = total.reshape(-1, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(-1, 4)
    return [np.ascontiguousarray(fragments[:, i]) for i in range(4)]


@meaning("nvvm.mma.sync")
def _(op: Op) -> Step:
    groups = op.segments()
    shape = [int(n) for n in re.findall(r"= (\d+)", op.text("shape"))]
    names = _type_names(op)
    if shape[:2] != [16, 8] or "row" not in op.text("layoutA") or "col" not in op.text("layoutB"):
        raise Unsupported(f"nvvm.mma.sync of shape {shape}")
    if len(groups[2]) != 4:
        raise Unsupported("nvvm.mma.sync with f16 sums")

    def step(frame: Frame) -> None:
        a, b, c = ([frame.env[number] for number in group] for group in groups)
        frame.env[op.results[0]] = tuple(multiply(frame, a, b, c, names))

    return step


def _type_names(op: Op) -> tuple[str, str]:
    texts = [op.text(f"multiplicand{factor}PtxType") for factor in "AB"]
    if "" in texts:
        return ("f16", "f16")
    first, second = (text.rstrip(">").split("<")[-1] for text in texts)
    return first, second


@instruction("mma.sync")
def _(frame: Frame, bound: Bound) -> None:
    target, a, b, c = bound.operands
    suffixes = bound.instruction.suffixes
    result, first, second, _ = suffixes[-4:]
    if not suffixes[3].startswith("m16n8") or suffixes[4:6] != ["row", "col"] or result not in ("f32", "s32"):
        raise Unsupported(bound.instruction.name)
    dtype = np.float32 if result == "f32" else np.int32
    factors = [bound.read_all(o, _WORD) for o in (a, b)]
    for register, value in zip(target, multiply(frame, *factors, bound.read_all(c, dtype), (first, second)), strict=True):
        bound.write(register, value)
