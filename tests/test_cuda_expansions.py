"""The functions that stand for operations without a lowering, run on the CPU and compared with torch, value by value."""

from __future__ import annotations

import ctypes

import pytest
import torch
from cuda_kernels import operations_of

from mlirstack.bindings import PassManager, execution_engine, ir, new_context
from mlirstack.ir.ops import walk
from mlirstack.ir.text import parse_module
from mlirstack.passes.cuda.expansions import ExpandKernelOps
from mlirstack.pipeline.runner import run_steps

pytestmark = pytest.mark.portable

ELEMENT = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64",
    torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
_TO_LLVM = (
    "builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,"
    "convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
)


def evaluated(body: str, result: torch.dtype, *operands: torch.Tensor) -> torch.Tensor:
    """``body`` makes %r of %x0, %x1, …, element by element: its ops are expanded as in a kernel and run here."""
    stored = ELEMENT[result]
    loads = [
        f"%p{i} = llvm.getelementptr %a{i}[%n] : (!llvm.ptr, i64) -> !llvm.ptr, {_memory(t.dtype)}\n"
        f"%m{i} = llvm.load %p{i} : !llvm.ptr -> {_memory(t.dtype)}\n"
        f"%x{i} = arith.bitcast %m{i} : {_memory(t.dtype)} to {ELEMENT[t.dtype]}"
        for i, t in enumerate(operands)
    ]
    parameters = ", ".join(f"%a{i}: !llvm.ptr" for i in range(len(operands)))
    nl = "\n"
    text = f"""gpu.module @kernels {{
      func.func @run({parameters}, %out: !llvm.ptr) attributes {{llvm.emit_c_interface}} {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %count = arith.constant {operands[0].numel()} : index
        scf.for %i = %c0 to %count step %c1 {{
          %n = arith.index_cast %i : index to i64
          {nl.join(loads)}
          {body}
          %bits = arith.bitcast %r : {stored} to {_memory(result)}
          %q = llvm.getelementptr %out[%n] : (!llvm.ptr, i64) -> !llvm.ptr, {_memory(result)}
          llvm.store %bits, %q : {_memory(result)}, !llvm.ptr
        }}
        return
      }} }}"""
    context = new_context()
    module = parse_module(text, context)
    run_steps((ExpandKernelOps(),), module)
    with context, ir.Location.unknown():
        host = ir.Module.create()
        [kernels] = module.body.operations
        for function in list(kernels.regions[0].blocks[0].operations):
            host.body.append(function)
        PassManager.parse(_TO_LLVM).run(host.operation)
        assert {op.name.split(".")[0] for op in walk(host)} == {"llvm"}
        engine = execution_engine(host, 2)
        answer = torch.empty_like(operands[0], dtype=result)
        # Arguments go by pointers to them.
        places = [ctypes.c_void_p(t.data_ptr()) for t in (*operands, answer)]
        engine.invoke("run", *(ctypes.pointer(place) for place in places))
    return answer


def _memory(dtype: torch.dtype) -> str:
    """The integer of the same width."""
    return f"i{8 * dtype.itemsize}"


def all_halves() -> torch.Tensor:
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)


def around_narrow_values(narrow: torch.dtype) -> torch.Tensor:
    """All values of an 8-bit float, the middles between them, their neighbours in f32, and what lies far outside."""
    values = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(narrow).to(torch.float32)
    finite = values[torch.isfinite(values)].sort().values
    middles = (finite[1:] + finite[:-1]) / 2
    points = torch.cat(
        [finite, middles, finite * 1.03125, torch.tensor([448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0, 1e30])]
    )
    up, down = torch.nextafter(points, torch.tensor(torch.inf)), torch.nextafter(points, torch.tensor(-torch.inf))
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 1e-45, -1e-45])
    return torch.cat([points, up, down, -points, special])


@pytest.mark.parametrize("narrow", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("wide", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_to_8_bit_floats_as_torch_rounds(narrow: torch.dtype, wide: torch.dtype) -> None:
    x = all_halves() if wide == torch.float16 else around_narrow_values(narrow).to(wide)
    found = evaluated(f"%r = arith.truncf %x0 : {ELEMENT[wide]} to {ELEMENT[narrow]}", narrow, x)
    expected = x.to(torch.float32).to(narrow)
    if narrow == torch.float8_e4m3fn:
        # What rounds to more than 448 is NaN, as where MLIR folds it; torch has had it so, and as 448, by its version.
        expected = torch.where(x.abs() > 464, torch.tensor(torch.nan), expected.float()).to(narrow)
    both_nan = torch.isnan(found.float()) & torch.isnan(expected.float())
    assert torch.equal(found.view(torch.uint8)[~both_nan], expected.view(torch.uint8)[~both_nan])
    assert torch.equal(torch.isnan(found.float()), torch.isnan(expected.float()))


@pytest.mark.parametrize("narrow", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("wide", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_from_8_bit_floats(narrow: torch.dtype, wide: torch.dtype) -> None:
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(narrow)
    found = evaluated(f"%r = arith.extf %x0 : {ELEMENT[narrow]} to {ELEMENT[wide]}", wide, x)
    torch.testing.assert_close(found, x.to(wide), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integer_powers(dtype: torch.dtype) -> None:
    base = torch.arange(-12, 13, dtype=dtype).repeat_interleave(9)
    exponent = torch.arange(-2, 7, dtype=dtype).repeat(25)
    element = ELEMENT[dtype]
    found = evaluated(f"%r = math.ipowi %x0, %x1 : {element}", dtype, base, exponent)
    assert torch.equal(found, torch.pow(base, exponent))


def test_integer_powers_of_vectors_are_those_of_their_elements() -> None:
    base, exponent = torch.arange(1, 9, dtype=torch.int32), torch.full((8,), 3, dtype=torch.int32)
    body = (
        "%v = vector.from_elements %x0, %x1 : vector<2xi32>\n%w = math.ipowi %v, %v : vector<2xi32>\n"
        "%r = vector.extract %w[0] : i32 from vector<2xi32>"
    )
    assert torch.equal(evaluated(body, torch.int32, base, exponent), base**base)


def test_normal_numbers() -> None:
    x = all_halves()
    body = "%t = math.isnormal %x0 : f16\n%r = arith.extui %t : i1 to i8"
    smallest = torch.finfo(torch.float16).tiny
    expected = torch.isfinite(x) & (x.abs() >= smallest)
    assert torch.equal(evaluated(body, torch.int8, x).bool(), expected)


def test_every_expansion_is_among_the_operations_that_must_compile() -> None:
    bodies = "\n".join(body for element in ("f16", "f32", "i32") for _, body in operations_of(element))
    for op in (
        "math.ipowi",
        "math.isnormal",
        "math.fpowi",
        "gpu.shuffle",
        "gpu.subgroup_reduce",
        "gpu.all_reduce",
        "f8E5M2",
    ):
        assert op in bodies
