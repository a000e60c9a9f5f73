"""Kernels for tests of the CUDA tool chain: one operation after another on the elements of buffers."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence

from mlirstack.bindings import new_context
from mlirstack.ir.ops import functions
from mlirstack.ir.text import parse_module
from mlirstack.passes.cuda.device_code import TranslateKernels
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.plan import Copy, KernelInfo, Launch, LaunchPlan, PlannedFunction
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.cuda.toolkit import libdevice
from mlirstack.pipeline.runner import run_steps

PLAN = LaunchPlan(
    "",
    (PlannedFunction("main", (), (), (Launch("copy", (4, 1, 1), (128, 1, 1), ()), Copy(0, 1, 64)), ()),),
    (KernelInfo("copy", "general", 128, 8192, bytes=1 << 20, flops=1 << 10),),
)

FLOATS = ("f16", "bf16", "f32", "f64")
F16 = ("f16", "bf16", "f32")  # those with a hardware maximum that keeps NaN
INTEGERS = ("i1", "i8", "i16", "i32", "i64")
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}

Body = tuple[str, str]  # name, and MLIR that makes %r of %x and %y

_UNARY = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "absf",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "round",
    "roundeven",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
_BINARY = [
    "math.powf",
    "math.atan2",
    "math.copysign",
    "arith.maximumf",
    "arith.minimumf",
    "arith.maxnumf",
    "arith.minnumf",
    "arith.divf",
    "arith.remf",
    "arith.addf",
    "arith.subf",
    "arith.mulf",
]
_INTEGER_BINARY = [
    "arith.addi",
    "arith.subi",
    "arith.muli",
    "arith.andi",
    "arith.ori",
    "arith.xori",
    "arith.maxsi",
    "arith.minsi",
    "arith.maxui",
    "arith.minui",
    "arith.divsi",
    "arith.divui",
    "arith.remsi",
    "arith.remui",
    "arith.floordivsi",
    "arith.ceildivsi",
    "arith.ceildivui",
    "arith.shli",
    "arith.shrsi",
    "arith.shrui",
]
_COMPLEX = ["exp", "log", "sqrt", "tanh", "sin", "cos", "rsqrt", "expm1", "log1p", "tan", "neg", "conj", "sign"]


def operations_of(element: str) -> list[Body]:
    """Every operation of arith, math and complex that takes ``element``, vectors and reductions among them."""
    return _float_operations(element) if element in FLOATS else _integer_operations(element)


def _float_operations(t: str) -> list[Body]:
    found = [(name, f"%r = math.{name} %x : {t}") for name in _UNARY]
    found += [(name, f"%r = {name} %x, %y : {t}") for name in _BINARY]
    found += [("negf", f"%r = arith.negf %x : {t}"), ("fma", f"%r = math.fma %x, %y, %x : {t}")]
    found += [("sincos", f"%r, %q = math.sincos %x : {t}")]
    for test in ("isnan", "isinf", "isfinite", "isnormal"):
        found.append((test, f"%q = math.{test} %x : {t}\n%r = arith.uitofp %q : i1 to {t}"))
    for predicate in ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"]:
        found.append((predicate, f"%q = arith.cmpf {predicate}, %x, %y : {t}\n%r = arith.select %q, %x, %y : {t}"))
    for other in (o for o in FLOATS if WIDTH[o] < WIDTH[t]):
        found.append((f"to {other}", f"%q = arith.truncf %x : {t} to {other}\n%r = arith.extf %q : {other} to {t}"))
    for integer in INTEGERS:
        for kind in "su":
            to, back = f"arith.fpto{kind}i", f"arith.{kind}itofp"
            found.append((f"{to} {integer}", f"%q = {to} %x : {t} to {integer}\n%r = {back} %q : {integer} to {t}"))
    for integer in ("i16", "i32", "i64"):
        power = f"%q = arith.fptosi %x : {t} to {integer}\n%r = math.fpowi %x, %q : {t}, {integer}"
        found.append((f"fpowi {integer}", power))
    if t != "f64":
        for narrow in ("f8E4M3FN", "f8E5M2"):
            found.append((narrow, f"%q = arith.truncf %x : {t} to {narrow}\n%r = arith.extf %q : {narrow} to {t}"))
    make = f"%z = complex.create %x, %y : complex<{t}>\n"
    for name in _COMPLEX:
        found.append((name, f"{make}%w = complex.{name} %z : complex<{t}>\n%r = complex.re %w : complex<{t}>"))
    for name in ("add", "sub", "mul", "div", "pow"):
        found.append((name, f"{make}%w = complex.{name} %z, %z : complex<{t}>\n%r = complex.im %w : complex<{t}>"))
    found += [(name, f"{make}%r = complex.{name} %z : complex<{t}>") for name in ("abs", "angle")]
    found += [(name, _on_vectors(t, name)) for name in ("math.exp", "math.tanh", "math.erf", "arith.negf")]
    found += [(name, _on_vectors(t, name, two=True)) for name in ("arith.maximumf", "arith.divf", "math.powf")]
    found += [(name, _reduction(t, name)) for name in ("add", "mul", "maximumf", "minimumf", "maxnumf", "minnumf")]
    found += [(name, _over_a_block(t, name)) for name in ("add", "maximumf", "minnumf")]
    found.append(("shuffle", _SHUFFLE.format(t=t)))
    found += [(name, _atomic(t, name)) for name in ("addf", "mulf", "maximumf", "minimumf", "assign")]
    return found


def _integer_operations(t: str) -> list[Body]:
    found = [(name, f"%r = {name} %x, %y : {t}") for name in _INTEGER_BINARY]
    found += [(name, f"%r = math.{name} %x : {t}") for name in ("absi", "ctlz", "cttz", "ctpop")]
    found += [("extended sum", f"%r, %q = arith.addui_extended %x, %y : {t}, i1")]
    found += [(name, f"%q, %r = arith.{name} %x, %y : {t}") for name in ("mulsi_extended", "mului_extended")]
    for predicate in ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]:
        found.append((predicate, f"%q = arith.cmpi {predicate}, %x, %y : {t}\n%r = arith.select %q, %x, %y : {t}"))
    for wide in (i for i in INTEGERS if WIDTH[i] > WIDTH[t]):
        sign, zero = f"%q = arith.extsi %x : {t} to {wide}\n", f"%z = arith.extui %x : {t} to {wide}\n"
        found.append((f"to {wide}", f"{sign}{zero}%w = arith.muli %q, %z : {wide}\n%r = arith.trunci %w : {wide} to {t}"))
    found += [(name, _on_vectors(t, name, two=True)) for name in ("arith.addi", "arith.muli", "arith.maxsi", "arith.minui")]
    found += [(name, _reduction(t, name)) for name in ("add", "maxsi", "minui", "and", "xor")]
    if t != "i1":
        found.append(("ipowi", f"%r = math.ipowi %x, %y : {t}"))
        found.append(("ipowi of vectors", _on_vectors(t, "math.ipowi", two=True)))
        found += [(name, _atomic(t, name)) for name in ("addi", "maxs", "mins", "maxu", "minu", "andi", "ori", "assign")]
        found.append(("index_cast", f"%q = arith.index_cast %x : {t} to index\n%r = arith.index_castui %q : index to {t}"))
    if t in ("i32", "i64"):
        found += [(name, _over_a_block(t, name)) for name in ("add", "maxsi", "minui", "and")]
        found.append(("shuffle", _SHUFFLE.format(t=t)))
    return found


def _on_vectors(t: str, name: str, *, two: bool = False) -> str:
    v = f"vector<4x{t}>"
    operands = "%v, %w" if two else "%v"
    return (
        f"%v = vector.broadcast %x : {t} to {v}\n%w = vector.broadcast %y : {t} to {v}\n"
        f"%q = {name} {operands} : {v}\n%r = vector.extract %q[2] : {t} from {v}"
    )


def _reduction(t: str, name: str) -> str:
    v = f"vector<4x{t}>"
    return f"%v = vector.from_elements %x, %y, %y, %x : {v}\n%r = vector.reduction <{name}>, %v : {v} into {t}"


def _over_a_block(t: str, name: str) -> str:
    warp = f"%q = gpu.subgroup_reduce {name} %x uniform : ({t}) -> {t}\n"
    return f"{warp}%r = gpu.all_reduce {name} %q uniform {{}} : ({t}) -> {t}"


_SHUFFLE = """%o = arith.constant 1 : i32
%m = arith.constant 32 : i32
%r, %valid = gpu.shuffle xor %x, %o, %m : {t}"""


def _atomic(t: str, name: str) -> str:
    return f"%r = memref.atomic_rmw {name} %x, %out[%i] : ({t}, memref<64x{t}>) -> {t}"


def kernel_module(element: str, bodies: Sequence[Body]) -> str:
    """``@kernel`` with each body in a scope of its own, on elements that no other body reads."""
    buffer = f"memref<{64 * len(bodies)}x{element}>"
    scopes = [
        f"""scf.if %go {{
        %first = arith.constant {64 * number} : index
        %at = arith.addi %i, %first : index
        %x = memref.load %a[%at] : {buffer}
        %y = memref.load %b[%at] : {buffer}
        {body}
        memref.store %r, %c[%at] : {buffer}
      }}"""
        for number, (_, body) in enumerate(bodies)
    ]
    return f"""gpu.module @kernels {{
      gpu.func @kernel(%a: {buffer}, %b: {buffer}, %c: {buffer}, %out: memref<64x{element}>, %go: i1) kernel
          attributes {{known_block_size = array<i32: 64, 1, 1>}} {{
      %i = gpu.thread_id x
      {"".join(scopes)}
      gpu.return }} }}"""


def compiled(text: str) -> str:
    """PTX of the kernels in a module at level gpu."""
    module = parse_module(text, new_context())
    run_steps(NVVM_STEPS, module)
    return CompilePtx().translate(TranslateKernels().translate(module)).body


SECOND_BACKEND = "numba_cuda_mlir"

# The package's own __init__ asks for numba and a GPU; its MLIR does not.
_SECOND_BACKEND_SCRIPT = """
import importlib.util, sys, types
package = types.ModuleType("numba_cuda_mlir")
package.__path__ = list(importlib.util.find_spec("numba_cuda_mlir").submodule_search_locations)
sys.modules["numba_cuda_mlir"] = package
from numba_cuda_mlir._mlir import ir, passmanager
from numba_cuda_mlir._mlir.dialects import gpu
with ir.Context() as context:
    context.allow_unregistered_dialects = True
    module = ir.Module.parse(sys.stdin.read())
    attach = "nvvm-attach-target{chip=sm_90a features=+ptx83 O=3 l=" + sys.argv[1] + "}"
    passmanager.PassManager.parse(f"builtin.module({attach},gpu-module-to-binary{{format=isa}})").run(module.operation)
    binaries = [op for op in module.body.operations if op.operation.name == "gpu.binary"]
    objects = [gpu.ObjectAttr(binary.attributes["objects"][0]).object for binary in binaries]
    print("\\0".join(code.decode().rstrip("\\0") for code in objects), end="")
"""


def has_second_backend() -> bool:
    """Is numba-cuda-mlir installed?  It is not imported: two builds of MLIR must not share a process."""
    return importlib.util.find_spec(SECOND_BACKEND) is not None


def second_backend_ptx(text: str) -> list[str]:
    """PTX of each gpu.module of a module at level gpu: lowered to NVVM as ever, and then by the MLIR of numba-cuda-mlir."""
    module = parse_module(text, new_context())
    with module.context:
        for host in list(functions(module)):
            host.operation.erase()  # its memory is the launch plan's, which it has no part in
    run_steps(NVVM_STEPS, module)
    command = [sys.executable, "-c", _SECOND_BACKEND_SCRIPT, str(libdevice())]
    source = module.operation.get_asm(assume_verified=True)  # the short form, which differs least between versions
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")
