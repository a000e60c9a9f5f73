"""Tensor maps that the device makes: written field by field in shared memory, read by the copy engine in global memory.

The 128 bytes of a map are opaque to programs; here every field has a place of its own, so that what is never written, or
written by a thread that nobody waits for, is found like any other use of memory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from .accesses import load, store
from .build import Op, Step, meaning
from .faults import Fault
from .frames import Frame
from .kinds import GLOBAL, SHARED, Kind
from .ptx import Bound, instruction
from .tensor_maps import BYTES, TensorMap
from .threads import WARP

_INT, _LONG = Kind(np.dtype(np.int32)), Kind(np.dtype(np.int64))
_ADDRESS, _RANK = 0, 8  # bytes from the map's begin
_CHOICES = {"elemtype": 12, "interleave_layout": 16, "swizzle_mode": 20, "fill_mode": 24}
_AXES = {"box_dim": 28, "global_dim": 48, "element_stride": 68}  # five numbers each
_STRIDES = 88  # four of eight bytes
_VALUES = {
    "elemtype": ["u8", "f16", "bf16", "f32", "tf32"],
    "interleave_layout": ["no_interleave"],
    "swizzle_mode": ["no_swizzle", "b32", "b64", "b128"],
    "fill_mode": ["zero"],
}
_ELEMENTS = {"u8": "i8"}  # names of the launch plan, where they differ
_SWIZZLES = (0, 32, 64, 128)


@meaning("nvvm.tensormap.replace")
def _(op: Op) -> Step:
    field = re.search(r"tensormap_field (?:= )?(\w+)", op.text("field"))
    if field is None:
        raise Fault(f"no field of a tensor map: {op.text('field')}")
    name, axis = field[1], op.attribute("ord", 0)
    if name in _CHOICES:
        chosen = re.search(r"<(?:\w+ = )?(\w+)>", op.text("new_value_attr"))
        if chosen is None or chosen[1] not in _VALUES[name]:
            raise Fault(f"no known {name} of a tensor map: {op.text('new_value_attr')}")
        return _writes(op, _CHOICES[name], np.int32(_VALUES[name].index(chosen[1])))
    places = {"global_address": _ADDRESS, "rank": _RANK, "global_stride": _STRIDES + 8 * axis}
    return _writes(op, places[name] if name in places else _AXES[name] + 4 * axis)


def _writes(op: Op, offset: int, constant: Any = None) -> Step:
    pointer = op.operands[0]
    value = None if constant is not None else op.operands[1]
    kind = _INT if value is None else op.operand_kinds[1]

    def step(frame: Frame) -> None:
        written = constant if value is None else frame.env[value]
        store(frame, frame.env[pointer] + offset, SHARED, written, kind)

    return step


@instruction("tensormap.cp_fenceproxy")
def _(frame: Frame, bound: Bound) -> None:
    """From shared to global memory, released to the copy engine; once a warp."""
    target, source, size = bound.operands
    if int(size, 0) != BYTES or frame.count % WARP:
        raise Fault("a tensor map is copied by whole warps, as 128 bytes")
    targets, sources = (frame.per_thread(bound.address(operand)) for operand in (target, source))
    for thread in range(0, frame.count, WARP):
        _publish(frame.child(np.array([thread])), targets[thread], sources[thread])


def _publish(frame: Frame, target: Any, source: Any) -> None:
    """What one thread does."""

    def read(offset: int, kind: Kind) -> int:
        return int(np.atleast_1d(load(frame, source + offset, SHARED, kind))[0])

    rank = read(_RANK, _INT) + 1
    lists = {name: tuple(read(place + 4 * i, _INT) for i in range(rank)) for name, place in _AXES.items()}
    element = _VALUES["elemtype"][read(_CHOICES["elemtype"], _INT)]
    made = TensorMap(
        _ELEMENTS.get(element, element),
        lists["global_dim"],
        tuple(read(_STRIDES + 8 * i, _LONG) for i in range(rank - 1)),
        lists["box_dim"],
        _SWIZZLES[read(_CHOICES["swizzle_mode"], _INT)],
        lists["element_stride"],
    )
    over, address = read(_ADDRESS, _LONG), int(np.atleast_1d(frame.resolve(target, GLOBAL))[0])
    made.check(over)
    whole = Kind(np.dtype(np.uint8), (BYTES,))
    store(frame, target, GLOBAL, load(frame, source, SHARED, whole), whole)
    frame.unit.memory.tensor_maps[address] = replace(made, address=over)


@meaning("nvvm.fence.proxy.acquire")
def _(op: Op) -> Step:
    pointer = op.operands[0]

    def step(frame: Frame) -> None:
        for address in np.atleast_1d(frame.env[pointer]):
            if int(address) not in frame.unit.memory.tensor_maps:
                raise Fault(f"no tensor map has been published {frame.unit.memory.where(int(address))}")

    return step
