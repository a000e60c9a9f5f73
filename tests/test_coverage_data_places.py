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


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex64])
def test_a_row_at_a_place_that_data_say(dtype):
    x = (torch.arange(9).reshape(3, 3) % 4).to(dtype)
    model = Places()
    compiled = ms.compile(model, (x, torch.tensor(1)))
    for place in (0, 2, -1, -3):
        torch.testing.assert_close(compiled(x, torch.tensor(place)), model(x, torch.tensor(place)))
    if dtype == torch.float32:
        for place in (3, -4, 2**40):
            with pytest.raises(RuntimeCheckError, match="index out of range"):
                compiled(x, torch.tensor(place))
