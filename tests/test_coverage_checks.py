"""Checks in a model: what eager raises an error for is an error of the compiled model, and no other answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from several import Several
from torch import Tensor

import mlirstack as ms
from mlirstack.errors import RuntimeCheckError

pytestmark = pytest.mark.portable

Program = Callable[..., Tensor]
ROWS, MORE = torch.rand(4, 3) + 0.5, torch.rand(6, 3)
TWO_SIZES = ({0: torch.export.Dim("n")}, {0: torch.export.Dim("m")})


def positive_sum(x: Tensor) -> Tensor:
    torch._check(x.sum().item() > 0, lambda: "the sum is positive")
    return x * 2


def row(x: Tensor, at: Tensor) -> Tensor:
    number = at.item()
    torch._check(number >= 0)
    torch._check(number < x.shape[0] - 1)
    return x[number] * 2


def all_positive(x: Tensor) -> Tensor:
    torch._check_tensor_all(x > 0)
    return x * 2


def positive_later(x: Tensor) -> Tensor:
    torch._assert_async((x > 0).all())
    return x * 2


def no_longer(x: Tensor, y: Tensor) -> Tensor:
    torch._check(x.shape[0] <= y.shape[0])
    return x.sum(0) + y.sum(0)


def branch(x: Tensor, y: Tensor) -> Tensor:
    return x.sum(0) * 2 if x.shape[0] + 1 <= 2 * y.shape[0] else y.sum(0) - 1


def _compiled(program: Program, inputs: Sequence[Tensor], shapes: Any = None) -> Any:
    dynamic = None if shapes is None else (shapes,)
    return ms.compile(Several({"y": program}), tuple(inputs), dynamic_shapes=dynamic)


@pytest.mark.parametrize(
    ("program", "inputs", "refused", "message"),
    [
        (positive_sum, (ROWS,), [(-ROWS,)], r"0 < sum_\d*.item\(\)"),
        (row, (ROWS, torch.tensor(1)), [(ROWS, torch.tensor(3)), (ROWS, torch.tensor(-1))], r".item\(\) [<>]="),
        (all_positive, (ROWS,), [(ROWS - 1,)], "item|u"),
        (positive_later, (ROWS,), [(-ROWS,)], "item|u"),
    ],
    ids=["number", "place", "all", "async"],
)
def test_checks_of_numbers_are_kept(program: Program, inputs: Any, refused: Any, message: str) -> None:
    compiled = _compiled(program, inputs)
    torch.testing.assert_close(compiled(*inputs)["y"], program(*inputs))
    for given in refused:
        with pytest.raises(RuntimeError):
            program(*given)
        with pytest.raises(RuntimeCheckError, match=message):
            compiled(*given)


def test_checks_of_two_sizes_are_kept() -> None:
    compiled = _compiled(no_longer, (ROWS, MORE), TWO_SIZES)
    for given in ((ROWS, MORE), (ROWS, ROWS), (ROWS[:2], MORE)):
        torch.testing.assert_close(compiled(*given)["y"], no_longer(*given))
    with pytest.raises(RuntimeCheckError, match=r"shape\[0\] <= .*shape\[0\]"):
        compiled(MORE, ROWS)


def test_a_branch_on_how_two_sizes_compare_holds_for_those_alone() -> None:
    """The other branch is not in the graph: its sizes got the first one's answer."""
    compiled = _compiled(branch, (ROWS, MORE), TWO_SIZES)
    for given in ((ROWS, MORE), (MORE, ROWS)):
        torch.testing.assert_close(compiled(*given)["y"], branch(*given))
    with pytest.raises(RuntimeCheckError, match="sizes are such that"):
        compiled(torch.rand(9, 3), ROWS)
