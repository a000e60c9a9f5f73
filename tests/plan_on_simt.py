"""Launch plans executed without a GPU: the steps of a plan on an arena of bytes, its kernels by the SIMT emulator.

What the emulator's own runner does not see is proved here: offsets and lifetimes of buffers, expressions over sizes, checks,
constants, results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from simt.host import Program
from simt.launch import Options, run_blocks
from simt.tensor_maps import TensorMap

from mlirstack.bindings import ir
from mlirstack.errors import RuntimeCheckError
from mlirstack.lowering import Lowering
from mlirstack.passes.cuda.plan import Argument, Buffer, Check, Copy, Fill, Launch, LaunchPlan, PlannedFunction
from mlirstack.passes.cuda.plan_writer import plan_of
from mlirstack.targets.cuda.specialize import specialize

_DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i1": torch.bool,
}  # fmt: skip


def run_model_by_plan(lowering: Lowering, inputs: Sequence[Any]) -> list[Any]:
    """The results of a model that was lowered for CUDA up to the stage ``gpu``, as tensors and numbers."""
    signature, parameters = lowering.program.signature, lowering.program.parameters
    leaves, _ = torch.utils._pytree.tree_flatten((tuple(inputs), {}))
    arguments = [
        parameters[spec.name] if spec.kind == "parameter" else leaves[spec.leaf or 0] for spec in signature.arguments
    ]
    with lowering.payload.context, ir.Location.unknown():
        plan = LaunchPlan.from_json(plan_of(lowering.payload).to_json())
        return run_launch_plan(plan, lowering.payload, arguments)


def run_launch_plan(plan: LaunchPlan, module: Any, arguments: Sequence[Any]) -> list[Any]:
    """The results of ``@main``; ``module`` has the kernels, before NVVM."""
    prepare, main = plan.function("prepare"), plan.function("main")
    assert main is not None
    prepared = _Call(plan, prepare, module).run(arguments, []) if prepare is not None else []
    return _Call(plan, main, module).run(arguments, prepared)


def check_plan(plan: LaunchPlan) -> None:
    """Assert that a plan comes back from JSON as it was, and launches each of its kernels and no other."""
    assert LaunchPlan.from_json(plan.to_json()).to_json() == plan.to_json()
    launched = {step.kernel for function in plan.functions for step in function.steps if isinstance(step, Launch)}
    assert launched == {kernel.name for kernel in plan.kernels}


def _bytes_of(tensor: torch.Tensor) -> Any:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


class _Call:
    """One call of a planned function, in memory of its own."""

    def __init__(self, plan: LaunchPlan, function: PlannedFunction, module: Any) -> None:
        self.plan, self.function = plan, function
        self.program = Program(module, Options())
        self.memory = self.program.memory
        self.addresses: list[int] = []

    def run(self, arguments: Sequence[Any], prepared: Sequence[Any]) -> list[Any]:
        given = [(prepared if i.source == "prepared" else arguments)[i.index] for i in self.function.inputs]
        tensors = {n: value for n, value in enumerate(given) if self.function.inputs[n].shape is not None}
        shapes = {n: tuple(tensor.shape) for n, tensor in tensors.items()}
        scalars = {n: value for n, value in enumerate(given) if n not in tensors}
        planned = specialize(self.function, shapes, scalars)
        arena = self.memory.allocate(planned.arena_bytes or 0, "arena")
        self.addresses = [self._place(buffer, arena, tensors) for buffer in planned.buffers]
        for step in planned.steps:
            self._step(step)
        return [
            self._read(planned.buffers[result.buffer], self.addresses[result.buffer], tensors)
            if result.buffer >= 0
            else result.value
            for result in planned.results
        ]

    def _place(self, buffer: Buffer, arena: int, tensors: dict[int, Any]) -> int:
        if buffer.kind == "temporary":
            assert buffer.offset is not None
            return arena + buffer.offset
        address = self.memory.allocate(int(buffer.bytes), f"{buffer.kind} {buffer.index}")  # type: ignore[arg-type]
        if buffer.kind == "input":
            self.memory.write_array(address, _bytes_of(tensors[buffer.index]))
        elif buffer.kind == "constant":
            data = np.frombuffer(self.plan.constants[buffer.index].bytes(), np.uint8)
            assert data.size == buffer.bytes
            self.memory.write_array(address, data)
        return address

    def _read(self, buffer: Buffer, address: int, tensors: dict[int, Any]) -> torch.Tensor:
        shape = tuple(tensors[buffer.index].shape if buffer.kind == "input" else buffer.shape)
        if not buffer.bytes:
            return torch.empty(shape, dtype=_DTYPES[buffer.element])
        data = self.memory.read_array(address, (int(buffer.bytes),), np.dtype(np.uint8))  # type: ignore[arg-type]
        return torch.from_numpy(data).view(_DTYPES[buffer.element]).reshape(shape)

    def _step(self, step: Any) -> None:
        match step:
            case Launch():
                kernel = self.program.kernel(f"{step.kernel}_device::{step.kernel}")
                arguments = [self._argument(argument) for argument in step.arguments]
                run_blocks(kernel, arguments, step.grid, step.block, step.shared)
            case Copy():
                source = self.addresses[step.source] + step.source_offset + np.arange(step.bytes)
                target = self.addresses[step.destination] + step.destination_offset + np.arange(step.bytes)
                self.memory.copy(source, target, 1)
            case Check():
                if step.buffer < 0 or not self.memory.data[self.addresses[step.buffer] + step.offset]:
                    raise RuntimeCheckError(step.message)
            case Fill():
                raise AssertionError("the compiler writes no fills")

    def _argument(self, argument: Argument) -> Any:
        if argument.kind == "pointer":
            return np.int64(self.addresses[argument.buffer] + argument.offset)
        if argument.kind == "tensor_map":
            given = argument.tensor_map
            assert given is not None
            shape = (given.element, given.sizes, given.strides, given.box, given.swizzle, given.element_strides)
            layout = TensorMap(*shape, lower=given.lower, upper=given.upper)
            return layout.place(self.memory, self.addresses[argument.buffer] + argument.offset)
        dtypes = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}
        return dtypes[argument.kind](argument.value)
