"""Operations that move elements: views, slices, permutations, concatenation, padding, repetition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from mlirstack.fuzz.operations import Arguments, Operation, Picker, Value


def _some(pick: Picker, rank: int = 0) -> Value:
    found = pick.value(lambda value: value.rank >= rank)
    return found or pick.fresh([pick.one_of(pick.sizes) for _ in range(rank)], pick.main_dtype)


def _reshape(pick: Picker) -> Arguments:
    """Another factorization: sizes are merged, split, or ones are put between."""
    value = _some(pick)
    sizes = list(value.shape)
    for _ in range(pick.integer(1, 3)):
        kind = pick.integer(0, 2)
        if kind == 0 and len(sizes) > 1:
            at = pick.integer(0, len(sizes) - 2)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif kind == 1 and len(sizes) < 5:
            at = pick.integer(0, len(sizes))
            sizes[at:at] = [1]
        elif sizes and len(sizes) < 5:
            at = pick.integer(0, len(sizes) - 1)
            divisor = next((d for d in (2, 3, 5) if sizes[at] and sizes[at] % d == 0), 1)
            sizes[at : at + 1] = [divisor, sizes[at] // divisor]
    return Arguments((value,), {"shape": tuple(sizes)})


def _permute(pick: Picker) -> Arguments:
    value = _some(pick, 2)
    rest = list(range(value.rank))
    order = [rest.pop(pick.integer(0, len(rest) - 1)) for _ in range(value.rank)]
    return Arguments((value,), {"order": tuple(order)})


def _slice(pick: Picker) -> Arguments:
    value = _some(pick, 1)
    dim = pick.integer(0, value.rank - 1)
    size = value.shape[dim]
    start = pick.integer(0, size)
    end = pick.integer(start, size)
    return Arguments((value,), {"dim": dim, "start": start, "end": end, "step": pick.integer(1, 3)})


def slice_(a: Any, dim: int, start: int, end: int, step: int) -> Any:
    """``a[..., start:end:step, ...]`` at dimension ``dim``."""
    return a[(*(slice(None),) * dim, slice(start, end, step))]


def _select(pick: Picker) -> Arguments | None:
    value = pick.value(lambda value: value.rank >= 1 and 0 not in value.shape)
    if value is None:
        return None
    dim = pick.dim(value)
    size = value.shape[dim]
    return Arguments((value,), {"dim": dim, "index": pick.integer(-size, size - 1)})


def _one_dim(rank: int = 1) -> Callable[[Picker], Arguments]:
    def pick_dim(pick: Picker) -> Arguments:
        value = _some(pick, rank)
        return Arguments((value,), {"dim": pick.dim(value)})

    return pick_dim


def _unsqueeze(pick: Picker) -> Arguments | None:
    value = pick.value(lambda value: value.rank < 5)
    return None if value is None else Arguments((value,), {"dim": pick.integer(-value.rank - 1, value.rank)})


def _two_dims(pick: Picker) -> Arguments:
    value = _some(pick, 2)
    return Arguments((value,), {"first": pick.dim(value), "second": pick.dim(value)})


def _expand(pick: Picker) -> Arguments:
    value = _some(pick)
    shape = [pick.integer(1, 4) if size == 1 else size for size in value.shape]
    leading = [pick.integer(1, 3) for _ in range(pick.integer(0, 1))] if value.rank < 5 else []
    return Arguments((value,), {"shape": (*leading, *shape)})


def _cat(pick: Picker) -> Arguments:
    first = _some(pick, 1)
    dim = pick.integer(0, first.rank - 1)

    def fits(value: Value) -> bool:
        same = value.rank == first.rank
        return same and all(a == b for i, (a, b) in enumerate(zip(first.shape, value.shape, strict=True)) if i != dim)

    more = [pick.value(fits) or first for _ in range(pick.integer(1, 3))]
    return Arguments((first, *more), {"dim": dim - (first.rank if pick.chance(30) else 0)})


def _stack(pick: Picker) -> Arguments:
    first = _some(pick)
    more = [pick.value(lambda value: value.shape == first.shape) or first for _ in range(pick.integer(1, 2))]
    return Arguments((first, *more), {"dim": pick.integer(-first.rank - 1, first.rank)})


def _pad(pick: Picker) -> Arguments:
    value = _some(pick, 1)
    amounts: list[int] = []
    for _ in range(pick.integer(1, min(value.rank, 2))):
        amounts += [pick.integer(0, 3), pick.integer(0, 3)]
    return Arguments((value,), {"amounts": tuple(amounts), "value": pick.one_of((0, 1, -3))})


def _mirror(pick: Picker) -> Arguments | None:
    value = pick.value(lambda value: value.is_float and value.rank == 3 and min(value.shape) > 0)
    if value is None:
        return None
    most = min(value.shape[-1] - 1, 3)
    amounts = (pick.integer(0, most), pick.integer(0, most))
    return Arguments((value,), {"amounts": amounts, "mode": pick.one_of(("reflect", "replicate", "circular"))})


def _repeat(pick: Picker) -> Arguments:
    value = _some(pick)
    return Arguments((value,), {"counts": tuple(pick.integer(1, 3) for _ in range(max(value.rank, 1)))})


def _flip(pick: Picker) -> Arguments:
    value = _some(pick, 1)
    return Arguments((value,), {"dims": pick.dims(value)})


def _roll(pick: Picker) -> Arguments:
    value = _some(pick, 1)
    return Arguments((value,), {"by": pick.integer(-3, 3), "dim": pick.integer(0, value.rank - 1)})


def _chunk(pick: Picker) -> Arguments:
    value = _some(pick, 1)
    return Arguments((value,), {"count": pick.integer(2, 3), "dim": pick.dim(value), "which": pick.integer(0, 1)})


def _triangle(pick: Picker) -> Arguments:
    return Arguments((_some(pick, 2),), {"diagonal": pick.integer(-2, 2)})


def _chunk_of(a: Any, count: int, dim: int, which: int) -> Any:
    return torch.chunk(a, count, dim)[which]


def _exact(name: str, function: Callable[..., Any], pick: Callable[[Picker], Arguments | None]) -> Operation:
    return Operation(name, function, pick, "exact")


def _join(*tensors: Any, dim: int) -> Any:
    return torch.cat(tensors, dim)


def _pile(*tensors: Any, dim: int) -> Any:
    return torch.stack(tensors, dim)


def _fill_out(a: Any, amounts: Sequence[int], value: int) -> Any:
    return F.pad(a, list(amounts), value=value)


OPERATIONS = (
    _exact("reshape", lambda a, shape: torch.reshape(a, shape), _reshape),
    _exact("flatten", lambda a, dim: torch.flatten(a, dim), _one_dim()),
    _exact("permute", lambda a, order: torch.permute(a, order), _permute),
    _exact("transpose", lambda a, first, second: torch.transpose(a, first, second), _two_dims),
    _exact("contiguous_transpose", lambda a, first, second: a.transpose(first, second).contiguous(), _two_dims),
    _exact("slice", slice_, _slice),
    _exact("select", lambda a, dim, index: torch.select(a, dim, index), _select),
    _exact("squeeze", lambda a, dim: torch.squeeze(a, dim), _one_dim()),
    _exact("unsqueeze", lambda a, dim: torch.unsqueeze(a, dim), _unsqueeze),
    _exact("expand", lambda a, shape: a.expand(shape), _expand),
    _exact("cat", _join, _cat),
    _exact("stack", _pile, _stack),
    _exact("pad", _fill_out, _pad),
    _exact("pad_mirrored", lambda a, amounts, mode: F.pad(a, list(amounts), mode=mode), _mirror),
    _exact("repeat", lambda a, counts: a.repeat(counts), _repeat),
    _exact("repeat_interleave", lambda a, dim: torch.repeat_interleave(a, 2, dim), _one_dim()),
    _exact("flip", lambda a, dims: torch.flip(a, dims), _flip),
    _exact("roll", lambda a, by, dim: torch.roll(a, by, dim), _roll),
    _exact("chunk", _chunk_of, _chunk),
    _exact("tril", lambda a, diagonal: torch.tril(a, diagonal), _triangle),
    _exact("triu", lambda a, diagonal: torch.triu(a, diagonal), _triangle),
    _exact("diagonal", lambda a, diagonal: torch.diagonal(a, diagonal), _triangle),
    _exact("unfold", lambda a, dim: a.unfold(dim, 1, 2), _one_dim()),
)
