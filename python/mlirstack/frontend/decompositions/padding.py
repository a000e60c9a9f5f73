"""Padding by negative amounts, which crops: torch-mlir's conversions take a number below zero for a size that is not known,
or leave a slice that begins before its tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten


def add_padding_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: what is cropped is sliced, then padded by what is left."""
    extend(table, aten.constant_pad_nd.default, _constant_pad)


def _constant_pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Any:
    if not any(isinstance(amount, int) and amount < 0 for amount in pad):
        return NotImplemented
    for axis, (before, after) in _axes(x, pad):
        first = -before if isinstance(before, int) and before < 0 else 0
        last = after if isinstance(after, int) and after < 0 else 0
        x = aten.slice.Tensor(x, axis, first, x.shape[axis] + last)
    added = [amount if not isinstance(amount, int) or amount > 0 else 0 for amount in pad]
    return aten.constant_pad_nd.default(x, added, value) if any(added) else x.clone()


def _axes(x: Tensor, pad: Sequence[int]) -> list[tuple[int, tuple[int, int]]]:
    """The padded axes, each with what is added before and after it; torch counts from the last."""
    return [(x.dim() - 1 - number, (pad[2 * number], pad[2 * number + 1])) for number in range(len(pad) // 2)]
