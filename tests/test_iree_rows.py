"""Our own kernels for processors inside IREE's modules: rows of softmax and norms, run and compared with eager."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import mlirstack as ms
from mlirstack.errors import StageError
from mlirstack.lowering import Lowering
from mlirstack.passes.iree.code import describe_code, find_code
from mlirstack.passes.iree.embedded_kernels import CheckKernels, kernels_of
from mlirstack.passes.native_code import CompileObject
from mlirstack.targets.registry import create_target
from mlirstack.zoo.recipe import Operation

BF16 = torch.bfloat16


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def lower(function: Callable[..., Any], *inputs: Tensor, arch: str = "x86-64-v3", to: str | None = None) -> Lowering:
    return ms.lower(Operation(function), inputs, target=f"iree-cpu:{arch}", to=to)


def kernels_in(lowering: Lowering) -> list[str]:
    """Names of the kernels of ours that a vmfb holds."""
    return [name for described in kernels_of(lowering.payload) or [] for name in described["exports"]]


def check(results: Any, expected: Any, tolerance: float) -> None:
    for result, exact in zip(results, expected, strict=True):
        assert result.shape == exact.shape
        error = float((result.double() - exact.double()).norm() / exact.double().norm())
        assert error < tolerance, f"relative error {error:.1e}"


def rows(x: Tensor, y: Tensor, w: Tensor, mask: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    """Rows with a rest; a mask that heads share; a number for all rows; one reduction; f64 without functions."""
    scores = torch.softmax(x * w.amax() + mask, -1)
    total = y + w
    norm = functional.layer_norm(total, (77,), w)
    return scores, total, norm, y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6), functional.layer_norm(z, (40,))


ROWS = (
    random(2, 3, 5, 45), random(9, 77, seed=1), random(77, seed=2), random(2, 1, 5, 45, seed=3),
    random(6, 40, dtype=torch.float64, seed=4),
)  # fmt: skip


@pytest.mark.target
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_every_kind(threads: int) -> None:
    compiled = ms.compile(Operation(rows), ROWS, target="iree-cpu:x86-64-v3", threads=threads)

    check(compiled(*ROWS), rows(*(value.double() for value in ROWS)), 3e-7)
    assert len(kernels_in(compiled.lowering)) == 4


@pytest.mark.target
def test_sixteen_bits() -> None:
    inputs = random(5, 50, dtype=BF16), random(5, 50, dtype=torch.float16, seed=1)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x, -1), functional.layer_norm(y, (50,))

    compiled = ms.compile(Operation(function), inputs, target="iree-cpu:x86-64-v3")

    check(compiled(*inputs), function(*(value.double() for value in inputs)), 4e-3)
    assert len(kernels_in(compiled.lowering)) == 2


@pytest.mark.target
def test_as_many_rows_as_there_are() -> None:
    def function(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x + mask, -1)

    batch = torch.export.Dim("batch", min=0, max=64)
    shapes = ({0: batch}, {0: batch})
    compiled = ms.compile(
        Operation(function), (random(4, 3, 40), random(4, 1, 40)), target="iree-cpu:x86-64-v3", dynamic_shapes=(shapes,)
    )

    assert len(kernels_in(compiled.lowering)) == 1
    for count in (1, 5, 64):
        x, mask = random(count, 3, 40, seed=count), random(count, 1, 40, seed=1)
        check([compiled(x, mask)], [function(x.double(), mask.double())], 1e-6)
    assert compiled(random(0, 3, 40), random(0, 1, 40)).shape == (0, 3, 40)


@pytest.mark.target
def test_the_rest_is_what_the_plain_way_hands_over() -> None:
    """Logarithms, which would be calls; short rows; sums over whole tensors and over columns; products."""

    def function(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.log_softmax(x, -1), torch.softmax(y, -1), x.sum(), torch.softmax(x, 0), (x @ w).sum(-1)

    inputs = random(6, 48), random(5, 24), random(48, 64)
    lowering = lower(function, *inputs, to="program")

    assert "hal." not in lowering["program"].text
    for kind in ("generic", "reduce", "matmul"):
        program, plain = (lowering[stage].text.count(f"linalg.{kind} ") for stage in ("program", "prepared"))
        assert program == plain


@pytest.mark.target
def test_levels_of_instructions() -> None:
    """The vmfb holds the code of each function, in registers of the processor that it is for."""
    x = random(4, 100)
    for arch, register in (("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")):
        lowering = lower(lambda x: torch.softmax(x, -1), x, arch=arch)
        assert kernels_in(lowering) == ["kernel_reduction_0"]
        assert register in lowering["asm"].text
        assert "zmm" not in lowering["asm"].text or register == "zmm"

    vmfb, [kernels] = lowering.payload, kernels_of(lowering.payload) or [{}]
    assert set(kernels["code"]) == {"kernel_reduction_0", "mlirstack_kernel_reduction_0"}
    place = find_code(vmfb, kernels["code"]["kernel_reduction_0"])
    assert place is not None
    damaged = vmfb[: place + 9] + bytes([vmfb[place + 9] ^ 1]) + vmfb[place + 10 :]
    with pytest.raises(
        StageError, match=r"has lost kernels: the code of kernels\.elf for 'kernel_reduction_0' is not there"
    ):
        CheckKernels().translate(damaged)


def test_which_processors_get_kernels_of_ours() -> None:
    def has_own(arch: str, **settings: str) -> bool:
        return "program" in create_target(f"iree-cpu:{arch}", settings=settings).pipeline("tosa", "fx").names()

    assert has_own("x86-64-v3")
    assert has_own("x86-64-v4")
    assert not any(has_own(arch) for arch in ("generic", "x86-64-v2", "aarch64", "riscv64"))
    assert not has_own("x86-64-v3", kernels="iree")


def test_code_is_found_wherever_a_linker_put_it() -> None:
    """A call across sections is a field that a linker fills in."""
    llvm_ir = """
declare i32 @toupper(i32)
define i32 @calls(i32 %x) { %1 = add i32 %x, 41 %2 = call i32 @toupper(i32 %1) %3 = mul i32 %2, 1234567 ret i32 %3 }
"""
    data = CompileObject().translate(llvm_ir).data
    with pytest.raises(StageError, match=r"no library has the symbol\(s\) toupper"):
        CompileObject(freestanding=True).translate(llvm_ir)
    [described] = describe_code(data).values()
    [hole] = described["holes"]
    place = find_code(data, described)
    assert place is not None
    linked = bytearray(data)
    linked[place + hole : place + hole + 4] = b"\x12\x34\x56\x78"
    assert find_code(bytes(64) + bytes(linked), described) == place + 64
    linked[place + described["bytes"] - 2] ^= 1
    assert find_code(bytes(linked), described) is None
    assert json.loads(json.dumps(described)) == described
