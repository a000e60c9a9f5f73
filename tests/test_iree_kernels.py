"""Our own kernels inside IREE's modules: what IREE is given, executed by the emulator; what it makes of it, looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from iree_on_simt import run_program
from torch import Tensor, nn
from torch.nn import functional

import mlirstack as ms
from mlirstack.bindings import ir, new_context
from mlirstack.errors import StageError, UsageError
from mlirstack.ir.ops import walk
from mlirstack.ir.text import module_bytecode, module_text, parse_module
from mlirstack.lowering import Lowering
from mlirstack.passes.iree.compiler import CompilerRun, run_compiler
from mlirstack.passes.iree.embed import CUDA_TARGET, parameters_of
from mlirstack.passes.iree.embedded_kernels import CheckKernels, kernels_of, missing_kernels
from mlirstack.passes.iree.executables import (
    KernelExport,
    KernelObject,
    declare_executable,
    describe_objects,
    dispatch,
    written_operands,
)
from mlirstack.passes.iree.program import hidden_program
from mlirstack.passes.iree.split import SplitProgram
from mlirstack.targets.registry import create_target
from mlirstack.zoo.recipe import Operation

BF16 = torch.bfloat16


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def lower(function: Callable[..., Any] | nn.Module, *inputs: Tensor, to: str | None = None, **settings: str) -> Lowering:
    model = function if isinstance(function, nn.Module) else Operation(function)
    return ms.lower(model.eval(), inputs, target="iree-cuda:sm_90", to=to, settings=settings)


def dispatched(lowering: Lowering) -> list[str]:
    """The kernels that the program dispatches, in order."""
    return [
        str(ir.SymbolRefAttr(ir.ArrayAttr(op.attributes["entry_points"])[0]).value[-1])
        for op in walk(lowering.payload)
        if op.name == "flow.dispatch"
    ]


def check(results: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    for result, exact in zip(results, expected, strict=True):
        error = float((result.double() - exact.double()).norm() / exact.double().norm())
        assert error < tolerance, f"relative error {error:.1e}"


# --------------------------------------------------------------------------------------------- programs, by the emulator


@pytest.mark.target
def test_products_whose_tensor_maps_the_device_makes() -> None:
    x, w, b = random(130, 72, dtype=BF16), random(136, 72, dtype=BF16, seed=1), random(136, dtype=BF16, seed=2)
    lowering = lower(lambda x, w, b: torch.relu(functional.linear(x, w, b)), x, w, b, to="program")

    check(run_program(lowering, (x, w, b)), [torch.relu(functional.linear(x.double(), w.double(), b.double()))], 8e-3)
    assert "wgmma" in lowering["gpu"].text
    assert "mlirstack.tensor_map" not in lowering["gpu"].text  # nobody encodes one on the host
    assert dispatched(lowering) == ["kernel_contraction_0"]
    mapped = parse_module(lowering["mapped"].data, new_context())
    copies = [op for op in walk(mapped) if "bulk.tensor" in op.name]
    assert len(copies) == 3 and all(map(is_acquired, copies))


def is_acquired(copy: Any) -> bool:
    """Has every thread that gets to ``copy`` acquired the map that it reads, and before any loop?"""
    around = [copy, *parents(copy)]
    users = [use.owner.operation for value in copy.operands for use in value.uses]
    fences = [op for op in users if op.name == "nvvm.fence.proxy.acquire"]
    before = [f for f in fences for op in around if f.block == op.operation.block and f.is_before_in_block(op)]
    return len(before) == 1 and all(op.name == "scf.if" for op in parents(before[0])[:-1])


def parents(op: Any) -> list[Any]:
    """The ops around ``op`` up to the kernel, from the inside out."""
    found = [op.operation]
    while found[-1].name != "gpu.func":
        found.append(found[-1].parent.operation)
    return found[1:]


@pytest.mark.target
def test_rows_slices_and_temporaries() -> None:
    """Reads of a slice that does not begin at 16 bytes, a result put into a larger tensor, sums by way of memory."""

    def function(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.softmax(torch.softmax(x, -1)[1:], -1)
        return torch.cat([rows, torch.softmax(y, -1)]), a @ b

    inputs = (random(7, 5), random(3, 5), random(16, 2048), random(2048, 32))
    lowering = lower(function, *inputs, to="program")

    check(run_program(lowering, inputs), function(*(value.double() for value in inputs)), 1e-6)
    names = dispatched(lowering)
    assert sum(name.startswith("kernel_unaligned") for name in names) == 2
    calls = [op for op in walk(lowering.payload) if op.name == "flow.dispatch"]
    product = [op for op, name in zip(calls, names, strict=True) if "contraction" in name]
    assert [len(op.results) for op in product] == [1, 2]  # partial sums; these, tied, and the result
    assert written_operands(product[0]) == set()
    assert len(written_operands(product[1])) == 1


@pytest.mark.target
def test_what_no_emitter_takes_stays_with_iree() -> None:
    x, order = random(8, 16), torch.tensor([3, 0, 2])
    lowering = lower(lambda x, i: torch.softmax(x, -1)[i], x, order, to="dispatches")

    main = lowering["dispatches"].text.partition("func.func @main")[2]
    assert "call @kernel_reduction_0" in main
    assert "tensor.extract" in main  # rows that the data choose
    assert "general" not in lowering["dispatches"].text


UNUSED = """
func.func private @ones(%out: tensor<8xf32>) -> tensor<8xf32> attributes {mlirstack.kernel = "elementwise"} {
  %one = arith.constant 1.0 : f32
  %0 = linalg.fill ins(%one : f32) outs(%out : tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @twice(%x: tensor<8xf32>, %out: tensor<8xf32>) -> tensor<8xf32>
    attributes {mlirstack.kernel = "elementwise"} {
  %0 = linalg.add ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%out : tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %empty = tensor.empty() : tensor<8xf32>
  %0 = call @ones(%empty) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = call @twice(%0, %empty) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = call @twice(%x, %empty) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""


def test_what_nothing_uses_is_no_kernel() -> None:
    """IREE drops such dispatches, and the check of the vmfb would miss them."""
    module = parse_module(UNUSED, new_context())
    with module.context, ir.Location.unknown():
        SplitProgram().apply(module)
        program = parse_module(hidden_program(module), module.context)

    assert re.findall(r"func.func private @(\w+)", module_text(module)) == ["twice"]
    assert re.findall(r"call @(\w+)", module_text(program)) == ["twice"]


# ------------------------------------------------------------------------------------------------------------ whole vmfbs


class Block(nn.Module):
    """Weights that must be prepared, one that nothing uses, kernels of several emitters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 96)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(self.norm(x)))


@pytest.fixture(scope="module")
def block() -> Lowering:
    torch.manual_seed(0)
    return lower(Block().to(BF16), random(32, 64, dtype=BF16))


@pytest.mark.target
def test_a_vmfb_holds_the_kernels(block: Lowering) -> None:
    vmfb = block.payload
    described = kernels_of(vmfb)
    assert described is not None
    [kernels] = described
    assert missing_kernels(vmfb, described) == []
    assert set(kernels["exports"]) == {kernel["name"] for kernel in json.loads(block["plan"].text)["kernels"]}

    place = vmfb.index(bytes.fromhex(kernels["head"]))
    damaged = vmfb[: place + 1000] + bytes([vmfb[place + 1000] ^ 1]) + vmfb[place + 1001 :]
    with pytest.raises(StageError, match=r"has lost kernels: the \d+ bytes of kernels.cubin are not there"):
        CheckKernels().translate(damaged)
    name = next(iter(kernels["exports"]))
    renamed = vmfb[:place].replace(name.encode(), b"x" * len(name)) + vmfb[place:].replace(name.encode(), b"x" * len(name))
    with pytest.raises(StageError, match="has lost kernels"):
        CheckKernels().translate(renamed)


@pytest.mark.target
def test_stages_show_regions_kernels_and_what_iree_was_given(block: Lowering) -> None:
    names = [stage.name for stage in block.stages]
    shared = [
        "dispatches",
        "kernels",
        "bufferized",
        "mapped",
        "gpu",
        "nvvm",
        "llvmir",
        "ptx",
        "cubin",
        "sass",
        "table",
        "plan",
    ]
    assert names[names.index("dispatches") : names.index("program")] == shared
    assert names[names.index("program") + 1] == "iree-input"
    assert "call @kernel_" in block["dispatches"].text
    assert "registers" in block["table"].text
    program = block["program"].text
    assert program.count('"flow.dispatch"') == block["iree-flow"].text.count("flow.dispatch @mlirstack_kernels")
    assert len(program) < 20_000  # machine code is not printed
    assert "#flow.parameter.named" in block["iree-flow"].text
    assert "bufferization" not in program


@pytest.mark.target
def test_artifacts_say_which_kernels_they_hold_and_where_they_run(block: Lowering) -> None:
    target = create_target("iree-cuda:sm_90")
    artifact = target.build(block.program, block.payload)

    assert artifact.metadata["kernel_arch"] == "sm_90a"
    assert artifact.metadata["kernels"] == kernels_of(block.payload)
    assert target.requirements(artifact).arch == "sm_90a"
    assert target.requirements(artifact).cuda == (13, 0)
    later = create_target("iree-cuda:sm_80")
    assert later.requirements(later.build(block.program, block.payload)).arch == "sm_80"


def test_the_plain_way_is_one_setting_away() -> None:
    plain = create_target("iree-cuda:sm_90", settings={"kernels": "iree"}).pipeline("tosa", "fx").names()
    own = create_target("iree-cuda:sm_90").pipeline("tosa", "fx").names()

    assert "program" in own
    assert "program" not in plain
    assert plain == create_target("iree-rocm").pipeline("tosa", "fx").names()
    with pytest.raises(UsageError, match="has no kernels 'mine'"):
        create_target("iree-cuda", settings={"kernels": "mine"})


# ----------------------------------------------------------------------------------------- the forms that IREE must accept


IMAGE = bytes(range(256)) * 2  # IREE does not look at it


@pytest.mark.target
def test_the_forms_of_dispatches_are_those_of_this_iree() -> None:
    """Fails where IREE's syntax moves: a workload, constants, a tied operand, a dynamic size, several exports."""
    first = KernelExport("first", 1, 1, 2, (128, 1, 1), 4096)
    second = KernelExport("second", 0, 2, 0, (32, 1, 1))
    kernels = KernelObject("ours", CUDA_TARGET, "kernels.cubin", IMAGE, (first, second))
    context = new_context()
    context.allow_unregistered_dialects = True
    source = """
    func.func @main(%x: tensor<?xf32>, %n: i32) -> (tensor<?xf32>, tensor<16xi8>) {
      %c1 = arith.constant 1 : index
      %c0 = arith.constant 0 : index
      %size = tensor.dim %x, %c0 : tensor<?xf32>
      return
    }"""
    module = parse_module(source.replace("return\n", "func.return %x, %y : tensor<?xf32>, tensor<16xi8>\n").replace(
        "      %size", "      %y = tensor.empty() : tensor<16xi8>\n      %size"
    ), context)  # fmt: skip
    with context, ir.Location.unknown():
        main = next(op for op in module.body.operations)
        x, n = main.arguments
        one, _, _, size, leave = [op.operation for op in main.regions[0].blocks[0].operations]
        grid, kind = [size.results[0], one.results[0], one.results[0]], ir.RankedTensorType(x.type)
        with ir.InsertionPoint(leave):
            [made] = dispatch("ours", first, grid, [n, n], [x], [], [kind], [size.results[0]])
            scratch = ir.Type.parse("tensor<16xi8>")
            fresh = dispatch("ours", second, grid, [], [], [made], [kind, scratch], [size.results[0]])
        leave.operands[0], leave.operands[1] = fresh
        declare_executable(module, kernels)
    flags = ("--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80")
    flow = run_compiler(CompilerRun(None, "flow", flags, 60), module_bytecode(module))
    vmfb = run_compiler(CompilerRun(None, None, flags, 60), module_bytecode(module))

    assert not isinstance(flow, bytes)
    [taken, tied] = re.findall(r"= flow\.dispatch (.*)", flow.text)
    assert re.fullmatch(
        r"@ours::@first\[%\d+, %c1, %c1\]\(%\w+, %\w+, %\d+\) : \(i32, i32, tensor<\?xf32>\{%\d+\}\) -> .*", taken
    )
    assert re.fullmatch(
        r"@ours::@second\[.*\]\((%\d+)\) : \(tensor<\?xf32>\{%\d+\}\) -> \(\1\{%\d+\}, tensor<16xi8>\)", tied
    )
    assert re.search(r"@first ordinal\(0\).*\n.*\n.*workgroup_size = \[128 : index, 1 : index, 1 : index\], ", flow.text)
    assert "workgroup_local_memory = 4096" in flow.text
    assert isinstance(vmfb, bytes)
    assert missing_kernels(vmfb, json.loads(describe_objects([kernels]))["kernels"]) == [
        "kernels.cubin has no symbol 'first'",
        "kernels.cubin has no symbol 'second'",
    ]


def test_parameters_of_kernels_by_hand() -> None:
    ptx = """
.visible .entry one(
	.param .u64 .ptr .align 1 one_param_0,
	.param .u32 one_param_1,
	.param .f32 one_param_2
)
.visible .entry two(
	.param .align 64 .b8 two_param_0[128]
)
.visible .entry none()
"""
    assert parameters_of(ptx) == {"one": [8, 4, 4], "two": [128], "none": []}
