"""Writes to places that data say: sums of half precision, places without dimensions, masks that are stretched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import Several, assert_as_eager, assert_bits_of_eager

import mlirstack as ms
from mlirstack.errors import MlirstackError

pytestmark = pytest.mark.portable


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_many_numbers_of_half_precision_are_added_in_float32(dtype: torch.dtype, target: str) -> None:
    """As eager adds them: in half precision, a sum of ones ends at 2048, or at 256."""
    x, y = torch.zeros(3, 2, dtype=dtype), torch.full((4000, 2), 1.03, dtype=dtype)
    rows = torch.arange(4000) % 3
    places = rows[:, None].expand(-1, 2).contiguous()
    programs = {
        "index_add": lambda x, y, r, p: torch.index_add(x, 0, r, y),
        "scatter_add": lambda x, y, r, p: torch.scatter_add(x, 0, p, y),
        "sum": lambda x, y, r, p: torch.scatter_reduce(x, 0, p, y, "sum"),
        "mean": lambda x, y, r, p: torch.scatter_reduce(x, 0, p, y, "mean", include_self=False),
        "product": lambda x, y, r, p: torch.scatter_reduce(x + 1, 0, p[:99], y[:99], "prod"),
        "largest": lambda x, y, r, p: torch.scatter_reduce(x, 0, p, y, "amax"),
    }
    assert_bits_of_eager(programs, x, y, rows, places, target=target)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_writes_that_torch_mlir_does_not_know(dtype: torch.dtype, target: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = ((torch.randn(*size, generator=generator) * 9).to(dtype) for size in ((5, 7), (33, 7)))
    rows, mask = torch.arange(33) % 5, torch.randn(5, 7, generator=generator) > 0
    programs = {
        "put": lambda x, y, r, m: torch.put(x, r.reshape(3, 11), y[:, 0].reshape(3, 11), accumulate=True),
        "put without sums": lambda x, y, r, m: torch.put(x, torch.tensor([-1, 9, 3]), y[0, :3]),
        "largest": lambda x, y, r, m: torch.index_reduce(x, 0, r, y, "amax"),
        "mean": lambda x, y, r, m: torch.index_reduce(x, 0, r[:-1], y[:-1], "mean", include_self=False),
        "mean with what is there": lambda x, y, r, m: torch.scatter_reduce(x, 0, r[:, None].expand(33, 7), y, "mean"),
        "product": lambda x, y, r, m: torch.index_reduce(x.mT, 1, r[:10], y[:10].mT, "prod", include_self=False),
        "added": lambda x, y, r, m: torch.scatter(x, 0, r[:, None].expand(33, 7), y, reduce="add"),
        "multiplied by a number": lambda x, y, r, m: torch.scatter(x, 0, r[:3, None], 2, reduce="multiply"),
        "under a mask, stretched": lambda x, y, r, m: torch.masked_scatter(x[0], m, y),
        "under a stretched mask": lambda x, y, r, m: torch.masked_scatter(x, m[:1], y),
    }
    assert_as_eager(programs, x, y, rows, mask, target=target)


def test_views_that_are_copies() -> None:
    programs = {
        "as_strided": lambda x: torch.as_strided_copy(x, (3, 2), (1, 3), 1),
        "narrow": lambda x: torch.narrow_copy(x, 1, 2, 3),
        "permute": lambda x: torch.permute_copy(x, (1, 0)),
        "view": lambda x: torch.view_copy(x, (7, 5)),
    }
    assert_bits_of_eager(programs, torch.arange(35.0).reshape(5, 7))


ROWS = torch.arange(35.0).reshape(5, 7)
# Writes to places along dimension 0; eager counts those of some from the end.
FROM_THE_END: dict[str, Callable[..., Any]] = {
    "index_put": lambda x, i, v: torch.index_put(x, (i,), v[:, None]),
    "index_put, flat": lambda x, i, v: torch.index_put(x.reshape(-1), (i,), v),
    "index_put, pairs": lambda x, i, v: torch.index_put(x, (i, i), v),
    "index_put, sums": lambda x, i, v: torch.index_put(x, (i, i), v, accumulate=True),
    "index_fill": lambda x, i, v: torch.index_fill(x, 0, i, 3.0),
    "assignment": lambda x, i, v: x.clone().index_put_((i,), v[:, None]),
}
FROM_THE_FRONT: dict[str, Callable[..., Any]] = {
    "scatter": lambda x, i, v: torch.scatter(x, 0, i[:, None], v[:, None]),
    "scatter of a number": lambda x, i, v: torch.scatter(x, -2, i[:, None], 2.0),
    "scatter_add": lambda x, i, v: torch.scatter_add(x, 0, i[:, None], v[:, None]),
    "scatter_reduce": lambda x, i, v: torch.scatter_reduce(x, 0, i[:, None], v[:, None], "amax"),
    "index_add": lambda x, i, v: torch.index_add(x, 0, i, x[:3]),
    "index_copy": lambda x, i, v: torch.index_copy(x, 0, i, x[:3] * 2),
}


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_places_may_be_counted_from_the_end(target: str) -> None:
    """Memory before the tensor was written to."""
    inputs = ROWS, torch.tensor([-1, 2, -5]), torch.tensor([1.0, 2.0, 3.0])
    assert_bits_of_eager(FROM_THE_END, *inputs, target=target)
    known = {
        name: lambda x, i, v, program=program: program(x, torch.tensor([-1, 2, -5]), v)
        for name, program in FROM_THE_END.items()
    }
    assert_bits_of_eager(known, *inputs, target=target)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
@pytest.mark.parametrize("name", [*FROM_THE_END, *FROM_THE_FRONT])
def test_a_place_that_is_not_there_is_an_error(name: str, target: str) -> None:
    program = {**FROM_THE_END, **FROM_THE_FRONT}[name]
    values = torch.tensor([1.0, 2.0, 3.0])
    function = ms.compile(Several({name: program}), (ROWS, torch.tensor([4, 0, 1]), values), target=target)
    assert torch.equal(function(ROWS, torch.tensor([4, 0, 1]), values)[name], program(ROWS, torch.tensor([4, 0, 1]), values))
    last = 34 if "flat" in name else 4
    for place in (last + 1, -last - 2, 2**40, *([-1] if name in FROM_THE_FRONT else [])):
        with pytest.raises(MlirstackError, match="out of range"):
            function(ROWS, torch.tensor([0, place, 1]), values)
