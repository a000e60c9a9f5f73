"""Programs of others' suites that once got another answer than eager's or none, each as the kind that it is of."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mlirstack
from mlirstack.frontend.decompositions.table import decomposition_table
from mlirstack.frontend.export import export
from mlirstack.frontend.routes import choose_route


class Ranges(nn.Module):
    def forward(self, x, y, z):
        return torch.arange(1, 13, out=x), torch.linspace(0, 1, 6, out=y), torch.arange(5, out=z)


@pytest.mark.portable
def test_a_range_keeps_the_shape_of_the_tensor_it_is_written_into():
    def inputs():
        return torch.zeros(3, 4, dtype=torch.int64), torch.zeros(2, 1, 3), torch.zeros(5)

    ours, eager = inputs(), inputs()
    found = mlirstack.compile(Ranges(), inputs(), target="cpu")(*ours)
    for got, wanted in zip((*found, *ours), (*Ranges()(*eager), *eager), strict=True):
        torch.testing.assert_close(got, wanted)


class Normalized(nn.Module):
    def forward(self, x, weight, bias):
        return (
            torch.instance_norm(x, weight, bias, None, None, True, 0.0, 1e-5, False),
            *torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, 1e-5),
            torch.nn.functional.batch_norm(x, None, None, training=True),
        )


@pytest.mark.parametrize(("dtype", "weights"), [(torch.float16, torch.float16), (torch.float16, torch.float32)])
def test_statistics_of_a_batch_are_as_rounded_as_the_weights(dtype, weights):
    torch.manual_seed(0)
    x = torch.rand(2, 8, 4096).to(dtype)
    inputs = (x, torch.rand(8).to(weights), torch.rand(8).to(weights))
    decomposed = (
        torch.export.export(Normalized(), inputs).run_decompositions(decomposition_table()).module(check_guards=False)
    )
    for got, wanted in zip(decomposed(*inputs), Normalized()(*inputs), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-7)


class DrawsNothing(nn.Module):
    def forward(self, x):
        return torch.nn.functional.rrelu(x, 0.1, 0.3, training=False), torch.native_dropout(x, 0.5, False)[0]


@pytest.mark.parametrize("allowed", [False, True])
def test_random_ops_outside_of_training_draw_nothing(allowed):
    x = torch.linspace(-2, 2, 9)
    program = export(DrawsNothing(), (x,), allow_random=allowed)
    assert program.payload.random_ops == () and choose_route(program).name == "tosa"
    for got, wanted in zip(program.payload.module(x), DrawsNothing()(x), strict=True):
        torch.testing.assert_close(got, wanted)


class MaskAndNumbers(nn.Module):
    def forward(self, x, index, mask, values):
        written = torch.ops.aten.index_put(x, [index, mask], values)
        return written, torch.ops.aten.index_put(x.reshape(5, 5, 1), [index, mask.reshape(5, 1)], values, True)


@pytest.mark.target
@pytest.mark.parametrize("route", ["auto", "tosa"])
def test_a_mask_among_integer_indices(route):
    mask = torch.tensor([True, False, True, True, False])
    inputs = (torch.rand(5, 5), torch.tensor([0, 2, 4]), mask, torch.rand(3))
    program = mlirstack.compile(MaskAndNumbers(), inputs, target="cpu", route=route)
    one = torch.tensor([False, False, False, True, False])
    for given in (mask, one):
        again = (*inputs[:2], given, inputs[3])
        for got, wanted in zip(program(*again), MaskAndNumbers()(*again), strict=True):
            assert torch.equal(got, wanted)
