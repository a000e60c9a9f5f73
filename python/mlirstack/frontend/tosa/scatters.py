"""Scattered writes for the TOSA route: every position looks for the updates that are meant for it.

``tosa.scatter`` neither adds nor allows the same position twice.  A comparison of all positions with all indices costs their
product, so large ones are left to the linalg route.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mlirstack.frontend.replace_nodes import Rule

aten = torch.ops.aten

_LARGEST = 2**22  # comparisons


def scatter_rules() -> dict[Any, Rule]:
    """Operator overload → rule, see :mod:`mlirstack.frontend.replace_nodes`."""
    return {
        aten.scatter_reduce.two: _scatter_reduce,
        aten.scatter_add.default: lambda used, x, dim, index, src: _scattered(x, dim, index, src, "sum"),
        aten.scatter.src: lambda used, x, dim, index, src: _scattered(x, dim, index, src, "last"),
        aten.index_put.default: _index_put,
        aten._index_put_impl.default: _index_put,
    }


def _scatter_reduce(
    used: frozenset[int], x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    return _scattered(x, dim, index, src, reduce, include_self=include_self)


def _scattered(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """``x`` with ``src[…, i, …]`` at ``index[…, i, …]`` of ``dim``; both may be smaller than ``x`` in other dimensions."""
    if x.dim() == 0 or not index.numel() or x.numel() * index.shape[dim] > _LARGEST:
        return NotImplemented
    dim %= x.dim()
    missing = [0 if axis == dim else x.shape[axis] - index.shape[axis] for axis in range(x.dim())]
    pads = [pad for size in reversed(missing) for pad in (0, size)]
    part = src[tuple(slice(0, size) for size in index.shape)]
    if any(missing):
        index, part = functional.pad(index, pads, value=-1), functional.pad(part, pads)
    moved = _updated(x.movedim(dim, -1), index.movedim(dim, -1), part.movedim(dim, -1), reduce, include_self)
    return moved.movedim(-1, dim)


def _index_put(
    used: frozenset[int],
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Any:
    """``x[indices] = values``, or ``+=``: the indexed dimensions become one, all others one."""
    if not accumulate and x.dim() > 1 and len(indices) == 1 and indices[0] is not None and indices[0].dim() == 1:
        return NotImplemented  # rows, which tosa.scatter writes
    given = [axis for axis, index in enumerate(indices) if index is not None]
    found = [index for index in indices if index is not None]
    if any(index.dtype == torch.bool for index in found) or not values.numel() or not x.numel():
        return NotImplemented
    positions: list[Tensor] = list(torch.broadcast_tensors(*found))  # type: ignore[no-untyped-call]
    places = positions[0].dim()
    flat = torch.zeros_like(positions[0])
    for axis, position in zip(given, positions, strict=True):
        flat = flat * x.shape[axis] + torch.where(position < 0, position + x.shape[axis], position)
    rest = [axis for axis in range(x.dim()) if axis not in given]
    together = given == list(range(given[0], given[-1] + 1))
    front = [axis for axis in rest if axis < given[0]] if together else []
    shape = [x.shape[a] for a in front] + list(flat.shape) + [x.shape[a] for a in rest if a not in front]
    order = [*range(len(front), len(front) + places)]
    order = [axis for axis in range(len(shape)) if axis not in order] + order
    others = math.prod(x.shape[axis] for axis in rest)
    rows = values.expand(shape).permute(order).reshape(others, flat.numel())
    table = x.permute([*rest, *given])
    if table.numel() * flat.numel() > _LARGEST:
        return NotImplemented
    new = _updated(table.reshape(others, -1), flat.reshape(1, -1), rows, "sum" if accumulate else "last", True)
    back = sorted(range(x.dim()), key=[*rest, *given].__getitem__)
    return new.reshape(table.shape).permute(back)


def _updated(x: Tensor, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Tensor:
    """``x[…, m]`` with all ``src[…, n]`` whose ``index[…, n]`` is m."""
    count = index.shape[-1]
    hit = index.unsqueeze(-2) == torch.arange(x.shape[-1]).unsqueeze(-1)
    if reduce == "last":
        last = torch.where(hit, torch.arange(count), -1).amax(-1).expand(x.shape)
        return torch.where(last >= 0, torch.gather(src, -1, last.clamp(min=0)), x)
    hits = hit.to(torch.int32).sum(-1, dtype=torch.int32)
    chosen = torch.where(hit, src.unsqueeze(-2), _neutral(reduce, x.dtype))
    if reduce in ("sum", "mean"):
        total = chosen.sum(-1, dtype=x.dtype)
        total = x + total if include_self else total
        if reduce == "mean":
            divisor = hits + 1 if include_self else hits.clamp(min=1)
            total = total / divisor if x.is_floating_point() else torch.div(total, divisor, rounding_mode="floor")
            total = total.to(x.dtype)
    elif reduce == "prod":
        total = functools.reduce(torch.mul, chosen.unbind(-1))
        total = x * total if include_self else total
    else:
        total = chosen.amax(-1) if reduce == "amax" else chosen.amin(-1)
        if include_self:
            total = torch.maximum(x, total) if reduce == "amax" else torch.minimum(x, total)
    return torch.where(hits > 0, total, x)


def _neutral(reduce: str, dtype: torch.dtype) -> Tensor:
    """What changes nothing when it is reduced."""
    if reduce in ("sum", "mean", "prod"):
        return torch.full((), 1 if reduce == "prod" else 0, dtype=dtype)
    if dtype.is_floating_point:
        return torch.full((), -math.inf if reduce == "amax" else math.inf, dtype=dtype)
    info = torch.iinfo(dtype)
    return torch.full((), info.min if reduce == "amax" else info.max, dtype=dtype)
