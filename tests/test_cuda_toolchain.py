"""From gpu.module to machine code of a GPU, without a GPU: ptxas accepts what comes out, and the text says what it must."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest
from cuda_kernels import (
    F16,
    FLOATS,
    INTEGERS,
    PLAN,
    compiled,
    has_second_backend,
    kernel_module,
    operations_of,
    second_backend_ptx,
)

from mlirstack.bindings import ir, new_context
from mlirstack.errors import StageError
from mlirstack.ir.text import parse_module
from mlirstack.lowering import LowerOptions, lower_program, program_of
from mlirstack.passes.cuda import toolkit
from mlirstack.passes.cuda.cubin import AssembleCubin, CubinCode, assemble
from mlirstack.passes.cuda.device_code import LLVM_COMMENT, PTX_COMMENT, DeviceCode, TranslateKernels
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.plan import LaunchPlan
from mlirstack.passes.cuda.planned import PlannedCode, TabulateKernels, WritePlan
from mlirstack.passes.cuda.ptx import CompilePtx, ptx_of
from mlirstack.passes.cuda.sass import DisassembleCubin, sass_text
from mlirstack.passes.elf import ElfObject
from mlirstack.passes.llvm_ir import classic_spelling
from mlirstack.pipeline.runner import run_steps

pytestmark = pytest.mark.target


# --------------------------------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS])
def test_every_operation_on_every_type_compiles(element: str) -> None:
    ptx = compiled(kernel_module(element, operations_of(element)))
    assert ".extern .func" not in ptx, "a function of libdevice is missing"
    _, resources = assemble(ptx, "sm_90a")
    assert set(resources) == {"kernel"}


@pytest.mark.parametrize("element", F16)
def test_maximum_and_minimum_keep_nan(element: str) -> None:
    ptx = compiled(kernel_module(element, [("max", f"%r = arith.maximumf %x, %y : {element}")]))
    assert re.search(r"max\.NaN\.", ptx)


def test_arithmetic_is_as_exact_as_that_of_eager() -> None:
    """IEEE division and square root, denormals kept; a product and a sum may become one FMA."""
    body = (
        "%q = arith.divf %x, %y : f32\n%s = math.sqrt %q : f32\n%m = arith.mulf %s, %x : f32\n%r = arith.addf %m, %y : f32"
    )
    ptx = compiled(kernel_module("f32", [("chain", body)]))
    assert set(re.findall(r"\b(?:div|sqrt|fma)\.\S+", ptx)) == {"div.rn.f32", "sqrt.rn.f32", "fma.rn.f32"}


# --------------------------------------------------------------------------------------------------------------- literals

_SPECIAL = {  # bits of exponent and fraction, and patterns at the edges of each kind of number
    kind: (
        exponent,
        fraction,
        [
            sign << (exponent + fraction) | e << fraction | f
            for sign in (0, 1)
            for e in (0, 1, 2, (1 << exponent - 1) - 1, (1 << exponent) - 2, (1 << exponent) - 1)
            for f in (0, 1, 2, 3, 1 << fraction - 2, 1 << fraction - 1, (1 << fraction - 1) + 1, (1 << fraction) - 1)
        ],
    )
    for kind, exponent, fraction in (("half", 5, 10), ("bfloat", 8, 7), ("float", 8, 23), ("double", 11, 52))
}
_MLIR_NAME = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


@pytest.mark.parametrize("kind", [*_SPECIAL])
def test_bits_of_literals_survive_the_older_spelling(kind: str) -> None:
    """MLIR prints, LLVM 22 reads: what stands in the object is what stood in the module, NaN payloads included."""
    exponent, fraction, patterns = _SPECIAL[kind]
    width = 1 + exponent + fraction
    # All values of the narrow types; for the wide ones a walk through the exponents with changing fractions.
    further = range(1 << width) if width == 16 else (i * 0x9E3779B97F4A7C15 >> (64 - width) for i in range(1, 6000))
    patterns = [*patterns, *(p & (1 << width) - 1 for p in further)]
    data = b"".join(p.to_bytes(width // 8, "little") for p in patterns)
    name = _MLIR_NAME[kind]
    count = len(patterns)
    numbers = f'dense<"0x{data.hex()}"> : tensor<{count}x{name}>'
    text = f"llvm.mlir.global constant @numbers({numbers}) : !llvm.array<{count} x {name}>"
    context = new_context()
    with context:
        from mlirstack.bindings import translate_to_llvm_ir

        classic = classic_spelling(translate_to_llvm_ir(parse_module(text, context).operation))
    assert _constant_bytes(classic, len(data)) == data


def _constant_bytes(text: str, size: int) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    elf = ElfObject.parse(machine.emit_object(llvm.parse_assembly(text)))
    symbol = next(s for s in elf.symbols if s.name == "numbers")
    return elf.section_bytes(symbol.section)[symbol.value : symbol.value + size]


# -------------------------------------------------------------------------------------------------------- kernel properties

_COPY = """
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @copy(%map: !llvm.ptr {mlirstack.tensor_map = {box = array<i64: 64, 32>}},
                   %out: memref<64xf32> {llvm.align = 16 : i64, llvm.noalias}) kernel
        attributes {known_block_size = array<i32: 128, 1, 1>, mlirstack.cluster = 2 : i64, mlirstack.min_blocks = 3 : i64} {
      %shared = memref.get_global @tile : memref<2048xf32, #gpu.address_space<workgroup>>
      %barrier = memref.get_global @barrier : memref<1xi64, #gpu.address_space<workgroup>>
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i32
      %i = gpu.thread_id x
      %at = memref.extract_aligned_pointer_as_index %shared : memref<2048xf32, #gpu.address_space<workgroup>> -> index
      %bar = memref.extract_aligned_pointer_as_index %barrier : memref<1xi64, #gpu.address_space<workgroup>> -> index
      %at32 = arith.index_cast %at : index to i32
      %bar32 = arith.index_cast %bar : index to i32
      llvm.inline_asm has_side_effects
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $2}], [$3];", "r,l,r,r"
        %at32, %map, %zero, %bar32 : (i32, !llvm.ptr, i32, i32) -> ()
      gpu.barrier
      %x = memref.load %shared[%i] : memref<2048xf32, #gpu.address_space<workgroup>>
      memref.store %x, %out[%i] : memref<64xf32>
      gpu.return
    }
    memref.global "private" @tile : memref<2048xf32, #gpu.address_space<workgroup>> {alignment = 128}
    memref.global "private" @barrier : memref<1xi64, #gpu.address_space<workgroup>>
  }
}"""


def test_tensor_maps_are_parameters_that_no_thread_copies() -> None:
    ptx = compiled(_COPY)
    assert ".param .align 64 .b8 copy_param_0[128]" in ptx
    assert ".param .u64 .ptr .align 16 copy_param_1" in ptx
    cubin, resources = assemble(ptx, "sm_90a")
    sass = sass_text(cubin)
    assert "UTMALDG" in sass and not re.search(r"\b(STL|LDL)\b", sass)
    assert resources["copy"].stack_bytes == 0
    assert resources["copy"].static_shared_bytes >= 2048 * 4 + 8


def test_launch_bounds_and_cluster_reach_the_assembler() -> None:
    ptx = compiled(_COPY)
    assert ".maxntid 128" in ptx and ".minnctapersm 3" in ptx and ".reqnctapercluster 2" in ptx


def test_shared_memory_is_addressed_in_32_bits() -> None:
    assert re.search(r"ld\.shared\.b32\s+%r\d+, \[%r\d+\]", compiled(_COPY)), "an address in a 64-bit register is %rd"


def test_kernels_of_several_modules_keep_their_names_and_helpers_get_new_ones() -> None:
    one = """gpu.module @m{n} {{
      func.func @helper(%x: f32) -> f32 {{ %0 = arith.{op} %x, %x : f32 return %0 : f32 }}
      gpu.func @kernel{n}(%a: memref<4xf32>, %i: index) kernel {{
        %x = memref.load %a[%i] : memref<4xf32>
        %y = func.call @helper(%x) : (f32) -> f32
        %z = math.exp %y : f32
        memref.store %z, %a[%i] : memref<4xf32>
        gpu.return }} }}"""
    module = _lowered(one.format(n=0, op="addf") + one.format(n=1, op="mulf"))
    text = TranslateKernels().translate(module).body
    assert text.count("declare float @__nv_expf(float)") == 1
    assert re.findall(r"define (\S+ \S+ @\w+)", text) == [
        "internal float @helper", "ptx_kernel void @kernel0", "internal float @helper_1", "ptx_kernel void @kernel1",
    ]  # fmt: skip
    first, second = text.split("@kernel0")
    assert "fadd" in first and "call float @helper(" in second and "call float @helper_1(" in second.split("@kernel1")[1]
    assert "fmul" in second and "fadd" not in second


def test_dynamic_shared_memory_of_different_alignment_gets_different_names() -> None:
    one = """gpu.module @m{n} {{
      llvm.mlir.global external @dynamic() {{addr_space = 3 : i32, alignment = {n} : i64}} : !llvm.array<0 x i8>
      llvm.func @kernel{n}() attributes {{nvvm.kernel}} {{
        %x = llvm.mlir.constant(1 : i8) : i8
        %p = llvm.mlir.addressof @dynamic : !llvm.ptr<3>
        llvm.store volatile %x, %p : i8, !llvm.ptr<3>
        llvm.return }} }}"""
    module = parse_module(
        one.format(n=16) + one.format(n=128) + one.format(n=16).replace("m16", "m2").replace("kernel16", "k"), new_context()
    )
    text = TranslateKernels().translate(module).body
    assert re.findall(r"@(\w+) = external .*align (\d+)", text) == [("dynamic", "16"), ("dynamic_1", "128")]
    assert re.findall(r"store volatile i8 1, ptr addrspace\(3\) @(\w+)", text) == ["dynamic", "dynamic_1", "dynamic"]


def test_vectors_of_booleans_are_bytes() -> None:
    text = """gpu.module @m { gpu.func @kernel(%a: memref<64xi1>, %b: memref<64xf32>, %i: index) kernel {
      %z = arith.constant dense<0.0> : vector<4xf32>
      %v = vector.load %a[%i] {alignment = 4 : i64} : memref<64xi1>, vector<4xi1>
      %w = arith.select %v, %z, %z : vector<4xi1>, vector<4xf32>
      vector.store %v, %a[%i] {alignment = 4 : i64} : memref<64xi1>, vector<4xi1>
      gpu.return } }"""
    ptx = compiled(text)
    assert "ld.global.b32" in ptx and "st.global.b32" in ptx, "four booleans are four bytes"


def test_an_operation_without_translation_is_named() -> None:
    module = parse_module("gpu.module @m { gpu.func @kernel(%a: f32) kernel { gpu.return } }", new_context())
    with pytest.raises(StageError, match=r"'gpu\.func' has no translation to LLVM IR"):
        TranslateKernels().translate(module)


_BEFORE_AND_AFTER = """
from mlirstack.passes.cuda.ptx import ptx_of
from mlirstack.passes.native_code import CompileObject

text = '''define float @f(ptr %p, i64 %i) {
  %q = getelementptr float, ptr %p, i64 %i
  %x = load float, ptr %q
  ret float %x
}
'''
before = CompileObject().translate(text).data
assert ".version" in ptx_of(text, "sm_80", "+ptx83")
assert CompileObject().translate(text).data == before
print("same")
"""


def test_code_for_the_host_is_the_same_before_and_after_code_for_a_gpu() -> None:
    """LLVM's options are global to a process; the one for PTX must not change anything else."""
    command = [sys.executable, "-c", _BEFORE_AND_AFTER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "same", done.stderr


def _lowered(text: str) -> ir.Module:
    module = parse_module(text, new_context())
    run_steps(NVVM_STEPS, module)
    return module


# ------------------------------------------------------------------------------------------------------------ text and plan


def test_a_lowering_is_taken_up_again_from_the_text_of_any_stage() -> None:
    ir_text = TranslateKernels().translate(_lowered(_COPY))
    ir_code = DeviceCode(ir_text.body, PLAN, LLVM_COMMENT)
    ptx = CompilePtx().translate(ir_code.text)
    assert ptx.text == CompilePtx().translate(ir_code).text
    cubin = AssembleCubin().translate(ptx.text)
    assert cubin.data == AssembleCubin().translate(ptx).data
    again = CubinCode.read(cubin.data)
    assert again.data == cubin.data and again.cubin == cubin.cubin and again.plan == cubin.plan
    sass = DisassembleCubin().translate(cubin.data)
    planned = WritePlan().translate(TabulateKernels().translate(sass))
    assert isinstance(planned, PlannedCode)
    assert planned == WritePlan().translate(cubin) == WritePlan().translate(cubin.data)  # which need no listing
    assert planned.plan.arch == "sm_90a"
    assert LaunchPlan.from_json(planned.text) == planned.plan
    assert planned.plan.functions == PLAN.functions
    [kernel] = planned.plan.kernels
    assert kernel.registers is not None and kernel.registers > 8
    assert kernel.static_shared_bytes is not None and kernel.static_shared_bytes >= 8192
    with pytest.raises(StageError, match="neither the cubin nor the launch plan") as caught:
        WritePlan().translate(sass.text)
    assert caught.value.hint == "resume from stage 'cubin'"


def test_a_heading_above_the_text_does_no_harm() -> None:
    ptx = DeviceCode(compiled(_COPY), PLAN, PTX_COMMENT)
    assert AssembleCubin().translate("// mlirstack stage 11 ptx\n" + ptx.text).plan is not None


def test_a_plan_that_cannot_be_read_is_refused() -> None:
    text = DeviceCode("", PLAN, PTX_COMMENT).text
    with pytest.raises(StageError, match="launch plan at the end of the text cannot be read"):
        DeviceCode.read(text.replace('"main",', '"main"'), PTX_COMMENT)


def test_a_plan_with_an_unknown_kernel_is_refused() -> None:
    other = dataclasses.replace(PLAN, kernels=(dataclasses.replace(PLAN.kernels[0], name="missing"),))
    with pytest.raises(StageError, match="kernels that the PTX does not hold: missing"):
        AssembleCubin().translate(DeviceCode(compiled(_COPY), other, PTX_COMMENT))


def test_broken_ptx_names_the_line_and_the_command() -> None:
    ptx = compiled(_COPY)
    line = next(i for i, text in enumerate(ptx.splitlines(), 1) if "ld.shared" in text)
    broken = ptx.replace("ld.shared.b32", "ld.shared.b33", 1)
    with pytest.raises(StageError) as caught:
        AssembleCubin().translate(broken)
    assert f"PTX line {line}" in caught.value.message and "ld.shared.b33" in caught.value.message
    assert caught.value.hint is not None and "ptxas -v -lineinfo -arch=sm_90a input.ptx -o output.cubin" in caught.value.hint
    assert CompilePtx().command("x.ll") == "mlirstack-translate x.ll --llvmir-to-ptx --mcpu=sm_90a --mattr=+ptx83 --O=3"
    assert AssembleCubin().command("x.ptx") == "ptxas -v -lineinfo -arch=sm_90a x.ptx -o output.cubin"


def test_broken_llvm_ir_names_the_line() -> None:
    with pytest.raises(StageError, match=r"(?s)LLVM does not accept the IR: .*:2:\d+: error: expected instruction opcode"):
        CompilePtx().translate("define void @f() {\n  nonsense\n}\n")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("float @__nv_no_such(float)", r"libdevice has no function __nv_no_such; float \(float\) is called"),
        ("float @__nv_expf(double)", r"libdevice has __nv_expf as float \(float\); float \(double\) is called"),
    ],
)
def test_what_libdevice_has_is_called_as_it_is(function: str, message: str) -> None:
    with pytest.raises(StageError, match=message):
        ptx_of(f"declare {function}\n", "sm_90", "+ptx83")


# ---------------------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("arch", "isa"),
    [("sm_80", 83), ("sm_86", 83), ("sm_89", 83), ("sm_90", 83), ("sm_90a", 83), ("sm_100a", 86), ("sm_120", 87)],
)
def test_ptx_is_as_old_as_the_architecture_allows(arch: str, isa: int) -> None:
    assert toolkit.ptx_for(arch) == isa
    ptx = ptx_of("define ptx_kernel void @k() {\n ret void\n}", arch, f"+ptx{isa}")
    assert f".version {toolkit.isa_text(isa)}\n.target {arch}\n" in ptx
    assert assemble(ptx, arch)[0].startswith(b"\x7fELF")


@pytest.mark.parametrize(("version", "isa"), [((12, 0), 80), ((12, 6), 85), ((13, 0), 90), ((12, 99), 88), ((14, 2), 90)])
def test_ptx_that_a_cuda_version_reads(version: tuple[int, int], isa: int) -> None:
    assert toolkit.ptx_of_cuda(version) == isa


def test_versions_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(StageError, match=r"ptxas of CUDA 13\.0 accepts PTX up to 9\.0, this is PTX 9\.9"):
        assemble(".version 9.9\n.target sm_90a\n", "sm_90a")
    with pytest.raises(StageError, match=r"CUDA 11\.8 is older than 12\.0"):
        toolkit.ptx_of_cuda((11, 8))
    with pytest.raises(StageError, match="unknown GPU architecture 'sm_12'"):
        toolkit.ptx_for("sm_12")


# ------------------------------------------------------------------------------------------------------------ second opinion


needs_second_backend = pytest.mark.skipif(not has_second_backend(), reason="numba-cuda-mlir is not installed")


@needs_second_backend
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64", "i32"])
def test_a_second_code_generator_takes_the_same_kernels(element: str) -> None:
    """Another LLVM, from the NVVM dialect on; the assembler accepts its code, which computes with the same instructions."""
    text = kernel_module(element, operations_of(element))
    [theirs] = second_backend_ptx(text)
    assert ".extern .func" not in theirs
    assert set(assemble(theirs, "sm_90a")[1]) == {"kernel"}
    name = "add.s32" if element == "i32" else f"fma.rn.{element}"
    assert name in theirs and name in compiled(text)


@needs_second_backend
@pytest.mark.target
@pytest.mark.parametrize("model", ["tiny_mlp", "mlp_bf16", "transformer_encoder", "conv2d_f16", "softmax"])
def test_a_second_code_generator_takes_the_kernels_of_a_model(model: str) -> None:
    """Every kernel of whole models, warpgroup instructions and copy engine included."""
    lowering = lower_program(program_of(f"zoo:{model}"), LowerOptions("cuda:sm_90a", to="gpu"))
    text = str(lowering.payload)
    theirs = second_backend_ptx(text)
    assert not any(".extern .func" in ptx for ptx in theirs)
    names = {name for ptx in theirs for name in assemble(ptx, "sm_90a")[1]}
    assert names == set(re.findall(r"gpu\.func @(\w+)", text))
