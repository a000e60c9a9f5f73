"""Models with dynamic dimensions, as users write them: one compilation, several sizes, each compared with eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import mlirstack as ms
from mlirstack.errors import UnsupportedError
from mlirstack.frontend.assumed import Assumptions


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def compiled(function, x, axes, **options):
    return ms.compile(Function(function), (x,), dynamic_shapes=({"x": axes} if axes else None), **options)


def compare(function, axes, *examples):
    found = compiled(function, examples[0], axes)
    for x in examples:
        wanted, given = function(x), found(x)
        assert type(wanted) is type(given)
        torch.testing.assert_close(given, wanted, rtol=2e-5, atol=1e-6)


ROWS = {0: Dim("rows", min=1, max=64)}
IMAGE = {2: Dim("high", min=5, max=40), 3: Dim("wide", min=5, max=40)}


def several_views_of_one_value(x):
    y = x * 2
    return y.flatten(), y.view(-1, 3), y[:, None], y[:0], x.flatten(), torch.stack([x, x], 1).flatten(0, 1)


def test_results_that_are_views_of_one_value_are_freed_once_and_written_alone():
    f = compiled(several_views_of_one_value, torch.randn(4, 3), ROWS)
    for rows in (9, 1, 4):
        x = torch.randn(rows, 3)
        found, wanted = f(x), several_views_of_one_value(x)
        torch.testing.assert_close(found, wanted)
        found[0].zero_()
        torch.testing.assert_close(found[1:], wanted[1:])
        del found  # what was freed twice ended the process here


def test_windows_of_a_size_that_varies():
    def pooled(x):
        # 9 rows and 8 columns are whole multiples of the first result; those of the next example are not.
        return F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_avg_pool2d(x, (None, 5)), F.interpolate(x, (7, 5), mode="area")

    special = torch.randn(1, 3, 13, 10)
    special[0, 0, 2, 2] = torch.inf
    compare(pooled, IMAGE, torch.randn(1, 3, 9, 8), special, torch.randn(1, 3, 5, 7))


def test_a_size_in_the_place_of_a_tensor():
    def padded(x):
        return F.pad(x, (1, 2, 3, 0), mode="reflect"), torch.arange(3) * x.shape[2] - x.shape[3], 5 - x.shape[2] + x.long()

    compare(padded, IMAGE, torch.randn(1, 3, 9, 8), torch.randn(1, 3, 5, 11))


def test_arithmetic_of_sizes():
    def scaled(x):
        rows, columns = x.shape[2:]
        numbers = x / math.sqrt(rows), x * columns**0.5, x * max(rows, 6), x + min(columns, rows), x - (rows + columns) % 3
        return *numbers, F.pad(x, (0, -columns % 4)), x.sum() / max(1, rows - 5)

    compare(scaled, IMAGE, torch.randn(1, 2, 9, 8), torch.randn(1, 2, 5, 11))


def test_what_a_decomposition_takes_for_granted_of_a_size_is_refused():
    program = torch.export.export(Function(torch.relu), (torch.randn(1, 3, 9, 8),), dynamic_shapes={"x": IMAGE})
    assumptions = Assumptions(program)
    x = next(node for node in program.graph.nodes if node.name == "x").meta["val"]
    assert x.shape[2] // 4 != 1
    assumptions.refuse()  # as in all other cases
    assert x.shape[2] % 3 == 0  # a guard on the example
    with pytest.raises(UnsupportedError, match=r"does not hold for all sizes.*\n.*Mod\(x\.shape\[2\], 3\)"):
        assumptions.refuse()


def test_sizes_that_a_model_does_not_hold_for_are_named_with_those_it_does():
    with pytest.raises(UnsupportedError) as caught:
        compiled(lambda x: x * 2 if x.shape[0] > 3 else x + 1, torch.randn(4, 3), ROWS)
    message = str(caught.value)
    assert "holds only where 4 <= x.shape[0]" in message
    assert "rows = Dim('rows', min=4, max=64)" in message


WEIGHT, MEMBERS = torch.randn(10, 4), torch.tensor([[1, 2, 2, 7], [9, 0, 3, 3], [2, 2, 2, 2]])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    def bags(x):
        flat, bounds = MEMBERS.flatten(), torch.tensor([0, 5, 5, 12])
        found = [
            F.embedding_bag(MEMBERS, x, mode=mode),
            F.embedding_bag(flat, x, bounds[:3], mode=mode),
            F.embedding_bag(flat, x, bounds, mode=mode, include_last_offset=True, padding_idx=2),
        ]
        if mode == "sum":
            weights = torch.arange(12.0).view(3, 4) - 3
            found.append(F.embedding_bag(MEMBERS, x, mode=mode, per_sample_weights=weights))
        return found

    compare(bags, None, WEIGHT)
    if mode != "sum":
        members = {0: Dim("bags", min=1, max=9), 1: Dim("length", min=2, max=9)}
        compare(lambda i: F.embedding_bag(i, WEIGHT, mode=mode), members, MEMBERS, MEMBERS[:1].repeat(1, 2))


def test_what_decompositions_of_others_get_wrong():
    labels = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3]])
    near = torch.tensor([[torch.inf, 100.0, -torch.inf, 1e-8], [1.0, 1.000001, 1.1, torch.nan], [0.0, 3e38, 5.0, 2.0]])

    def wrong(x):
        losses = [F.multilabel_margin_loss(x, labels, reduction=r) for r in ("mean", "sum", "none")]
        return (
            *losses,
            F.multilabel_margin_loss(x[0], labels[0]),
            torch.isclose(near, near.flip(1)),
            torch.isclose(near, near, equal_nan=True),
            torch.isclose(labels, labels.flip(1), atol=1.0),
        )

    compare(wrong, None, torch.randn(3, 4))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu], ids=str)
def test_dtypes_without_a_conversion_are_refused(dtype):
    with pytest.raises(UnsupportedError, match=f"no conversion to or from {str(dtype).removeprefix('torch.')}"):
        compiled(lambda x: x.to(dtype).float(), torch.randn(4), None)
