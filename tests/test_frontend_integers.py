"""Integer decompositions: equal to eager bit by bit, and free of the 8-bit ops on which the conversion to linalg crashes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.table import decomposition_table
from mlirstack.frontend.export import export
from mlirstack.pipeline.observers import LevelCheck
from mlirstack.pipeline.runner import Runner
from mlirstack.pipeline.stage import Pipeline
from mlirstack.pipelines.frontend import frontend_stages

CASES = {
    "add": lambda x: (x + 200 % 128, x + x, torch.add(x, x, alpha=2)),
    "sub": lambda x: (x - 3, 3 - x, x - x.flip(0)),
    "mul": lambda x: (x * 3, x * x),
    "divide": lambda x: (x // 3, torch.div(x, 3, rounding_mode="trunc"), x // (x * 0 + 2)),
    "remainder": lambda x: (x % 3, torch.fmod(x, 3), x % (x * 0 - 2)),
    "numbers of another size": lambda x: (x // -3, x % -3, x // 300 if x.element_size() > 1 else x // 200),
    "bits": lambda x: (x & 5, x | 5, x ^ 5),
    "power": lambda x: (x**2, x**7, x.square()),
    "extremes": lambda x: (x.max(), x.min(), x.amax(0), x.max(1)),
    "matrix product": lambda x: (x @ x, torch.bmm(x[None], x[None])),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "made here": lambda x: (x + torch.arange(6, dtype=x.dtype), x + torch.full((6,), 7, dtype=x.dtype)),
    "any": lambda x: (x.any(), x.any(0)),
    "wider partner": lambda x: (x + torch.ones(6, dtype=torch.int64), x * torch.ones((), dtype=torch.int32)),
}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def numbers(dtype):
    info = torch.iinfo(dtype)
    torch.manual_seed(0)
    low, high = max(info.min, -1000), min(info.max, 1000)
    return torch.randint(low, high + 1, (6, 6)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_equal_to_eager(name, dtype):
    model, x = Function(CASES[name]), numbers(dtype)
    decomposed = torch.export.export(model, (x,)).run_decompositions(decomposition_table())
    found = pytree.tree_leaves(decomposed.module(check_guards=False)(x))
    for a, b in zip(found, pytree.tree_leaves(model(x)), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.portable
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_lowered_to_linalg_without_a_crash(name, dtype):
    program = export(Function(CASES[name]), (numbers(dtype),))
    Runner([LevelCheck()]).run(Pipeline("front", frontend_stages("linalg", "fx")), program.payload)
