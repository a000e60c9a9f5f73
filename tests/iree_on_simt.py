"""Programs with our kernels inside, executed without a GPU: what IREE does with ``flow.dispatch``, by the SIMT emulator.

Takes a lowering for ``iree-cuda`` up to the stage ``program``.  Kernels come from its stage ``gpu``, before NVVM; everything
else about a launch (which buffers in which order, constants, workgroups) is read from the program that IREE is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from simt.host import Program
from simt.launch import Options, run_blocks

from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import function, walk
from mlirstack.ir.parameters import marked_parameters
from mlirstack.ir.text import parse_module
from mlirstack.lowering import Lowering
from mlirstack.passes import functions
from mlirstack.passes.abi import ARGUMENT, MAIN

_DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i1": torch.bool,
}  # fmt: skip
_ARITHMETIC = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": lambda a, b: -(-a // b),
}  # fmt: skip


@dataclass(frozen=True)
class _Buffer:
    """A tensor in the emulated memory."""

    address: int
    element: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """How large it is."""
        return int(np.prod(self.shape, dtype=int)) * _DTYPES[self.element].itemsize


def _shape(kind: Any, sizes: Iterator[Any]) -> tuple[int, ...]:
    """The shape of a tensor type whose dynamic sizes are the next of ``sizes``."""
    return tuple(int(next(sizes)) if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank))


def run_program(lowering: Lowering, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The results of ``@main`` for the user's inputs (tensors and integers)."""
    module = lowering.payload
    main = function(module, MAIN)
    given, parameters = iter(inputs), lowering.program.parameters
    names = marked_parameters(main)
    with module.context:
        assert all(ARGUMENT in attributes for attributes in functions.argument_attributes(main))
    values = [parameters[names[i]] if i in names else next(given) for i in range(len(main.arguments))]
    return _Interpreter(lowering).run(main, values)


class _Interpreter:
    def __init__(self, lowering: Lowering) -> None:
        stage = lowering["gpu"].data
        assert isinstance(stage, bytes)
        self._program = Program(parse_module(stage, new_context()), Options())
        self._memory = self._program.memory
        exports = [op for op in walk(lowering.payload) if op.name == "hal.executable.export"]
        self._exports = {functions.name_of(op): op for op in exports}

    def run(self, main: Any, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """Execute a straight line of dispatches, views and index arithmetic."""
        env = {
            argument: self._place(argument.type, value) for argument, value in zip(main.arguments, arguments, strict=True)
        }
        for op in (o.operation for o in main.regions[0].blocks[0].operations):
            if op.name == "func.return":
                return [self._read(env[value]) for value in op.operands]
            results = self._execute(op, [env[value] for value in op.operands])
            env.update(zip(op.results, results, strict=True))
        raise AssertionError("@main does not return")

    def _execute(self, op: Any, operands: list[Any]) -> list[Any]:
        if op.name == "flow.dispatch":
            return self._dispatch(op, operands)
        if op.name == "arith.constant":
            return [ir.IntegerAttr(op.attributes["value"]).value]
        if op.name == "arith.index_cast":
            return [np.int64(operands[0]).astype(np.int32 if str(op.results[0].type) == "i32" else np.int64)]
        if op.name in _ARITHMETIC:
            return [_ARITHMETIC[op.name](*map(np.int64, operands))]
        if op.name == "tensor.dim":
            return [np.int64(operands[0].shape[operands[1]])]
        kind = ir.RankedTensorType(op.results[0].type)
        if op.name == "tensor.empty":
            return [self._new(kind, iter(operands))]
        if op.name in ("tensor.extract_slice", "tensor.insert_slice"):
            return [self._slice(op, operands, kind)]
        assert op.name in ("tensor.expand_shape", "tensor.collapse_shape"), f"the interpreter does not know {op.name}"
        return [_Buffer(operands[0].address, operands[0].element, _shape(kind, iter(operands[1:])))]

    def _slice(self, op: Any, operands: list[Any], kind: Any) -> _Buffer:
        """A part of rows, read where it lies as IREE does, or written into a copy of the whole."""
        is_read = op.name == "tensor.extract_slice"
        whole = operands[0] if is_read else operands[1]
        offsets, sizes = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes"))
        shape = list(whole.shape)
        assert sizes[1:] == shape[1:], "the interpreter knows slices without gaps"
        start = int(offsets[0] * np.prod(shape[1:], dtype=int)) * _DTYPES[whole.element].itemsize
        if is_read:
            return _Buffer(whole.address + start, whole.element, tuple(kind.shape))
        copy = self._new(kind, iter(shape))
        for target, source in ((copy.address, whole), (copy.address + start, operands[0])):
            self._memory.copy(source.address + np.arange(source.bytes), target + np.arange(source.bytes), 1)
        return copy

    def _dispatch(self, op: Any, operands: list[Any]) -> list[Any]:
        """Bindings are what is passed, then new results; a result that is tied takes the place of an operand."""
        name = ir.SymbolRefAttr(ir.ArrayAttr(op.attributes["entry_points"])[0]).value[-1]
        export = self._exports[name]
        workload, count, varying, _ = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
        sizes = iter(operands[workload + count + varying :])  # those of the results
        grid, passed = operands[:workload], operands[workload : workload + count]
        constants = [value for value in passed if not isinstance(value, _Buffer)]
        tied = [-1] * len(op.results)
        if "tied_operands" in op.attributes:
            tied = [ir.IntegerAttr(entry).value for entry in ir.ArrayAttr(op.attributes["tied_operands"])]
        kinds = [ir.RankedTensorType(result.type) for result in op.results]
        results = [
            self._new(kind, sizes) if number < 0 else replace(passed[number], shape=_shape(kind, sizes))
            for kind, number in zip(kinds, tied, strict=True)
        ]
        bindings = [value for value in passed if isinstance(value, _Buffer)]
        bindings += [result for result, number in zip(results, tied, strict=True) if number < 0]
        self._check_layout(export, len(bindings), len(constants))
        threads = [ir.IntegerAttr(n).value for n in ir.ArrayAttr(export.attributes["workgroup_size"])]
        shared = "workgroup_local_memory"
        size = ir.IntegerAttr(export.attributes[shared]).value if shared in export.attributes else 0
        kernel = self._program.kernel(f"{name}_device::{name}")
        arguments = [*(np.int64(buffer.address) for buffer in bindings), *constants]
        run_blocks(kernel, arguments, tuple(map(int, grid)), tuple(threads), size)
        return results

    @staticmethod
    def _check_layout(export: Any, bindings: int, constants: int) -> None:
        layout = str(export.attributes["layout"])
        assert layout.count("#hal.pipeline.binding<") == bindings
        assert f"constants = {constants}" in layout or (constants == 0 and "constants" not in layout)

    # ------------------------------------------------------------------------------------------------------------ memory

    def _new(self, kind: Any, sizes: Iterator[Any]) -> _Buffer:
        """Memory that nothing has written to: the emulator complains about reads of it."""
        buffer = _Buffer(0, str(kind.element_type), _shape(kind, sizes))
        return replace(buffer, address=int(self._memory.allocate(max(1, buffer.bytes), "buffer")))

    def _place(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        kind = ir.RankedTensorType(kind)
        buffer = self._new(kind, (size for axis, size in enumerate(value.shape) if kind.is_dynamic_dim(axis)))
        if value.numel():
            contents = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
            self._memory.write_array(buffer.address, contents)
        return buffer

    def _read(self, buffer: _Buffer) -> torch.Tensor:
        data = self._memory.read_array(buffer.address, (buffer.bytes,), np.dtype(np.uint8))
        return torch.from_numpy(data).view(_DTYPES[buffer.element]).reshape(buffer.shape)
