"""Which level a module stands at, told from the dialects of its operations and types."""

from __future__ import annotations

from typing import Any

from mlirstack.errors import UsageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.level import LEVELS
from mlirstack.ir.ops import is_onnx, walk

# A dialect that stands at one level only, in the order in which a module that mixes some of them is judged.
_OWNERS = (
    ("torch", "torch"), ("torch_c", "torch"), ("stablehlo", "stablehlo"), ("chlo", "stablehlo"), ("tosa", "tosa"),
)  # fmt: skip


def detect_level(module: Any) -> str:
    """The name of the level of ``module`` (an ``ir.Module``): onnx, torch, stablehlo, tosa, linalg, vector, buffer, scf,
    gpu, nvvm or llvm.

    Raises :class:`UsageError`, naming the op and its line, if an operation fits no level together with the others.
    """
    operations = list(walk(module))
    dialects = {op.name.split(".", 1)[0] for op in operations}
    types = {str(t) for op in operations for t in _types(op)}
    level = _gpu_level(operations) or _onnx_level(operations) or _level(dialects, types)
    allowed = LEVELS[level].dialects or frozenset()
    for op in operations:
        if op.name.split(".", 1)[0] not in allowed:
            raise UsageError(
                f"'{op.name}' at {source_line(op.location) or 'an unknown line'} does not belong to level '{level}', "
                f"which the other operations are at",
                hint="levels: " + ", ".join(name for name, entry in LEVELS.items() if entry.is_module),
            )
    return level


def _gpu_level(operations: list[Any]) -> str | None:
    """Where kernels stand: at nvvm once they are functions of the LLVM dialect; None where there are none."""
    names = {op.name for op in operations}
    if names & {"gpu.launch", "gpu.func"}:
        return "gpu"
    return "nvvm" if "gpu.module" in names else None


def _onnx_level(operations: list[Any]) -> str | None:
    """ONNX operators stand in the torch dialect, which has a level of its own."""
    return "onnx" if any(is_onnx(op) for op in operations) else None


def _level(dialects: set[str], types: set[str]) -> str:
    for dialect, level in _OWNERS:
        if dialect in dialects:
            return level
    if any("!torch." in t for t in types):
        return "torch"
    if "llvm" in dialects and "func" not in dialects:
        return "llvm"
    tensors, buffers = any("tensor<" in t for t in types), any("memref<" in t for t in types)
    if buffers and not tensors:
        return "buffer" if dialects & {"linalg", "tm_tensor", "bufferization"} else "scf"
    return "vector" if "vector" in dialects else "linalg"


def _types(op: Any) -> list[Any]:
    found = [value.type for value in (*op.operands, *op.results)]
    if "function_type" in op.attributes:
        found.append(op.attributes["function_type"])
    return found
