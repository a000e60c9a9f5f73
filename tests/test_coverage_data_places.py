"""Places that data say: read and written as eager does, counted from the end as well, and checked when the program runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.errors import RuntimeCheckError


class Places(nn.Module):
    def forward(self, x, index):
        place = index.item()
        written = x.clone()
        written[place] = x[0] * 2
        written.select(1, place).add_(1)
        return x[place], x[index], x.select(-1, place), written


class Stretch(nn.Module):
    def forward(self, x, index):
        return x.narrow(1, index.item(), 2) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex64])
def test_a_row_at_a_place_that_data_say(dtype):
    x = (torch.arange(9).reshape(3, 3) % 4).to(dtype)
    model = Places()
    compiled = ms.compile(model, (x, torch.tensor(1)))
    for place in (0, 2, -1, -3):
        torch.testing.assert_close(compiled(x, torch.tensor(place)), model(x, torch.tensor(place)))
    if dtype == torch.float32:
        for place in (3, -4, 2**40):
            with pytest.raises(RuntimeCheckError, match="index"):
                compiled(x, torch.tensor(place))


def test_a_stretch_at_a_place_that_data_say():
    x = torch.arange(15.0).reshape(3, 5)
    model = Stretch()
    compiled = ms.compile(model, (x, torch.tensor(1)))
    for place in (0, 3, -2, -5):
        torch.testing.assert_close(compiled(x, torch.tensor(place)), model(x, torch.tensor(place)))
    for place in (4, -1, -6):
        with pytest.raises(RuntimeCheckError, match="index"):
            compiled(x, torch.tensor(place))


class Slices(nn.Module):
    def forward(self, x, place):
        start = place.item()
        return x[start:], x[:start].sum(0), *torch.tensor_split(x, place[None])


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_slices_that_begin_or_end_where_data_say(target):
    """From the end as well, and of as many rows as there are: eager cuts them to the tensor."""
    x = torch.arange(15.0).reshape(5, 3)
    compiled = ms.compile(Slices(), (x, torch.tensor(1)), target=target)
    for place in (0, 2, 5, 9, -1, -5, -9):
        torch.testing.assert_close(compiled(x, torch.tensor(place)), Slices()(x, torch.tensor(place)))


class Masked(nn.Module):
    def forward(self, x, rows):
        several = torch.masked_select(x, rows[:, None])
        return x[rows], x[x > 0] * 2, x.mT[:, rows], x[rows][:, x[0] > 0], several, x[x > 100], x[x > 0].sum()


def test_what_masks_pick():
    model = Masked()
    compiled = ms.compile(model, (torch.randn(4, 3), torch.tensor([True, False, True, True])))
    for seed, rows in enumerate(([True, True, True, True], [False, False, False, False], [False, True, False, True])):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        given = x, torch.tensor(rows)
        torch.testing.assert_close(compiled(*given), model(*given))


def test_masks_of_several_dimensions_of_any_size():
    def model(x, y):
        return x[x > 0], y[:, y[0] > 0], torch.masked_select(x, x[:1] > 0)

    class Picks(nn.Module):
        forward = staticmethod(model)

    rows = torch.export.Dim("rows", min=2)
    compiled = ms.compile(Picks(), (torch.randn(4, 3), torch.randn(2, 3, 4)), dynamic_shapes=({0: rows}, None))
    for count in (2, 5, 33):
        given = torch.randn(count, 3), torch.randn(2, 3, 4)
        torch.testing.assert_close(compiled(*given), model(*given))
