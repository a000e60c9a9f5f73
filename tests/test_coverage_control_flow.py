"""Control flow of torch's kind on target cpu: branches, loops that end when the data says so, scan and map."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.associative_scan import associative_scan_op

import mlirstack as ms
from mlirstack.errors import UnsupportedError

HigherOrderError = torch._dynamo.exc.UncapturedHigherOrderOpError


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


class Function(nn.Module):
    """A model that is one Python function, with two buffers."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("first", torch.zeros(3))
        self.register_buffer("second", torch.ones(3))

    def forward(self, x):
        return self.function(self, x)


def branches_give_their_operands(self, x):
    return torch.cond(x.sum() > 0, lambda x: {"a": x, "b": x[:2]}, lambda x: {"a": x - 1, "b": x.view(-1)[:2] * 2}, (x,))


def branches_write(self, x):
    def grow(x):
        self.first.add_(x)
        return torch.cond(x[0] > 1, lambda x: self.second.mul_(2) + x, lambda x: x.mul_(3), (x,))

    result = torch.cond(x.sum() > 0, grow, lambda x: x.view(-1).sub_(1), (x,))
    return result, x * 1, self.first * 1


def a_loop_writes(self, x):
    y = x * 2

    def body(i, z):
        self.first.add_(1)
        y.mul_(2)
        return i + 1, z + y + self.second

    return while_loop(lambda i, z: i < 3, body, (torch.zeros((), dtype=torch.int64), x)), y, self.first + 1


@pytest.mark.parametrize("function", [branches_give_their_operands, branches_write, a_loop_writes])
def test_bodies_may_write_to_what_lies_outside_and_give_it_back(function):
    model = Function(function)
    eager = copy.deepcopy(model)
    _or_skip(function)
    compiled = ms.compile(model, (torch.ones(3),))
    with torch.no_grad():
        for start in ([2.0, 1.0, 0.5], [0.5, 1.0, 2.0], [-1.0, -2.0, -3.0]):
            ours, theirs = torch.tensor(start), torch.tensor(start)
            torch.testing.assert_close(compiled(ours), eager(theirs))
            torch.testing.assert_close(ours, theirs)
            torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))


def _or_skip(function):
    """Leave out what eager does not do in this release of torch."""
    try:
        with torch.no_grad():
            Function(function)(torch.ones(3))
    except HigherOrderError as error:
        pytest.skip(str(error).splitlines()[0])


def a_result_is_written_later(self, x):
    result = torch.cond(x.sum() > 0, lambda x: x, lambda x: x.view(-1), (x,))
    result.add_(1)
    return x * 1


def operands_share_memory(self, x):
    return torch.cond(x.sum() > 0, lambda x, y: y + x.add_(1)[:2], lambda x, y: y - 1, (x, x[:2]))


@pytest.mark.parametrize("function", [a_result_is_written_later, operands_share_memory])
def test_writes_through_memory_that_bodies_share_are_refused_with_the_line(function):
    _or_skip(function)
    with pytest.raises(UnsupportedError, match=r"(?s)test_coverage_control_flow\.py:\d+: cond: .*\.clone\(\)"):
        ms.compile(Function(function), (torch.ones(3),))


def test_a_refusal_of_torchs_tells_the_reason_and_the_line():
    def shapes_differ(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sum(), lambda x: x * 1, (x,))

    with pytest.raises(UnsupportedError, match=r"test_coverage_control_flow\.py:\d+: .* expected same dim but got 0 and 1"):
        ms.compile(Function(shapes_differ), (torch.ones(3),))


def test_bodies_may_hold_numbers_compute_nothing_and_hold_loops():
    def constants(x):
        return torch.cond(x.sum() > 0, lambda: torch.ones(3), lambda: torch.zeros(3), ())

    def loop(x):
        def body(i, y):
            return i + 1, y * torch.tensor([1.0, -0.0, 3.0]) + torch.tensor(2)

        return while_loop(lambda i, y: i < torch.tensor(2), body, (torch.tensor(0), x))[1]

    def model(self, x):
        return constants(x), torch.cond(x.sum() > 0, loop, lambda x: x - torch.tensor([[2.0]]).sum(), (x,))

    compiled = ms.compile(Function(model), (torch.ones(3),))
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(x), model(None, x))


def test_what_scan_and_map_give_may_be_of_a_dynamic_size():
    def model(self, x):
        return scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x), map_rows(lambda row: row * 2, x)

    compiled = ms.compile(
        Function(model), (torch.ones(2, 3),), dynamic_shapes={"x": {1: torch.export.Dim("n", min=2, max=9)}}
    )
    for x in (torch.randn(2, 3), torch.randn(2, 7)):
        torch.testing.assert_close(compiled(x), model(None, x))


def test_a_loop_may_carry_numbers_and_read_and_write_the_rows_that_they_name():
    def model(self, x):
        def body(i, j, y, z):
            z = z.clone()
            z[i] = x[i] * 2 + j  # whole numbers are operands and places
            return i + 1, j - i, y + x.narrow(0, i, 2).sum(0), z

        never = while_loop(lambda i, y: i > x.shape[0], lambda i, y: (i + 1, y + 1), (x.shape[0], x[0]))
        return while_loop(lambda i, j, y, z: i < 3, body, (0, 7, x[0] * 0, x * 0)), never

    compiled = ms.compile(Function(model), (torch.ones(4, 3),))
    for x in (torch.randn(4, 3), torch.randn(4, 3)):
        found, wanted = compiled(x), model(None, x)
        assert found[0][:2] == wanted[0][:2] == (3, 4)
        torch.testing.assert_close(found, wanted)


def test_an_associative_scan_combines_pairs():
    def matrices(self, x):
        return associative_scan(torch.matmul, x, 0, combine_mode="generic")

    def recurrence(self, x):
        """As mode "pointwise" captures it, which torch has for GPUs only."""
        weighted = associative_scan_op(lambda a, b, c, d: (a * c, b * c + d), (x, x + 1), ())
        return tuple(weighted)

    x = torch.randn(5, 3, 3)
    for function in (matrices, recurrence):
        torch.testing.assert_close(ms.compile(Function(function), (x,))(x), function(None, x))


def test_a_derivative_inside_of_a_model_is_refused_by_name():
    def model(self, x):
        return torch.func.grad(lambda y: y.sin().sum())(x)

    with pytest.raises(UnsupportedError, match=r"derivative by torch\.func"):
        ms.compile(Function(model), (torch.ones(3),))
