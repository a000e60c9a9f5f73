"""Meanings of pointers of the LLVM dialect: addresses, loads, stores, address spaces, atomics."""

from __future__ import annotations

import numpy as np

from .accesses import atomic, load, natural_alignment, private_buffer, store
from .build import Op, Step, apply, meaning
from .faults import Fault, Unsupported
from .frames import SHARED_START, Frame
from .kinds import CLUSTER, SHARED, Kind, kind_of, unsigned


@meaning("llvm.mlir.addressof")
def _(op: Op) -> Step:
    (result,) = op.results
    value = np.int64(op.builder.resources.symbol(op.attribute("global_name")))

    def step(frame: Frame) -> None:
        frame.env[result] = value

    return step


@meaning("llvm.getelementptr")
def _(op: Op) -> Step:
    base, *dynamic = op.operands
    dynamic_index = -(1 << 31)
    constant_part, scaled = 0, []  # bytes, and (operand, bytes) pairs
    kind, given = kind_of(op.attribute("elem_type").value), iter(dynamic)
    for level, index in enumerate(op.attribute("rawConstantIndices")):
        size = kind.bytes
        if level > 0:
            if kind.members is None:
                kind, size = Kind(kind.dtype), kind.dtype.itemsize
            elif index != dynamic_index and len(set(kind.members)) > 1:
                raise Unsupported("getelementptr into a struct of different members")
            else:
                kind = kind.members[0]
                size = kind.bytes
        if index == dynamic_index:
            scaled.append((next(given), size))
        else:
            constant_part += index * size
    constant_part = np.int64(constant_part)
    (result,) = op.results

    def step(frame: Frame) -> None:
        address = frame.env[base] + constant_part
        for number, size in scaled:
            address = address + frame.env[number].astype(np.int64) * size
        frame.env[result] = address

    return step


@meaning("llvm.load")
def _(op: Op) -> Step:
    kind, source = op.kind, op.operand_kinds[0]
    alignment = op.attribute("alignment", natural_alignment(kind))
    (pointer,), (result,) = op.operands, op.results

    def step(frame: Frame) -> None:
        frame.env[result] = load(frame, frame.env[pointer], source.space, kind, alignment)

    return step


@meaning("llvm.store")
def _(op: Op) -> Step:
    kind, target = op.operand_kinds
    alignment = op.attribute("alignment", natural_alignment(kind))
    value, pointer = op.operands

    def step(frame: Frame) -> None:
        store(frame, frame.env[pointer], target.space, frame.env[value], kind, alignment)

    return step


@meaning("llvm.addrspacecast")
def _(op: Op) -> Step:
    (source,), target = op.operand_kinds, op.kind
    (pointer,), (result,) = op.operands, op.results

    def step(frame: Frame) -> None:
        value = frame.env[pointer]
        if source.space in (SHARED, CLUSTER) and target.space not in (SHARED, CLUSTER):
            value = frame.resolve(value, source.space)
        elif target.space in (SHARED, CLUSTER) and source.space not in (SHARED, CLUSTER):
            value = value - frame.shared_base
            outside = (value < SHARED_START) | (value >= SHARED_START + max(frame.unit.window, 1))
            if outside.any():
                raise Fault("a pointer that is not to this block's shared memory is cast to one", np.flatnonzero(outside))
        frame.env[result] = value

    return step


@meaning("llvm.ptrtoint")
def _(op: Op) -> Step:
    dtype = op.kind.dtype
    return apply(op, lambda pointer: pointer.astype(dtype))


@meaning("llvm.inttoptr")
def _(op: Op) -> Step:
    bits = unsigned(op.operand_kinds[0].dtype)
    return apply(op, lambda number: number.view(bits).astype(np.int64))


@meaning("llvm.alloca")
def _(op: Op) -> Step:
    element = kind_of(op.attribute("elem_type").value).bytes
    (count,), (result,) = op.operands, op.results

    def step(frame: Frame) -> None:
        frame.env[result] = private_buffer(frame, op, int(frame.env[count]) * element)

    return step


_LLVM_RMW = [
    "xchg",
    "add",
    "sub",
    "_and",
    "_nand",
    "_or",
    "_xor",
    "max",
    "min",
    "umax",
    "umin",
    "fadd",
    "fsub",
    "fmax",
    "fmin",
    "uinc_wrap",
    "udec_wrap",
]


@meaning("llvm.atomicrmw")
def _(op: Op) -> Step:
    pointer, value = op.operands
    source, kind = op.operand_kinds
    name = _LLVM_RMW[op.attribute("bin_op")]

    def step(frame: Frame) -> None:
        env = frame.env
        env[op.results[0]] = atomic(frame, env[pointer], source.space, env[value], kind, name)

    return step
