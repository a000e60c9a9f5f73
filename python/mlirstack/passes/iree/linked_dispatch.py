"""What IREE compiles around a kernel that it links: a function that finds the kernel's data in every buffer and calls it.

A base of what kernels over rows (:mod:`mlirstack.passes.iree.row_dispatch`) and over blocks
(:mod:`mlirstack.passes.iree.block_dispatch`) have in common; in comes the declaration of a kernel, out go values for its
dispatch and the text of the function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import StageError
from mlirstack.passes import functions
from mlirstack.passes.iree.executables import KernelExport
from mlirstack.passes.iree.linked_code import ENTRY_PREFIX
from mlirstack.passes.iree.split import DESTINATIONS, OVERWRITTEN


@dataclass(frozen=True)
class Launch:
    """Values of a dispatch: workgroups along three axes, 32-bit numbers, the dynamic sizes of its results."""

    grid: Sequence[Any]
    numbers: Sequence[Any]
    result_sizes: Sequence[Any]


@dataclass(frozen=True)
class LinkedKernel(ABC):
    """A kernel as its program sees it: the argument numbers of what it reads, then of what it writes, and their types."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    types: dict[int, Any]

    @property
    def buffers(self) -> list[int]:
        """Argument numbers in the order in which IREE binds them."""
        return [*self.reads, *self.writes]

    def export(self) -> KernelExport:
        """How IREE passes buffers to it: what it reads, what it writes, the sizes that are dynamic."""
        return KernelExport(self.name, len(self.reads), len(self.writes), self.dynamic_sizes())

    def dynamic_sizes(self) -> int:
        """How many sizes it is told."""
        return 0

    @abstractmethod
    def launch(self, operands: Sequence[Any]) -> Launch:
        """Values for a dispatch that takes the place of a call with ``operands``, made at the insertion point."""

    @abstractmethod
    def extent(self, number: int) -> int:
        """Elements of an argument that one call reaches, to describe its buffer with."""

    @abstractmethod
    def workgroup(self, call: Sequence[str]) -> list[str]:
        """Text of what a workgroup does: ``call`` once or several times, each behind ``%place<n>``, the first element of
        buffer number ``n`` for that call."""

    def function(self) -> str:
        """The function that IREE dispatches, and the declaration of what it calls."""
        layout = self.export().layout()
        taken = ", ".join(f"memref<{self.types[number].element_type}>, index" for number in sorted(self.types))
        lines = ['%zero = "arith.constant"() {value = 0 : index} : () -> index']
        for place, number in enumerate(self.buffers):
            lines += self._buffer(place, number, layout)
        call: list[str] = []
        for place, number in enumerate(self.buffers):
            call += [
                f"%width{place} = arith.constant {self.types[number].element_type.width // 8} : index",
                f"%element{place} = arith.addi %begin{place}, %place{place} : index",
                f"%byte{place} = arith.muli %element{place}, %width{place} : index",
            ]
        symbol = f"{ENTRY_PREFIX}{self.name}"
        given = ", ".join(f"%buffer{place}, %byte{place}" for place in map(self.buffers.index, sorted(self.types)))
        lines += [*self.workgroup([*call, f"func.call @{symbol}({given}) : ({taken}) -> ()"]), "return"]
        body = "\n".join(f"  {line}" for line in lines)
        linked = "attributes {hal.import.static, llvm.bareptr = true}"
        return f"func.func private @{symbol}({taken}) {linked}\nfunc.func @{self.name}() {{\n{body}\n}}"

    def _buffer(self, place: int, number: int, layout: str) -> list[str]:
        """``%buffer<n>`` and ``%begin<n>``, the address of a binding and the element that it begins with."""
        element = self.types[number].element_type
        whole = f"memref<{max(1, self.extent(number))}x{element}>"
        subspan = (
            f"layout = {layout}, binding = {place} : index, alignment = 64 : index, operandSegmentSizes = array<i32: 1, 0>"
        )
        return [
            f'%bound{place} = "hal.interface.binding.subspan"(%zero) {{{subspan}}} : (index) -> {whole}',
            f'%buffer{place}, %begin{place}, %length{place}, %stride{place} = "iree_codegen.extract_strided_metadata"'
            f"(%bound{place}) : ({whole}) -> (memref<{element}>, index, index, index)",
        ]


def roles(declaration: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[int, Any]]:
    """Argument numbers that a kernel reads and writes, and their tensor types; :class:`StageError` where results are not
    written to arguments."""
    name, inputs = functions.name_of(declaration), functions.type_of(declaration).inputs
    tensors = {i: ir.RankedTensorType(kind) for i, kind in enumerate(inputs) if isinstance(kind, ir.RankedTensorType)}
    writes = tuple(ir.DenseI64ArrayAttr(declaration.attributes[DESTINATIONS]))
    if set(writes) != set(ir.DenseI64ArrayAttr(declaration.attributes[OVERWRITTEN])) or len(set(writes)) != len(writes):
        raise StageError(f"kernel '{name}' does not write its results to arguments of its own", stage="program")
    return tuple(i for i in tensors if i not in writes), writes, tensors


def index_constant(value: int) -> Any:
    """A number of type index, made at the insertion point."""
    return dialect("arith").ConstantOp(ir.IndexType.get(), value).result


def sum_of_products(name: str, terms: Sequence[tuple[str, int]]) -> list[str]:
    """Text of ``%<name>``, the sum of values times numbers."""
    lines, total = [], "%zero"
    for i, (value, factor) in enumerate(terms):
        lines += [
            f"%{name}_factor{i} = arith.constant {factor} : index",
            f"%{name}_term{i} = arith.muli {value}, %{name}_factor{i} : index",
            f"%{name}_sum{i} = arith.addi {total}, %{name}_term{i} : index",
        ]
        total = f"%{name}_sum{i}"
    return [*lines, f"%{name} = arith.addi {total}, %zero : index"]
