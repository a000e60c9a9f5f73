"""Distances between rows of matrices, in every norm: close points are told apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import assert_as_eager

pytestmark = pytest.mark.portable


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_distances_of_rows(target: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 33, 5, generator=generator), torch.randn(7, 5, generator=generator)
    programs: dict[str, Callable[..., Any]] = {}
    for p in (0.0, 1.0, 1.5, 2.0, math.inf):
        programs[f"cdist {p}"] = lambda x, y, p=p: torch.cdist(x, y, p)
        programs[f"pdist {p}"] = lambda x, y, p=p: torch.pdist(y, p)
        programs[f"dist {p}"] = lambda x, y, p=p: torch.dist(y, y[0] * 2, p)
    programs["of one row"] = lambda x, y: torch.cdist(y[:1], y)
    programs["of no numbers"] = lambda x, y: torch.cdist(x[..., :0], y[:, :0])
    programs["close together"] = lambda x, y: torch.cdist(y + 100, y + 100.001, 2.0)
    assert_as_eager(programs, x, y, target=target)
