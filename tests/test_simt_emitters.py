"""Kernels of each emitter on small and odd sizes: lowered from torch, executed by the SIMT emulator, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from simt.models import run_model
from torch import Tensor, nn
from torch.nn import functional

import mlirstack as ms
from mlirstack import api
from mlirstack.bindings import ir
from mlirstack.ir.ops import walk

pytestmark = pytest.mark.portable

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
TOLERANCE = {F64: 1e-6, F32: 2e-6, F16: 1e-3, BF16: 8e-3}  # relative L2: one rounding of the result, and a margin
SIZES = (1, 7, 33, 65)


class Model(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Emulated:
    """What the emulator computed, and the schedules of the kernels that computed it."""

    results: list[Tensor]
    schedules: set[str]


def emulate(function: Callable[..., Any], *inputs: Tensor, target: str = "cuda:sm_90a") -> Emulated:
    """Lower ``function`` and execute its kernels."""
    lowering = ms.lower(Model(function).eval(), inputs, target=target, to="gpu")
    kernels = [op for op in walk(lowering.payload) if op.name == "gpu.func"]
    schedules = {str(ir.StringAttr(kernel.attributes["mlirstack.schedule"]).value) for kernel in kernels}
    return Emulated(run_model(lowering, inputs), schedules)


def check(function: Callable[..., Any], *inputs: Tensor, schedule: str, target: str = "cuda:sm_90a") -> None:
    """Assert that a kernel of ``schedule`` computes what eager computes in float64, up to a rounding of the result."""
    emulated = emulate(function, *inputs, target=target)
    wide = [value.double() if value.is_floating_point() else value for value in inputs]
    expected, rounded = function(*wide), function(*inputs)
    expected, rounded = ([v] if isinstance(v, Tensor) else list(v) for v in (expected, rounded))
    for result, exact, eager in zip(emulated.results, expected, rounded, strict=True):
        assert result.shape == eager.shape
        assert result.dtype == eager.dtype
        if eager.is_floating_point():
            error = float((result.double() - exact).norm() / exact.norm().clamp_min(1e-30))
            assert error < TOLERANCE[eager.dtype], f"relative error {error:.1e}"
        else:
            assert torch.equal(result, eager)
    assert schedule in emulated.schedules, f"kernels are of {sorted(emulated.schedules)}"


def random(*shape: int, dtype: torch.dtype = F32, seed: int = 0) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def integers(*shape: int, dtype: torch.dtype = torch.int64, high: int = 100) -> Tensor:
    """Evenly distributed numbers from ``-high`` on (0 for unsigned ones)."""
    low = 0 if dtype in (torch.uint8, torch.bool) else -high
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


# ------------------------------------------------------------------------------------------------------------ elementwise


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
@pytest.mark.parametrize("size", [*SIZES, 1000])
def test_elementwise_chain(size: int, dtype: torch.dtype) -> None:
    check(
        lambda x, y: torch.relu(x * 2 + y) - x,
        random(size, dtype=dtype),
        random(size, dtype=dtype, seed=1),
        schedule="elementwise",
    )


@pytest.mark.parametrize("shape", [(7, 33), (4, 64), (65, 3)], ids=str)
@pytest.mark.parametrize("broadcast", ["row", "column", "scalar", "both"])
def test_elementwise_broadcasts(shape: tuple[int, int], broadcast: str) -> None:
    rows, columns = shape
    shapes = {"row": [(columns,)], "column": [(rows, 1)], "scalar": [()], "both": [(rows, 1), (columns,)]}[broadcast]
    others = [random(*other, seed=i + 1) for i, other in enumerate(shapes)]
    check(lambda x, *others: sum(others, x) * x, random(*shape), *others, schedule="elementwise")


def test_elementwise_with_two_results_of_different_types() -> None:
    check(lambda x: (x.half() * 2, x > 0), random(5, 77), schedule="elementwise")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool], ids=str)
def test_elementwise_integers(dtype: torch.dtype) -> None:
    function = (lambda x, y: x & ~y) if dtype == torch.bool else (lambda x, y: x * 3 - y)
    check(function, integers(67, dtype=dtype), integers(67, dtype=dtype).flip(0), schedule="elementwise")


def test_elementwise_keeps_nan_and_infinity() -> None:
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0])
    (result,) = emulate(lambda x: torch.relu(x) + torch.clamp(x, -1, 1), x).results
    torch.testing.assert_close(result, torch.relu(x) + torch.clamp(x, -1, 1), equal_nan=True)


# ------------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("length", [*SIZES, 1000])
def test_softmax(length: int, dtype: torch.dtype) -> None:
    schedule = "rows" if length > 1 else "elementwise"
    check(lambda x: torch.softmax(x, -1), random(5, length, dtype=dtype), schedule=schedule)


@pytest.mark.parametrize("length", [2, 33, 4097])
def test_layer_norm(length: int) -> None:
    check(
        lambda x, w, b: functional.layer_norm(x, (length,), w, b),
        random(3, length),
        random(length, seed=1),
        random(length, seed=2),
        schedule="rows",
    )


@pytest.mark.parametrize("length", [65, 20000])
def test_log_softmax_of_long_rows(length: int) -> None:
    check(lambda x: torch.log_softmax(x, -1), random(2, length), schedule="rows")


@pytest.mark.parametrize("reduction", ["sum", "mean", "amax", "argmax", "var", "prod", "any"])
@pytest.mark.parametrize("shape", [(3, 65), (65, 33), (1, 1000)], ids=str)
def test_reductions_of_rows(shape: tuple[int, int], reduction: str) -> None:
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda x: x.sum(-1),
        "mean": lambda x: x.mean(-1),
        "amax": lambda x: x.amax(-1),
        "argmax": lambda x: x.argmax(-1),
        "var": lambda x: x.var(-1),
        "prod": lambda x: (1 + x / 100).prod(-1),
        "any": lambda x: (x > 2.5).any(-1),
    }
    emulated = emulate(functions[reduction], random(*shape))
    (expected,) = (functions[reduction](random(*shape).double()),)
    torch.testing.assert_close(emulated.results[0].to(expected.dtype), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, (0, 2), None], ids=str)
def test_reductions_of_other_axes(axis: Any) -> None:
    x = random(5, 33, 7)
    (result,) = emulate(lambda x: x.sum(axis) if axis is not None else x.sum(), x).results
    expected = x.double().sum(axis) if axis is not None else x.double().sum()
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)


# -------------------------------------------------------------------------------------------------------------- transpose


@pytest.mark.parametrize("dtype", [F32, BF16, torch.int8], ids=str)
@pytest.mark.parametrize("shape", [(33, 65), (64, 128), (1, 70), (129, 2)], ids=str)
def test_transpose(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = integers(*shape, dtype=dtype) if dtype == torch.int8 else random(*shape, dtype=dtype)
    emulated = emulate(lambda x: x.t().contiguous(), x)
    assert torch.equal(emulated.results[0], x.t())


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)], ids=str)
def test_permutations(order: tuple[int, ...]) -> None:
    x = random(5, 34, 66)
    emulated = emulate(lambda x: (x * 2).permute(order).contiguous(), x)
    assert torch.equal(emulated.results[0], (x * 2).permute(order))


# --------------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 64, 64), (7, 33, 65), (65, 72, 136)], ids=str)
def test_products(sizes: tuple[int, int, int], dtype: torch.dtype, target: str) -> None:
    m, n, k = sizes
    a, b, bias = random(m, k, dtype=dtype), random(n, k, dtype=dtype, seed=1), random(n, dtype=dtype, seed=2)
    emulated = emulate(lambda a, b, bias: torch.relu(functional.linear(a, b, bias)), a, b, bias, target=target)
    expected = torch.relu(functional.linear(a.double(), b.double(), bias.double()))
    error = float((emulated.results[0].double() - expected).norm() / expected.norm())
    assert error < TOLERANCE[dtype]


def test_product_by_the_transform_dialect() -> None:
    a, b = random(256, 128, dtype=F16), random(128, 256, dtype=F16, seed=1)
    program = api.program_of(Model(lambda a, b: a @ b).eval(), (a, b))
    lowering = api.lower_program(program, api.LowerOptions("cuda:sm_80", to="gpu", schedule="transform"))
    (result,) = run_model(lowering, (a, b))
    expected = a.double() @ b.double()
    assert float((result.double() - expected).norm() / expected.norm()) < TOLERANCE[F16]


# ------------------------------------------------------------------------------------------------------- everything else


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"padding": 1}, {"padding": 2, "dilation": 2}, {"groups": 3}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_convolutions(options: dict[str, int], dtype: torch.dtype) -> None:
    x, w = random(2, 6, 9, 11, dtype=dtype), random(9, 6 // options.get("groups", 1), 3, 3, dtype=dtype, seed=1)
    emulated = emulate(lambda x, w: functional.conv2d(x, w, **options), x, w)
    expected = functional.conv2d(x.double(), w.double(), **options)
    error = float((emulated.results[0].double() - expected).norm() / expected.norm())
    assert error < TOLERANCE[dtype]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: torch.gather(x, 0, i[:, None].expand(-1, 33)),
        lambda x, i: x.index_add(0, i, x[:5]),
        lambda x, i: torch.cumsum(x, 0),
        lambda x, i: torch.sort(x, -1).values,
        lambda x, i: torch.cat([x, x[:3] * 2]),
        lambda x, i: functional.pad(x, (1, 2, 3, 0)),
        lambda x, i: functional.max_pool1d(x[None], 3, 2),
    ],
    ids=["index", "gather", "index_add", "cumsum", "sort", "cat", "pad", "pool"],
)
def test_what_the_general_mapping_does(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, i = random(9, 33), torch.tensor([0, 3, 8, 3, 1])
    (result,) = emulate(function, x, i).results
    torch.testing.assert_close(result, function(x, i), rtol=1e-5, atol=1e-5)
