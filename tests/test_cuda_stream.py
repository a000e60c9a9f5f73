"""Bandwidth-bound kernels: who takes what, every variant against eager in the emulator, what the assembler makes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from simt.memory import Memory
from simt.models import run_model
from torch import nn

from mlirstack import lower
from mlirstack.ir.ops import functions
from mlirstack.ir.text import clone_module
from mlirstack.lowering import Lowering
from mlirstack.passes.cuda.cubin import assemble
from mlirstack.passes.cuda.device_code import TranslateKernels
from mlirstack.passes.cuda.map_kernels import MapKernels
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.cuda.sass import sass_text
from mlirstack.pipeline.runner import run_steps
from mlirstack.schedules.cuda.device import device_of
from mlirstack.schedules.cuda.emitter import Choice, Parameters, choice_of, emitter_named
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.kernel import SCHEDULE
from mlirstack.zoo.recipe import Operation

ARCH = "sm_90a"
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3, torch.float64: 1e-12}  # relative L2


def random(*shape: int, dtype: torch.dtype = torch.float32, few: bool = False) -> torch.Tensor:
    """Random numbers; ``few`` different ones, so that there are ties."""
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    values = torch.randn(shape, generator=generator)
    return ((values * 2).round() if few else values * 20 if not dtype.is_floating_point else values).to(dtype)


def lowered(model: Callable[..., Any], *inputs: torch.Tensor, to: str = "gpu") -> Lowering:
    """The lowering of a model, or of a function."""
    module = model if isinstance(model, nn.Module) else Operation(model)
    return lower(module, inputs, target=f"cuda:{ARCH}", to=to, name="model")


def schedules(lowering: Lowering) -> list[str]:
    """Emitters of the kernels, in order, while they are functions."""
    return re.findall(r'mlirstack.schedule = \{[^}]*name = "(\w+)"', lowering["dispatches"].text)


def assert_equal_to_eager(lowering: Lowering, model: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Run the kernels in the emulator and compare with eager in float64 (in the model's dtype where it is an integer)."""
    wanted = model(*inputs)
    exact = (
        model(*(x.double() if x.is_floating_point() else x for x in inputs)) if not isinstance(model, nn.Module) else wanted
    )
    for got, reference, precise in zip(run_model(lowering, inputs), *map(_tuple, (wanted, exact)), strict=True):
        assert (got.dtype, got.shape) == (reference.dtype, reference.shape)
        if not got.dtype.is_floating_point:
            assert torch.equal(got, reference)
            continue
        usual = torch.isfinite(precise.double())
        assert torch.equal(got[~usual].nan_to_num(nan=7.0), reference[~usual].nan_to_num(nan=7.0))
        error = (got.double() - precise.double())[usual].norm() / precise.double()[usual].norm().clamp(min=1e-30)
        assert error < TOLERANCE[got.dtype]


def _tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    low, high = x.chunk(2, -1)
    return x * angles + torch.cat((-high, low), -1) * (1 - angles)


# ------------------------------------------------------------------------------------------------------------ right answers

BF16, F16, F64, I8, I64, BOOL = torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool
CASES: dict[str, tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "relu of an odd number of elements": ("elementwise", torch.relu, (random(33, 1025),)),
    "one element": ("elementwise", lambda x: torch.where(x > 0, x, 0.1 * x), (random(1),)),
    "a row for all rows": ("elementwise", torch.add, (random(33, 128), random(128))),
    "a column for all columns": ("elementwise", lambda x, y: x * y + 1, (random(33, 1025), random(33, 1))),
    "broadcasts along all dimensions": (
        "elementwise", lambda a, b, c: a * b + c, (random(5, 12, 8), random(5, 1, 8), random(12, 1)),
    ),
    "a zero-dimensional tensor": ("elementwise", torch.mul, (random(7, 33), random())),
    "f32 bias of bf16": ("elementwise", torch.add, (random(16, 64, dtype=BF16), random(64))),
    "silu in f16": ("elementwise", lambda x, y: F.silu(x) * y, (random(9, 64, dtype=F16), random(9, 64, dtype=F16))),
    "gelu in bf16": ("elementwise", F.gelu, (random(7, 33, dtype=BF16),)),
    "booleans": ("elementwise", lambda x, y: (x > 0) & (y < 0.5), (random(33, 25), random(33, 25))),
    "narrowing": ("elementwise", lambda x: x.to(torch.int8), (random(5, 31, dtype=I64),)),
    "doubles": ("elementwise", lambda x: x * x, (random(5, 31, dtype=F64),)),
    "rows of an embedding": ("elementwise", nn.Embedding(50, 24, dtype=BF16), (torch.arange(21).reshape(3, 7) * 2 % 50,)),
    "odd rows of an embedding": ("elementwise", nn.Embedding(9, 13), (torch.tensor([0, 8, 3]),)),
    "rotated halves": ("elementwise", rotated, (random(5, 3, 32, dtype=BF16), random(3, 32, dtype=BF16))),
    "rotated halves, odd": ("elementwise", rotated, (random(5, 3, 14), random(3, 14))),
    "heads change places": ("elementwise", lambda x: x.transpose(1, 2).contiguous(), (random(2, 5, 3, 8),)),
    "transposed f32": ("transpose", lambda x: x.t().contiguous(), (random(100, 36),)),
    "transposed bf16, odd": ("transpose", lambda x: x.t().contiguous(), (random(17, 1025, dtype=BF16),)),
    "transposed bytes": ("transpose", lambda x: x.t().contiguous(), (random(64, 64, dtype=I8),)),
    "transposed booleans": ("transpose", lambda x: x.t().contiguous(), (random(33, 70) > 0,)),
    "transposed doubles": ("transpose", lambda x: x.t().contiguous(), (random(33, 70, dtype=F64),)),
    "channels last": ("transpose", lambda x: x.permute(0, 2, 3, 1).contiguous(), (random(2, 24, 5, 8),)),
    "two transposed inputs": (
        "transpose", lambda x, y: (x.t() * y.t() - 1).contiguous(), (random(40, 72), random(40, 72, dtype=BF16)),
    ),
    "a transposed and a straight input": (
        "transpose", lambda x, y: (x.t() + y).contiguous(), (random(40, 72), random(72, 40)),
    ),
    "sums of rows": ("rows", lambda x: x.sum(-1), (random(33, 1024),)),
    "sums of f16": ("rows", lambda x: x.sum(-1), (random(33, 1024, dtype=F16),)),
    "products": ("rows", lambda x: x.prod(-1), (random(33, 20),)),
    "any": ("rows", lambda x: (x > 3.0).any(-1), (random(33, 1024),)),
    "positions of maxima, with ties": ("rows", lambda x: x.argmax(-1), (random(20, 300, few=True),)),
    "positions of minima in columns": ("rows", lambda x: x.argmin(0), (random(70, 36, few=True),)),
    "short rows": ("rows", lambda x: x.softmax(-1), (random(100, 20),)),
    "odd rows": ("rows", lambda x: x.softmax(-1), (random(9, 1025),)),
    "softmax in bf16": ("rows", lambda x: x.softmax(-1), (random(5, 4096, dtype=BF16),)),
    "rows of a cluster": ("rows", lambda x: x.softmax(-1), (random(2, 40004),)),
    "rows longer than a cluster's registers": ("rows", lambda x: x.softmax(-1), (random(2, 270001),)),
    "layer norm": ("rows", nn.LayerNorm(768), (random(10, 768),)),
    "RMS norm": ("rows", nn.RMSNorm(1000), (random(5, 1000),)),
    "columns": ("rows", lambda x: x.sum(0), (random(1000, 36),)),
    "maxima of columns": ("rows", lambda x: x.amax(0), (random(100, 36),)),
    "the middle dimension": ("rows", lambda x: x.amax(1), (random(3, 50, 36),)),
    "everything": ("rows", lambda x: x.sum(), (random(64, 1000),)),
    "several dimensions": ("rows", lambda x: x.mean((0, 2)), (random(5, 6, 40),)),
    "group norm": ("rows", nn.GroupNorm(2, 8), (random(3, 8, 6, 6),)),
    "instance norm": ("rows", nn.InstanceNorm2d(5), (random(3, 5, 7, 9),)),
    "layer norm over two dimensions": ("rows", nn.LayerNorm((5, 9)), (random(3, 5, 9),)),
    "softmax over channels": ("rows", lambda x: x.softmax(1), (random(2, 50, 36),)),
    "values and positions": ("rows", lambda x: tuple(x.max(-1)), (random(20, 300, few=True),)),
    "few long rows": ("rows", lambda x: x.sum(-1), (random(2, 300000),)),
}  # fmt: skip


@pytest.mark.portable
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_eager_computes(name: str) -> None:
    emitter, model, inputs = CASES[name]
    lowering = lowered(model, *inputs)
    assert emitter in schedules(lowering)
    assert_equal_to_eager(lowering, model, *inputs)


@pytest.mark.portable
@pytest.mark.parametrize("model", [lambda x: x.softmax(-1), lambda x: x.amax(-1), lambda x: x.sum(-1)])
def test_nan_and_infinity_pass_as_in_torch(model: Callable[..., Any]) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 2.0, 3.0], [1.0, -inf, 2.0, 3.0], [-inf] * 4, [inf, 1.0, 2.0, 3.0]])
    assert_equal_to_eager(lowered(model, x), model, x)


@pytest.fixture
def odd_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the emulator start four bytes behind multiples of 16."""
    allocate = Memory.allocate

    def allocate_behind(self: Memory, size: int, name: str, *rest: int, **more: int) -> int:
        by = 0 if name.startswith("shared memory") else 4
        return allocate(self, size + by, name, *rest, **more) + by

    monkeypatch.setattr(Memory, "allocate", allocate_behind)


@pytest.mark.portable
@pytest.mark.parametrize("name", ["relu of an odd number of elements", "layer norm", "columns", "transposed f32"])
def test_slices_that_start_anywhere(name: str, odd_addresses: None) -> None:
    _, model, inputs = CASES[name]
    assert_equal_to_eager(lowered(model, *inputs), model, *inputs)


# --------------------------------------------------------------------------------------------------------------- candidates


def kernel_functions(module: Any) -> list[Any]:
    return [function for function in functions(module) if SCHEDULE in function.attributes]


def scheduled(lowering: Lowering, choice: Choice) -> Lowering:
    """The one kernel of a lowering "to bufferized", written as a schedule says."""
    module = clone_module(lowering.payload)
    with module.context:
        (function,) = kernel_functions(module)
        function.attributes[SCHEDULE] = choice.attribute()
    run_steps((MapKernels(ARCH),), module)
    return replace(lowering, payload=module)


VARIED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "elementwise": (lambda x, y: F.silu(x) * y, (random(64, 132), random(132))),
    "transpose": (lambda x: (x.t() * 2).contiguous(), (random(68, 100),)),
    "rows": (lambda x: x.softmax(-1), (random(3, 2052),)),
    "long rows": (lambda x: x.sum(-1), (random(2, 40000),)),
    "rows of clusters": (nn.RMSNorm(16388), (random(2, 16388),)),
    "argmax": (lambda x: x.argmax(-1), (random(2, 4000, few=True),)),
    "columns": (lambda x: x.sum(0), (random(700, 68),)),
}


@pytest.mark.portable
@pytest.mark.parametrize("name", VARIED)
def test_all_candidates_are_right(name: str) -> None:
    model, inputs = VARIED[name]
    lowering = lowered(model, *inputs, to="bufferized")
    (function,) = kernel_functions(lowering.payload)
    with lowering.payload.context:
        choice = choice_of(function)
        found = emitter_named(choice.name).candidates(KernelGraph.of(function), device_of(ARCH))
    assert found[0] == choice.parameters
    assert len(found) >= 3
    for parameters in found:
        assert_equal_to_eager(scheduled(lowering, Choice(choice.name, parameters)), model, *inputs)


def shaped(mode: str, threads: int, vector: int, count: int, *, team: int = 0, cluster: int = 1, **more: Any) -> Parameters:
    """Parameters of a kernel whose teams are blocks or clusters, unless ``team`` says otherwise."""
    return {
        "mode": mode, "threads": threads, "team": team or threads * cluster, "vector": vector, "count": count,
        "splits": 1, "cluster": cluster, "stream": False, **more,
    }  # fmt: skip


def staying(*sizes: int, **more: Any) -> Parameters:
    """Blocks that stay for several rows."""
    return shaped("staying", *sizes, together=1, **more)


def several(*sizes: int, **more: Any) -> Parameters:
    """Teams that have several rows at once."""
    return shaped("resident", *sizes, **more)


SEVERAL: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[Parameters, ...]]] = {
    "blocks stay, two reductions": (
        lambda x: x.softmax(-1), (random(7, 1028),),
        (staying(128, 4, 3, stages=3, rows=4), staying(64, 4, 5, stages=2, rows=7)),
    ),
    "blocks stay, weights": (nn.RMSNorm(1000), (random(5, 1000),), (staying(128, 4, 2, stages=2, rows=3),)),
    "blocks stay, weights of a row's group": (
        nn.GroupNorm(2, 8), (random(3, 8, 6, 6),), (staying(64, 4, 1, stages=3, rows=3),),
    ),
    "clusters stay": (
        nn.LayerNorm(1024, dtype=BF16), (random(6, 1024, dtype=BF16),), (staying(64, 8, 1, cluster=2, stages=2, rows=4),),
    ),
    "blocks stay, two inputs of other types": (
        lambda x, y: F.layer_norm(x + y.float(), (512,)), (random(5, 512), random(5, 512, dtype=BF16)),
        (staying(64, 4, 2, stages=3, rows=3),),
    ),
    "fewer rows than stages": (nn.LayerNorm(512), (random(2, 512),), (staying(64, 4, 2, stages=4, rows=4),)),
    "several rows a part of a warp": (
        nn.LayerNorm(64, dtype=BF16), (random(70, 64, dtype=BF16),),
        (several(128, 8, 2, team=4, rows=2), several(128, 8, 1, team=8, rows=3, past_l1=True)),
    ),
    "several rows a block": (lambda x: x.softmax(-1), (random(7, 301),), (several(128, 1, 3, rows=4),)),
    "several rows a cluster": (
        nn.LayerNorm(2052), (random(5, 2052),), (several(128, 4, 3, cluster=2, rows=3, past_l1=True),),
    ),
}  # fmt: skip


@pytest.mark.portable
@pytest.mark.parametrize("name", SEVERAL)
def test_teams_with_several_rows(name: str) -> None:
    model, inputs, shapes = SEVERAL[name]
    lowering = lowered(model, *inputs, to="bufferized")
    for parameters in shapes:
        assert_equal_to_eager(scheduled(lowering, Choice("rows", parameters)), model, *inputs)


@pytest.mark.portable
def test_rows_that_stay_and_start_anywhere(odd_addresses: None) -> None:
    model, inputs, (parameters, *_) = SEVERAL["blocks stay, two reductions"]
    lowering = scheduled(lowered(model, *inputs, to="bufferized"), Choice("rows", parameters))
    assert_equal_to_eager(lowering, model, *inputs)


def chosen(model: Callable[..., Any], *inputs: torch.Tensor) -> list[Parameters]:
    """Parameters of all kernels; inputs may be on the meta device."""
    lowering = lowered(model, *inputs, to="dispatches")
    with lowering.payload.context:
        return [choice_of(function).parameters for function in kernel_functions(lowering.payload)]


@pytest.mark.portable
def test_choices_follow_the_sizes() -> None:
    softmax, total = (lambda x: x.softmax(-1)), (lambda x: x.sum(-1))
    empty = torch.empty
    assert chosen(softmax, empty(1000, 64))[0]["team"] == 8  # several rows a warp
    assert chosen(softmax, empty(1000, 512))[0]["team"] == 32
    assert chosen(softmax, empty(1000, 1024))[0]["team"] == 128
    assert chosen(softmax, empty(100, 4096))[0]["team"] == 512
    assert chosen(softmax, empty(100, 32768))[0]["cluster"] == 4
    assert chosen(softmax, empty(100, 65536))[0]["cluster"] == 8
    norm = chosen(nn.LayerNorm(16384, dtype=BF16), empty(2048, 16384, dtype=BF16))[0]
    assert (norm["team"], norm["together"]) == (512, 2)  # registers for two blocks
    assert chosen(nn.LayerNorm(5000), empty(100, 5000))[0]["team"] == 256  # little waste
    long = nn.LayerNorm(32768, dtype=BF16)
    assert chosen(long, empty(1024, 32768, dtype=BF16))[0]["mode"] == "staying"
    assert chosen(long, empty(60, 32768, dtype=BF16))[0]["mode"] == "resident"  # too few rows
    assert chosen(total, empty(3, 1 << 20))[0]["mode"] == "split"
    assert chosen(total, empty(4096, 4096))[0]["mode"] == "resident"
    assert chosen(torch.relu, empty(64, 64, dtype=BF16))[0]["vector"] == 8
    assert not chosen(torch.relu, empty(4096, 4096))[0]["stream"]


@pytest.mark.portable
def test_what_only_reduces_holds_no_rows() -> None:
    across = chosen(lambda x: x.amax(1), torch.empty(64, 512, 4096))[0]
    assert (across["mode"], across["team"]) == ("looped", 8)
    first = chosen(lambda x: x.sum(0), torch.empty(32768, 4096))[0]
    assert (first["mode"], first["splits"]) == ("split", 16)  # 32 blocks across: 512 of them, all at once


@pytest.mark.portable
def test_argmax_holds_rows_that_it_reads_twice() -> None:
    """Its maximum, NaN above all, and then the first place of it."""
    position = chosen(lambda x: x.argmax(-1), torch.empty(4096, 4096))[0]
    assert (position["mode"], position["team"]) == ("resident", 512)


@pytest.mark.portable
def test_sums_of_nothing_are_constants_and_need_no_kernel() -> None:
    assert schedules(lowered(lambda x: x.sum(-1), torch.empty(3, 0), to="dispatches")) == []


# ------------------------------------------------------------------------------------------------------------ machine code


@pytest.mark.target
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (torch.relu, (torch.empty(4096, 4096),)),
        (lambda x, y: F.silu(x) * y, (torch.empty(4096, 4096, dtype=BF16),) * 2),
        (lambda x: x.t().contiguous(), (torch.empty(4096, 4096, dtype=BF16),)),
        (lambda x: x.softmax(-1), (torch.empty(512, 32768),)),
        (nn.LayerNorm(4096, dtype=BF16), (torch.empty(512, 4096, dtype=BF16),)),
        (lambda x: x.sum(0), (torch.empty(8192, 2048),)),
    ],
    ids=["relu", "swiglu", "transpose", "softmax", "layer norm", "sum of columns"],
)
def test_whole_vectors_and_no_spills(
    model: Callable[..., Any], inputs: tuple[torch.Tensor, ...], request: pytest.FixtureRequest
) -> None:
    module = lowered(model, *inputs).payload
    run_steps(NVVM_STEPS, module)
    cubin, resources = assemble(CompilePtx(ARCH).translate(TranslateKernels().translate(module)).body, ARCH)
    counts = Counter(re.findall(r"\b(LDG|STG)\.[\w.]*128\b", sass_text(cubin)))
    assert counts["LDG"]
    assert counts["STG"] or "sum" in request.node.name  # which writes little
    assert all(kernel.spill_bytes == kernel.stack_bytes == 0 for kernel in resources.values())
