"""Control flow of torch's kind on target cpu: branches, loops that end when the data says so, scan and map."""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop

import mlirstack as ms


class Branches(nn.Module):
    def forward(self, x):
        def grow(x):
            return x + 1, x.sum()

        def shrink(x):
            return torch.cond(x[0] < -5, lambda x: x * 0, lambda x: x - 1, (x,)), x.prod()

        return torch.cond(x.sum() > 0, grow, shrink, (x,))


class Loops(nn.Module):
    """The first condition is constant and true; the second depends on a tensor that the body only reads."""

    def forward(self, x, limit):
        counted = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + x), (torch.tensor(0), x + 0))
        return counted, while_loop(lambda y: y.sum() < limit, lambda y: (y * 2,), (x + 0,))


class Steps(nn.Module):
    def forward(self, x):
        running = scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), x)
        return running, map_rows(lambda row, y: row.sin() + y, x, torch.ones(4))


def test_both_branches_of_a_condition_are_compiled_and_may_hold_others():
    model = Branches()
    compiled = ms.compile(model, (torch.ones(3),))
    assert compiled.route == "linalg"
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([-6.0, 1.0, 2.0])):
        for found, wanted in zip(compiled(x), model(x), strict=True):
            assert torch.equal(found, wanted)


def test_a_loop_runs_as_often_as_its_condition_says():
    model, x = Loops(), torch.tensor([1.0, 2.0])
    compiled = ms.compile(model, (x, torch.tensor(10.0)))
    for limit in (1.0, 10.0, 1000.0):
        (count, counted), (doubled,) = compiled(x, torch.tensor(limit))
        assert (count.item(), counted.tolist()) == (3, [4.0, 8.0])
        assert torch.equal(doubled, model(x, torch.tensor(limit))[1][0])


def test_scan_hands_its_state_on_and_map_goes_over_rows():
    model, x = Steps(), torch.arange(12.0).reshape(3, 4)
    (state, rows), mapped = ms.compile(model, (x,))(x)
    assert state.tolist() == x.sum(0).tolist()
    assert torch.equal(rows, torch.stack([torch.zeros(4), x[0] * x[1], (x[0] + x[1]) * x[2]]))
    torch.testing.assert_close(mapped, model(x)[1], rtol=1e-5, atol=1e-6)
