"""Levels of abstraction: what a module may hold at each of them, and which level a given module is at."""

from __future__ import annotations

from dataclasses import dataclass, field

_STRUCTURE = frozenset({"builtin", "func"})
_TENSOR = _STRUCTURE | {
    "linalg", "tensor", "arith", "math", "complex", "scf", "cf", "affine", "index", "tm_tensor", "bufferization",
    "ml_program", "shape", "ub",
}  # fmt: skip
_VECTOR = _TENSOR | {"vector", "memref"}
_BUFFER = (_VECTOR - {"tensor", "ml_program", "shape"}) | {"omp"}
_LLVM = frozenset({"builtin", "llvm", "omp"})
# The host side of a GPU program, and what its kernels are written in before and after they reach NVVM.
_HOST = _STRUCTURE | {"arith", "memref", "gpu", "index", "cf", "ub"}
# Dialects that these bindings hold as unregistered ones.
IREE_DIALECTS = frozenset({"flow", "hal", "iree_codegen", "util"})
_GPU = _HOST | {"nvgpu", "nvvm", "llvm", "vector", "scf", "affine", "math", "complex"}


@dataclass(frozen=True)
class Level:
    """One level: its name, the file extension of a dump, the dialects allowed at it (None: not an MLIR module).

    ``foreign`` marks a level of MLIR that only another tool reads (:class:`~mlirstack.ir.foreign.ForeignModule`).
    """

    name: str
    doc: str
    extension: str = "mlir"
    dialects: frozenset[str] | None = field(default=None, repr=False)
    foreign: bool = False

    @property
    def is_module(self) -> bool:
        """Is what stands at this level a module of these bindings (and not text or bytes of another tool)?"""
        return self.dialects is not None


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level("fx", "the exported FX graph, as Python text", "py"),
        Level("onnx", "ONNX operators, held by the torch dialect", dialects=_STRUCTURE | {"torch"}),
        Level("torch", "torch dialect, one op per ATen op", dialects=_STRUCTURE | {"torch", "torch_c"}),
        Level("stablehlo", "StableHLO", dialects=_STRUCTURE | {"stablehlo", "chlo", "shape", "arith", "tensor", "math"}),
        Level("tosa", "TOSA, the tensor operator set", dialects=_STRUCTURE | {"tosa", "tensor", "arith", "math", "shape"}),
        Level("linalg", "Linalg on tensors", dialects=_TENSOR),
        Level("vector", "Vector ops over tiles of tensors", dialects=_VECTOR),
        Level("buffer", "vectors and loops over memrefs, no tensors", dialects=_BUFFER),
        Level(
            "scf", "structured loops over memrefs, no Linalg", dialects=_BUFFER - {"linalg", "tm_tensor", "bufferization"}
        ),
        Level("llvm", "LLVM dialect", dialects=_LLVM),
        Level("tiles", "tiles and vectors of kernels on their way to threads", dialects=_GPU | _BUFFER),
        Level("gpu", "kernels in gpu.module, launched by straight-line host functions", dialects=_GPU),
        Level("nvvm", "kernels in the LLVM and NVVM dialects, host functions as before", dialects=_HOST | {"nvvm", "llvm"}),
        Level("llvmir", "LLVM IR", "ll"),
        Level("ptx", "PTX, NVIDIA's virtual assembly", "ptx"),
        Level("cubin", "GPU object: an ELF file with machine code and constants", "cubin"),
        Level("sass", "machine code of the GPU, disassembled", "sass"),
        Level("table", "a table, for people", "txt"),
        Level("plan", "launch plan: what the host does to run the kernels", "json"),
        Level("object", "relocatable object file", "o"),
        Level("asm", "assembly of the object that runs", "s"),
        Level("program", "Linalg on tensors with IREE's dispatches of kernels inside", dialects=_TENSOR | IREE_DIALECTS),
        Level("iree", "IREE's dialects (util, flow, stream, hal, vm), read by IREE's compiler only", foreign=True),
        Level("vmfb", "IREE module: VM bytecode with native code inside", "vmfb"),
    )
}
