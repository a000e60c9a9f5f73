"""What only the TOSA route takes apart: scattered writes and pooling of all kinds give eager's answers there."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import mlirstack
from mlirstack.frontend.export import export
from mlirstack.frontend.graph import calls, node_source
from mlirstack.frontend.replace_nodes import replace_nodes
from mlirstack.frontend.tosa.rules import tosa_rules

torch.manual_seed(0)
IMAGE = torch.randn(2, 3, 9, 8)
IMAGE[0, 0, 2, 2] = math.nan
VOLUME = torch.randn(1, 2, 5, 6, 7)
ROWS = torch.randn(4, 5)
PLACES = torch.tensor([[0, 2, 2, 0], [3, 3, 1, 0], [2, 2, 2, 2]])


def windows(x, v):
    return (
        functional.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True),
        functional.max_pool2d(x, (2, 3), 2, 1, return_indices=True),
        functional.max_pool3d(v, 3, 2, 1, 2, ceil_mode=True),
        functional.max_pool3d(v, 2, 2, 1, return_indices=True),
        functional.avg_pool2d(x, 3, divisor_override=5),
        functional.avg_pool2d((x * 9).nan_to_num().long(), 3, 2, 1),
        functional.avg_pool3d(v, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        torch.ops.aten.max_pool2d_with_indices(x, [3], [], [1], [2])[0],
        torch.ops.aten.avg_pool2d(x, [3], [2], [1], divisor_override=4),
        functional.max_pool3d(v, 2, 2, dilation=2),
        functional.adaptive_max_pool2d(x, (4, 3)),
        functional.adaptive_max_pool2d(x, (4, 3), return_indices=True),
        functional.adaptive_avg_pool3d(v, (2, 3, 4)),
    )


def scatters(x, at):
    values = x[:3, :4]
    reductions = [
        x.scatter_reduce(1, at, values, reduce, include_self=included)
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for included in (True, False)
    ]
    twice = torch.tensor([1, -1, 1])
    return (
        *reductions,
        x.scatter_add(0, at, values),
        (x * 100).long().scatter_reduce(0, at, (values * 100).long(), "mean"),
        x.scatter(0, torch.tensor([[3, 0, 1, 2]]), values),
        torch.index_put(x, (twice,), x[:3], accumulate=True),
        torch.index_put(x, (twice, torch.tensor([[0], [4]])), x[0, 0], accumulate=True),
        torch.ops.aten.index_put(x, [None, torch.tensor([4, 0])], x[:, :2]),
        torch.ops.aten.index_put(x, [torch.tensor([[0], [3]]), None], x[:2, None]),
        torch.ops.aten.index_put(x.reshape(2, 2, 5), [torch.tensor([1, 0]), None, torch.tensor([2, 3])], x[:2, :2]),
    )


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _is_plain_maximum(node):
    """A pooling that TOSA has, of which no place is read: that of the numbers of NaN."""
    is_maximum = "max_pool" in str(node.target) and "adaptive" not in str(node.target)
    return is_maximum and len(node.args) < 5 and all(user.args[1] == 0 for user in node.users)


@pytest.mark.parametrize(("function", "inputs"), [(windows, (IMAGE, VOLUME)), (scatters, (ROWS, PLACES))])
def test_the_same_as_eager_with_the_users_line(function, inputs):
    program = export(Function(function), inputs)
    graph = program.payload
    before = {node.target for node in calls(graph.module)} & set(tosa_rules())
    origins = replace_nodes(graph.module, tosa_rules())
    left = [node for node in calls(graph.module) if node.target in before]
    assert before and all(_is_plain_maximum(node) for node in left)
    assert all(node_source(node).file == __file__ for node in origins)
    arguments = program.signature.arguments
    found = graph.module(*(program.parameters[a.name] if a.leaf is None else inputs[a.leaf] for a in arguments))
    for got, wanted in zip(found, pytree.tree_leaves(function(*inputs)), strict=True):
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.target
def test_through_tosa_to_the_end():
    def some(x, v, rows, at):
        pooled = functional.max_pool2d(x, 2, 2, 1, return_indices=True), functional.avg_pool3d(v, 3, 2, 1)
        return (
            *pooled,
            rows.scatter_reduce(1, at, rows[:3, :4], "mean"),
            torch.index_put(rows, (at[0],), rows, accumulate=True),
        )

    inputs = (IMAGE.nan_to_num(), VOLUME, ROWS, PLACES)
    program = mlirstack.compile(Function(some), inputs, target="cpu", route="tosa")
    for got, wanted in zip(pytree.tree_leaves(program(*inputs)), pytree.tree_leaves(some(*inputs)), strict=True):
        torch.testing.assert_close(got, wanted)


def test_large_scatters_dynamic_shapes_and_what_tosa_has_are_left_alone():
    x, index = torch.randn(3000, 4), torch.zeros(3000, 4, dtype=torch.int64)
    graph = export(Function(lambda x, index: x.scatter_add(0, index, x)), (x, index)).payload
    assert replace_nodes(graph.module, tosa_rules()) == {}
    plain = Function(
        lambda x: (functional.max_pool2d(x, 3), functional.avg_pool2d(x, (3,)), functional.adaptive_max_pool2d(x, 1))
    )
    assert replace_nodes(export(plain, (IMAGE,)).payload.module, tosa_rules()) == {}
    pool = Function(lambda x: functional.max_pool2d(x, 3, 2, 1, 2))
    rows = torch.export.Dim("rows", min=8, max=64)
    graph = export(pool, (IMAGE,), dynamic_shapes={"inputs": ({2: rows},)}).payload
    assert replace_nodes(graph.module, tosa_rules()) == {}
