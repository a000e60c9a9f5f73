"""Meanings of the nvgpu dialect: asynchronous copies, ldmatrix and mma.sync on memrefs and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import copies
from .build import Op, Step, meaning
from .faults import Unsupported
from .frames import Frame
from .kinds import Kind
from .matrices import load_matrices, multiply
from .memrefs import View
from .values import reinterpret


@meaning("nvgpu.device_async_copy")
def _(op: Op) -> Step:
    (target,), target_indices, (source,), source_indices, valid = op.segments()
    target_kind, source_kind = (kind for kind in op.operand_kinds if kind.element is not None)
    element = source_kind.element.bytes
    size = op.attribute("dstElements") * element

    def step(frame: Frame) -> None:
        env = frame.env
        to = View(env[target]).address([env[i] for i in target_indices], element)
        view, indices = View(env[source]), [env[i] for i in source_indices]
        count = env[valid[0]] if valid else None
        if count is not None:  # what is not read may lie outside
            indices = [np.where(count > 0, index, 0) for index in indices]
        wanted = None if count is None else count * element
        start = view.address(indices, element)
        copies.start(frame, to, target_kind.space, start, source_kind.space, size, wanted)
        env[op.results[0]] = np.int64(0)

    return step


@meaning("nvgpu.device_async_create_group")
def _(op: Op) -> Step:
    def step(frame: Frame) -> None:
        copies.commit(frame)
        frame.env[op.results[0]] = np.int64(0)

    return step


@meaning("nvgpu.device_async_wait")
def _(op: Op) -> Step:
    allowed = op.attribute("numGroups", 0)
    return lambda frame: copies.wait(frame, allowed)


@meaning("nvgpu.ldmatrix")
def _(op: Op) -> Step:
    source, *indices = op.operands
    kind, vector = op.operand_kinds[0], op.kind
    number, transposed = op.attribute("numTiles"), op.attribute("transpose")

    def step(frame: Frame) -> None:
        lanes = frame.warps[:, : 8 * number].reshape(-1)  # the other lanes' indices mean nothing
        part = frame.child(lanes)
        pointers = np.zeros(frame.count, np.int64)
        pointers[lanes] = View(part.env[source]).address([part.env[i] for i in indices], kind.element.bytes)
        registers = load_matrices(frame, pointers, kind.space, number, transposed=transposed)
        frame.env[op.results[0]] = _as_vector(registers, vector)

    return step


def _as_vector(registers: list[Any], vector: Kind) -> Any:
    words = np.stack(registers, axis=-1)
    return reinterpret(words, Kind(words.dtype, (len(registers),)), vector)


def _as_registers(value: Any, kind: Kind, dtype: Any) -> list[Any]:
    count = kind.bytes // np.dtype(dtype).itemsize
    words = reinterpret(value, kind, Kind(np.dtype(dtype), (count,)))
    return [np.ascontiguousarray(words[..., position]) for position in range(count)]


@meaning("nvgpu.mma.sync")
def _(op: Op) -> Step:
    kinds, shape = op.operand_kinds, op.attribute("mmaShape")
    names = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8"}
    name = names.get(kinds[0].dtype.name)
    if name is None or shape[:2] != [16, 8] or kinds[2].dtype.itemsize != 4:
        raise Unsupported(f"nvgpu.mma.sync of {kinds[0].dtype.name} and shape {shape}")

    def step(frame: Frame) -> None:
        a, b, c = (
            _as_registers(frame.per_thread(frame.env[number], len(kind.shape)), kind, dtype)
            for number, kind, dtype in zip(op.operands, kinds, (np.int32, np.int32, kinds[2].dtype), strict=True)
        )
        frame.env[op.results[0]] = _as_vector(multiply(frame, a, b, c, (name, name)), op.kind)

    return step
