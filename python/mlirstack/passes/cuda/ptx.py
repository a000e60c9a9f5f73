"""LLVM IR to PTX by llvmlite's NVPTX back end, NVIDIA's libdevice linked in.

Shared memory is addressed in 32 bits (one kernel went from 162 to 126 registers that way).  No fast-math: denormals stay,
and f32 division and square root are IEEE's, as in eager's own kernels.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any

from mlirstack.errors import StageError
from mlirstack.passes.cuda.device_code import LLVM_COMMENT, PTX_COMMENT, TRIPLE, DeviceCode
from mlirstack.passes.cuda.toolkit import libdevice, ptx_for, ptx_needed_by
from mlirstack.pipeline.step import Translation

_OPTIONS = (
    "-nvptx-short-ptr",
    # libdevice asks; what LLVM has no answer for counts as no, and square roots would be approximate.
    "-nvvm-reflect-add=__CUDA_PREC_SQRT=1",
)


@dataclass(frozen=True)
class CompilePtx(Translation):
    """Before: LLVM IR of kernels.  After: PTX for ``arch`` (``sm_90a``), optimized.

    ``ptx_isa`` is the PTX version times ten, 83 for 8.3; 0 chooses the oldest that serves.  ``opt_level`` is LLVM's, 0 to 3.
    """

    name = "mlirstack-compile-ptx"
    arch: str = "sm_90a"
    ptx_isa: int = 0
    opt_level: int = 3

    def translate(self, payload: DeviceCode | str) -> DeviceCode:
        code = DeviceCode.read(payload, LLVM_COMMENT)
        isa = self.ptx_isa or max(ptx_for(self.arch), ptx_needed_by(code.body))
        return DeviceCode(ptx_of(code.body, self.arch, f"+ptx{isa}", self.opt_level), code.plan, PTX_COMMENT)

    def command(self, source: str) -> str:
        flags = [f"--mcpu={self.arch}", f"--mattr={self._features()}", f"--O={self.opt_level}"]
        return shlex.join(["mlirstack-translate", source, "--llvmir-to-ptx", *flags])

    def _features(self) -> str:
        return f"+ptx{self.ptx_isa or ptx_for(self.arch)}"


def ptx_of(text: str, arch: str, features: str, opt_level: int = 3) -> str:
    """PTX of LLVM IR ``text`` for processor ``arch`` with LLVM's ``features`` (``+ptx83``); :class:`StageError` with LLVM's
    message and the line."""
    llvm = _backend()
    try:
        module = llvm.parse_assembly(text)
        module.triple = TRIPLE
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, features=features, opt=opt_level)
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise StageError(f"LLVM does not accept the IR: {str(error).strip()}", stage="ptx") from None
    _link_libdevice(module)
    options = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    options.loop_vectorization = options.slp_vectorization = False  # threads are the vector
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


@cache
def _backend() -> Any:
    """llvmlite, its NVPTX back end ready.  Options are global to a process, but other targets never look at these."""
    import llvmlite.binding as llvm

    for option in _OPTIONS:
        llvm.set_option("mlirstack", option)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@cache
def _libdevice_bitcode() -> bytes:
    return libdevice().read_bytes()


def _link_libdevice(module: Any) -> None:
    """Link what ``module`` calls of libdevice; its functions become internal, so that LLVM inlines and drops them."""
    called = {f.name: f for f in module.functions if f.is_declaration and f.name.startswith("__nv_")}
    if not called:
        return
    own = {function.name for function in module.functions if not function.is_declaration}
    library = _backend().parse_bitcode(_libdevice_bitcode())
    library.triple, library.data_layout = module.triple, module.data_layout
    offered = {f.name: str(f.global_value_type) for f in library.functions if f.name in called}
    for name, function in called.items():
        if offered.get(name) != str(function.global_value_type):
            has = f"{name} as {offered[name]}" if name in offered else f"no function {name}"
            raise StageError(f"libdevice has {has}; {function.global_value_type} is called", stage="ptx")
    module.link_in(library)
    for function in module.functions:
        if not function.is_declaration and function.name not in own:
            function.linkage = "internal"
