"""Tensors without dimensions, of which torch takes dimension 0 and -1 for the only one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import assert_as_eager
from torch.nn import functional as F

pytestmark = pytest.mark.portable

ZERO = torch.tensor(0)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
@pytest.mark.parametrize("number", [1.25, math.nan])
def test_a_tensor_without_dimensions_has_one_element_along_them(number: float, target: str) -> None:
    """Softmax was taken apart without end, ``index_add`` ended the process, others were refused."""
    programs: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: x.softmax(0),
        "softmax of half precision": lambda x: x.half().softmax(-1),
        "softmin": lambda x: F.softmin(x, 0),
        "log_softmax": lambda x: x.log_softmax(-1),
        "logsumexp": lambda x: x.logsumexp(0),
        "prod": lambda x: x.prod(0),
        "prod, kept": lambda x: x.prod(0, keepdim=True),
        "amax": lambda x: x.amax(0),
        "amin": lambda x: x.amin(),
        "argmin": lambda x: x.argmin(0),
        "argmax, kept": lambda x: x.argmax(0, keepdim=True),
        "any": lambda x: (x > 0).any(0),
        "all": lambda x: (x > 0).all(-1),
        "index_select": lambda x: torch.index_select(x, 0, ZERO),
        "gather": lambda x: torch.gather(x, 0, ZERO),
        "index_add": lambda x: torch.index_add(x, 0, ZERO, x * 2),
        "index_reduce": lambda x: torch.index_reduce(x, 0, ZERO, x * 2, "amax"),
        "cosine_similarity": lambda x: F.cosine_similarity(x, x * 2, 0),
    }
    for part in (0, 1):
        programs[f"max {part}"] = lambda x, part=part: torch.max(x, 0)[part]
        programs[f"min {part}"] = lambda x, part=part: torch.min(x, -1, keepdim=True)[part]
        programs[f"aminmax {part}"] = lambda x, part=part: torch.aminmax(x, dim=0)[part]
        programs[f"kthvalue {part}"] = lambda x, part=part: torch.kthvalue(x, 1, 0)[part]
    assert_as_eager(programs, torch.tensor(number), target=target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_special_functions_of_one_number(dtype: torch.dtype) -> None:
    """``digamma`` of a bfloat16 ended the process."""
    names = ("digamma", "lgamma", "erfc", "erfinv", "sinc", "tan", "expm1", "log1p")
    assert_as_eager({name: getattr(torch, name) for name in names}, torch.tensor(0.3, dtype=dtype))
    assert_as_eager({"digamma": torch.digamma}, torch.tensor([0.0, -0.0, -1.0, 2.5], dtype=dtype))


def test_truth_along_several_dimensions() -> None:
    x = torch.tensor([[[0.0, 1.0], [2.0, math.nan]], [[-0.0, 0.0], [3.0, 1.0]]])
    programs: dict[str, Callable[..., Any]] = {}
    for function in (torch.all, torch.any):
        for dims in ((0, -1), (1,), (0, 1, 2), ()):
            name = f"{function.__name__} {dims}"
            programs[name] = lambda x, f=function, d=dims: f(x, dim=d)
            programs[f"{name}, kept"] = lambda x, f=function, d=dims: f(x, dim=d, keepdim=True)
            programs[f"{name} of bytes"] = lambda x, f=function, d=dims: f(x.nan_to_num(7).byte(), dim=d)
    assert_as_eager(programs, x)
