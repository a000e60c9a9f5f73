"""What a model writes to besides its results, as far as a captured graph is silent about it.

Eager sees a write through every view of the memory, and in every later call.  The graph takes each argument to lie apart
from all others, and drops what is assigned to an attribute that is no buffer. Models and
calls where that shows are refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from mlirstack.errors import UnsupportedError

_ASSIGNED = re.compile(r"The tensor attributes? (.*?) (?:was|were) assigned during export")


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do the stretches of memory from first to last element meet?  True for interleaved views as well."""
    if not a.numel() or not b.numel():
        return False
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    (a_first, a_end), (b_first, b_end) = _stretch(a), _stretch(b)
    return a_first < b_end and b_first < a_end


def _stretch(x: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte and behind the last one."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    first: int = x.data_ptr()
    return first, first + (last + 1) * x.element_size()


def refuse_shared_buffers(exported: ExportedProgram) -> None:
    """Raise :class:`UnsupportedError` if two tensors of the model's state share memory.

    For a program that cannot be decomposed, as is so when one of the two is written to.
    """
    buffers = {n: value for n, value in exported.state_dict.items() if n in exported.graph_signature.buffers}
    state = {n: value for n, value in (buffers | exported.constants).items() if isinstance(value, torch.Tensor)}
    for (name, value), (other, seen) in itertools.combinations(state.items(), 2):
        if share_memory(value, seen):
            raise UnsupportedError(
                f"the model writes to its state, where '{name}' and '{other}' share memory",
                hint="keep one of them, and take the other as a view of it in forward",
            )


def refuse_lost_writes(exported: ExportedProgram, warned: Iterable[str]) -> None:
    """Raise :class:`UnsupportedError` if a tensor attribute that the model reads was assigned, as torch's warnings tell."""
    assigned = {name.removeprefix("self.") for text in warned for name in _names(text)}
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target in assigned:
            raise UnsupportedError(
                f"the model assigns to 'self.{spec.target}', which it reads: the next call would not see the new value",
                hint="make it a buffer: self.register_buffer(...)",
            )


def _names(text: str) -> list[str]:
    found = _ASSIGNED.search(text)
    return found[1].split(", ") if found else []
