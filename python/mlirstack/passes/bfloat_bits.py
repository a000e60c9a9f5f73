"""bf16 values as the 16-bit integers that they are stored as.

By the time a module is in the LLVM dialect all arithmetic on bf16 is done in f32 and conversions are integer arithmetic, so
a bf16 is only moved.  LLVM's x86 back end aborts the process on some moves (vectors of bf16 made of scalars, where the
processor has AVX512-BF16), and its vectorizers make them out of scalar code; on integers it does not.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

# Ops that move a value, whatever its type.
_MOVES = frozenset(
    {
        "llvm.load", "llvm.store", "llvm.insertelement", "llvm.extractelement", "llvm.shufflevector", "llvm.select",
        "llvm.mlir.undef", "llvm.mlir.poison", "llvm.mlir.zero", "llvm.freeze", "llvm.br", "llvm.cond_br", "llvm.bitcast",
        "llvm.intr.vector.extract", "llvm.intr.vector.insert", "llvm.intr.vector.deinterleave2",
    }
)  # fmt: skip


@dataclass(frozen=True)
class BfloatBits(PythonPass):
    """Before: LLVM dialect.  After: no value inside a function is a bf16 or a vector of them, except around ops that compute
    with one, which keep their type between two bitcasts."""

    name: ClassVar[str] = "mlirstack-bfloat-bits"

    def apply(self, module: Any) -> None:
        if not any(_holds(op) for op in walk(module)):  # most modules hold none
            return
        for function in [op for op in walk(module) if op.name == "llvm.func" and len(op.regions[0].blocks)]:
            operations = list(walk(function))
            moves = [op for op in operations if op.name in _MOVES or _is_convertible_constant(op)]
            blocks = list(function.regions[0].blocks)
            kept: set[Any] = set()
            with ir.InsertionPoint.at_block_begin(blocks[0]), function.location:
                kept.update(*(_keep_result(argument) for argument in blocks[0].arguments))
            for op in operations:
                if op not in moves:
                    kept.update(_keep(op))
            # From here on only values that ops compute with are bf16, and the bitcasts to and from integers.
            for op in walk(function):
                if _is_convertible_constant(op):
                    _integer_constant(op)
                for result in op.results:
                    _retype(result, kept)
            for block in blocks[1:]:
                for argument in block.arguments:
                    _retype(argument, kept)


def _holds(op: Any) -> bool:
    """Is a bf16, or a vector of them, among the results of ``op`` or the arguments of its blocks?"""
    if any(_bits(result.type) is not None for result in op.results):
        return True
    blocks = (block for region in op.regions for block in region.blocks)
    return any(_bits(argument.type) is not None for block in blocks for argument in block.arguments)


def _bits(kind: Any) -> Any | None:
    """The integer type of the same bits as ``kind``, if that is bf16 or a vector of it."""
    if isinstance(kind, ir.BF16Type):
        return ir.IntegerType.get_signless(16)
    if isinstance(kind, ir.VectorType) and isinstance(kind.element_type, ir.BF16Type):
        return ir.VectorType.get(kind.shape, ir.IntegerType.get_signless(16))
    return None


def _retype(value: Any, kept: set[Any]) -> None:
    bits = _bits(value.type)
    if bits is not None and value not in kept:
        value.set_type(bits)


def _keep(op: Any) -> list[Any]:
    """Bitcasts around an op that is no move: its operands come out of integers, its results go into them.

    Returns the values that stay bf16.
    """
    kept: list[Any] = []
    with ir.InsertionPoint(op), op.location:
        for i, operand in enumerate(op.operands):
            bits = _bits(operand.type)
            if bits is not None:
                llvm = dialect("llvm")
                op.operands[i] = llvm.bitcast(operand.type, llvm.bitcast(bits, operand))
                kept.append(op.operands[i])
    for result in op.results:
        if _bits(result.type) is not None:
            with ir.InsertionPoint.after(op), op.location:
                kept += _keep_result(result)
    return kept


def _keep_result(value: Any) -> list[Any]:
    """Let the uses of ``value`` have an integer, cast at the current insertion point; the value itself stays as it is."""
    bits = _bits(value.type)
    if bits is None:
        return []
    llvm = dialect("llvm")
    integer = llvm.bitcast(bits, value)
    value.replace_all_uses_except(llvm.bitcast(value.type, integer), [integer.owner.operation])
    return [value]


def _is_convertible_constant(op: Any) -> bool:
    if op.name != "llvm.mlir.constant" or _bits(op.results[0].type) is None:
        return False
    value = op.attributes["value"]
    return isinstance(value, ir.FloatAttr) or (isinstance(value, ir.DenseElementsAttr) and value.is_splat)


def _integer_constant(op: Any) -> None:
    value, bits = op.attributes["value"], _bits(op.results[0].type)
    is_vector = isinstance(value, ir.DenseElementsAttr)
    number = ir.FloatAttr(value.get_splat_value() if is_vector else value).value
    (pattern,) = struct.unpack("<h", struct.pack("<f", number)[2:])
    integer = ir.IntegerAttr.get(ir.IntegerType.get_signless(16), pattern)
    op.attributes["value"] = ir.DenseElementsAttr.get_splat(bits, integer) if is_vector else integer
