"""The table of operations: its page is written from it, a sample of it is still true, and what is called a difference."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import operators as command
import pytest
import torch
from operator_cases import CASES, EMPTY, graphs
from operator_page import PAGE, page_text

import mlirstack as ms
from mlirstack.fuzz.operations import table
from mlirstack.fuzz.values import tensor_of

SAMPLE = 5  # rows of target cpu, each of up to 16 graphs


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command.TABLE.read_text())["rows"]
    return found


def test_a_sample_of_the_table_is_still_true(rows: dict[str, Any]) -> None:
    # Other rows whenever the table changes, the same ones until then.
    seed = hashlib.sha256(command.TABLE.read_bytes()).hexdigest()
    of_cpu = {name: row for name, row in command.rows(" cpu ").items() if name in rows}
    judge = command.OperatorJudge(timeout=300)
    try:
        found = {name: judge.row(row) for name, row in command.sample(of_cpu, SAMPLE, seed).items()}
    finally:
        judge.close()
    assert len(found) == SAMPLE
    assert command.differences(rows, found) == []


OPEN = {  # docs/coverage.md says why
    *(f"{op} {dtype} iree-cpu {r}" for op in ("sign", "ceil") for dtype in ("float32", "bfloat16") for r in command.ROUTES),
    *(f"{op} {dtype} iree-cpu auto" for op in ("sin", "cos") for dtype in ("int16", "int32")),
}


@pytest.mark.portable
def test_the_page_is_written_from_the_table_and_what_is_not_right_is_refused(rows: dict[str, Any]) -> None:
    assert PAGE.read_text() == page_text(rows)
    assert {name.split()[0] for name in rows} <= set(table())
    reasons = [(name, reason) for name, row in rows.items() for reason in row.get("rest", {})]
    assert {name for name, reason in reasons if not reason.startswith("refused: ")} == OPEN


@pytest.mark.portable
def test_better_worse_and_other_graphs_than_the_table_says_are_differences() -> None:
    expected = {"add int8 cpu auto": {"graphs": 2, "rest": {"refused: no": ["scalar"]}}, "neg int8 cpu auto": {"graphs": 2}}
    found = {
        "add int8 cpu auto": {"graphs": 2, "rest": {"wrong: 3 of 4 differ": ["matrix"]}},
        "neg int8 cpu auto": {"graphs": 3},
        "abs int8 cpu auto": {"graphs": 1},
    }
    assert command.differences(expected, found) == [
        "add int8 cpu auto: scalar: unexpected pass: right, the table says refused: no",
        "add int8 cpu auto: matrix: unexpected failure: wrong: 3 of 4 differ, the table says right",
        "neg int8 cpu auto: 3 graphs, the table has 2",
        "abs int8 cpu auto: not in the table",
    ]


@pytest.mark.portable
def test_graphs_are_of_one_operation_in_the_dtype_and_layout_of_their_case() -> None:
    found = graphs("mul", "float32")
    assert set(found) == {case.name for case in CASES}
    assert all([call.op for call in graph.calls] == ["mul"] for graph in found.values())
    first = {name: tensor_of(graph.inputs[0]) for name, graph in found.items()}
    assert [first[f"rank {rank}"].dim() for rank in (3, 4, 5, 6)] == [3, 4, 5, 6]
    assert first[EMPTY].numel() == 0
    assert first["expanded"].stride(0) == 0
    assert not first["strided"].is_contiguous()
    special = first["special values"]
    assert special.isnan().any() and special.isinf().any() and (special == 0).any()


@pytest.mark.portable
@pytest.mark.parametrize(("op", "dtype"), [("bitwise_and", "float32"), ("softmax", "int32"), ("sorted", "complex64")])
def test_what_eager_does_not_take_has_no_graphs(op: str, dtype: str) -> None:
    assert graphs(op, dtype) == {}


class Finds(torch.nn.Module):
    """Operations that the table has shown to be wrong, each in the dtypes or with the numbers that it takes for that."""

    def forward(self, whole: torch.Tensor, large: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hardtanh, threshold = torch.nn.functional.hardtanh, torch.nn.functional.threshold
        return (
            *(whole / number for number in (0.5, -2.5)),
            *(hardtanh(whole, low, high) for low, high in ((-0.5, 1.5), (-1.5, 2.7))),
            *(threshold(values, 0.1, 2.0) for values in (whole, large)),
            *(threshold(values, -0.5, 100.0) for values in (whole, large)),
            -(whole.float().reshape(3, 3).T),
        )


def test_integers_with_real_numbers_are_as_eager_has_them() -> None:
    whole = torch.tensor([-100, -3, -2, -1, 0, 1, 2, 3, 100], dtype=torch.int8)
    large = torch.tensor([2**40, -(2**40), 5, 2**31 - 1, -(2**31)])
    compiled = ms.compile(Finds(), (whole, large), target="cpu", route="tosa")
    for got, eager in zip(compiled(whole, large), Finds()(whole, large), strict=True):
        torch.testing.assert_close(got, eager, rtol=1e-6, atol=0)


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 0.0, x * torch.zeros(4)


def test_products_with_zero_keep_nan_and_the_sign_of_zero() -> None:
    x = torch.tensor([torch.inf, torch.nan, -1.0, 1.0])
    compiled = ms.compile(Products(), (x,), target="cpu")
    assert compiled.route == "linalg" and "product with zero" in compiled.lowering.route_reason
    for got in compiled(x):
        assert got.isnan().tolist() == [True, True, False, False]
        assert got.signbit().tolist()[2:] == [True, False]
