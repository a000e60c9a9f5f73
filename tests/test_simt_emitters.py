"""Kernels of each emitter on small and odd sizes: lowered from torch, executed by the SIMT emulator, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from simt import run_plan
from simt.models import run_model
from torch import Tensor
from torch.nn import functional

import mlirstack as ms
from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions, walk
from mlirstack.lowering import LowerOptions, lower_program, program_of
from mlirstack.passes.cuda.map_kernels import MapKernels
from mlirstack.schedules.cuda.device import device_of
from mlirstack.schedules.cuda.emitter import GENERAL, Choice, choice_of, emitter_named
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.kernel import SCHEDULE
from mlirstack.zoo.recipe import Operation

pytestmark = pytest.mark.portable

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
TOLERANCE = {F64: 1e-6, F32: 2e-6, F16: 1e-3, BF16: 8e-3}  # relative L2: one rounding of the result, and a margin
SIZES = (1, 7, 33, 65)


@dataclass(frozen=True)
class Emulated:
    """What the emulator computed, and the schedules of the kernels that computed it."""

    results: list[Tensor]
    schedules: set[str]


def emulate(function: Callable[..., Any], *inputs: Tensor, target: str = "cuda:sm_90a") -> Emulated:
    """Lower ``function`` and execute its kernels."""
    lowering = ms.lower(Operation(function).eval(), inputs, target=target, to="gpu")
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


@pytest.mark.parametrize(("size", "dtype"), [*((s, F32) for s in SIZES), (1000, F64), (65, F16), (1000, BF16)], ids=str)
def test_elementwise_chain(size: int, dtype: torch.dtype) -> None:
    check(
        lambda x, y: torch.relu(x * 2 + y) - x,
        random(size, dtype=dtype),
        random(size, dtype=dtype, seed=1),
        schedule="elementwise",
    )


@pytest.mark.parametrize("shape", [(7, 33), (4, 64)], ids=str)
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


@pytest.mark.parametrize(("length", "dtype"), [*((s, F32) for s in SIZES), (33, F16), (1000, BF16)], ids=str)
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
@pytest.mark.parametrize("shape", [(65, 33), (1, 1000)], ids=str)
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
    program = program_of(Operation(lambda a, b: a @ b).eval(), (a, b))
    lowering = lower_program(program, LowerOptions("cuda:sm_80", to="gpu", schedule="transform"))
    assert f"mlirstack.flops = {2 * 256 * 256 * 128} : i64" in lowering["gpu"].text  # for the kernel table
    (result,) = run_model(lowering, (a, b))
    expected = a.double() @ b.double()
    assert float((result.double() - expected).norm() / expected.norm()) < TOLERANCE[F16]


# ------------------------------------------------------------------------------------------------------- everything else


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"padding": 1}, {"padding": 2, "dilation": 2}, {"groups": 3}],
    ids=str,
)
def test_convolutions(options: dict[str, int]) -> None:
    x, w = random(2, 6, 9, 11, dtype=F16), random(9, 6 // options.get("groups", 1), 3, 3, dtype=F16, seed=1)
    emulated = emulate(lambda x, w: functional.conv2d(x, w, **options), x, w)
    expected = functional.conv2d(x.double(), w.double(), **options)
    error = float((emulated.results[0].double() - expected).norm() / expected.norm())
    assert error < TOLERANCE[F16]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: torch.gather(x, 0, i[:, None].expand(-1, 33)),
        lambda x, i: x.index_add(0, i, x[:5]),
        lambda x, i: torch.cumsum(x, 0),
        lambda x, i: torch.cat([x, x[:3] * 2]),
        lambda x, i: functional.pad(x, (1, 2, 3, 0)),
        lambda x, i: functional.max_pool1d(x[None], 3, 2),
    ],
    ids=["index", "gather", "index_add", "cumsum", "cat", "pad", "pool"],
)
def test_what_the_general_mapping_does(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, i = random(9, 33), torch.tensor([0, 3, 8, 3, 1])
    (result,) = emulate(function, x, i).results
    torch.testing.assert_close(result, function(x, i), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------------------- schedules that are not the best one


@dataclass(frozen=True)
class Problem:
    """A function and the shapes of its inputs, for which an emitter has several candidates."""

    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = F32


PROBLEMS = {
    "elementwise": Problem(lambda x, y: torch.relu(x * 2 + y), ((33, 65), (65,))),
    "rows": Problem(lambda x: torch.softmax(x, -1), ((3, 1001),), BF16),
    "layer_norm": Problem(lambda x, w: functional.layer_norm(x, (515,), w, w), ((5, 515), (515,))),
    "transpose": Problem(lambda x: x.t().contiguous(), ((67, 131),)),
    "product": Problem(lambda a, b, c: torch.relu(a @ b + c), ((130, 72), (72, 264), (264,)), F16),
    "product_odd": Problem(lambda a, b: a @ b, ((33, 47), (47, 35)), F16),
    "product_f32": Problem(lambda a, b: a @ b, ((70, 50), (50, 66))),
    "batch": Problem(lambda a, b: a @ b, ((3, 40, 64), (3, 64, 72)), BF16),
    "one_row": Problem(lambda a, b: a @ b.t(), ((1, 512), (264, 512)), BF16),
    "few_rows": Problem(lambda a, b: a @ b.t(), ((16, 512), (264, 512)), BF16),
    "convolution": Problem(lambda x, w: functional.conv2d(x, w, padding=1), ((2, 8, 9, 11), (16, 8, 3, 3)), F16),
    "attention": Problem(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), ((1, 2, 70, 64),) * 3, BF16
    ),
}


def candidates(module: Any, arch: str) -> list[tuple[int, Choice]]:
    """Every candidate of every kernel function that has an emitter: position of the function, choice."""
    found = []
    for position, kernel in enumerate(_kernels(module)):
        name = choice_of(kernel).name
        if name != GENERAL:
            sets = emitter_named(name).candidates(KernelGraph.of(kernel), device_of(arch))
            found += [(position, Choice(name, parameters)) for parameters in sets]
    return found


def _kernels(module: Any) -> list[Any]:
    return [function for function in functions(module) if KERNEL_ATTRIBUTE in function.attributes]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_candidate(name: str, arch: str) -> None:
    problem = PROBLEMS[name]
    inputs = [random(*shape, dtype=problem.dtype, seed=seed) for seed, shape in enumerate(problem.shapes)]
    expected = problem.function(*[value.double() for value in inputs])
    lowering = ms.lower(Operation(problem.function).eval(), inputs, target=f"cuda:{arch}", to="bufferized")
    text = str(lowering.payload)
    with lowering.payload.context, ir.Location.unknown():
        for position, choice in candidates(lowering.payload, arch):
            module = ir.Module.parse(text)
            _kernels(module)[position].attributes[SCHEDULE] = choice.attribute()
            MapKernels(arch).apply(module)
            (result,) = run_plan(module, inputs)
            error = float((torch.from_numpy(result.astype("float64")) - expected).norm() / expected.norm())
            assert error < TOLERANCE[problem.dtype], f"{choice}: relative error {error:.1e}"


@pytest.mark.parametrize("element", [F32, BF16])
def test_an_operand_of_the_epilogue_that_does_not_vary_with_all_loops_of_the_rows(element: torch.dtype) -> None:
    """Heads of a group share their keys, so that their rows are one index; each head has the mask of all."""
    query, key, mask = torch.randn(2, 4, 6, 16), torch.randn(2, 6, 16), torch.randn(6, 6)
    given = tuple(tensor.to(element) for tensor in (query, key, mask))

    def scores(q: Tensor, k: Tensor, m: Tensor) -> Tensor:
        return q @ k.unsqueeze(1).transpose(-2, -1) + m

    (result,) = emulate(scores, *given).results
    expected = scores(*(tensor.double() for tensor in given))
    assert (result.double() - expected).norm() / expected.norm() < TOLERANCE[element]
