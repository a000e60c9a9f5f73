"""Whole torch models through the emulator: lowered to launches, executed, called like any compiled model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mlirstack.frontend.program import ResultSpec
from mlirstack.lowering import Lowering
from mlirstack.targets.base import Executable
from mlirstack.targets.callable import CompiledFunction

from .host import run_plan
from .launch import Options


class Emulation(Executable):
    """What a CUDA executable does, on arrays."""

    def __init__(self, lowering: Lowering, options: Options | None = None) -> None:
        self._lowering, self._options = lowering, options

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main`` with the user's inputs."""
        program, given = self._lowering.program, iter(inputs)
        arguments = [
            program.parameters[spec.name] if spec.kind == "parameter" else next(given)
            for spec in program.signature.arguments
        ]
        results = run_plan(self._lowering.payload, arguments, options=self._options)
        return [_as_torch(value, spec) for value, spec in zip(results, program.signature.results, strict=True)]


def emulated(lowering: Lowering, *, options: Options | None = None) -> CompiledFunction:
    """A model that was lowered for CUDA up to the stage ``mapped`` or ``gpu``, as a callable."""
    program = lowering.program
    return CompiledFunction(Emulation(lowering, options), program.signature, program.parameters, lowering=lowering)


def run_model(lowering: Lowering, inputs: Sequence[Any], *, options: Options | None = None) -> list[torch.Tensor]:
    """The results of ``@main`` for ``inputs``, as torch tensors."""
    leaves = torch.utils._pytree.tree_leaves(tuple(inputs))
    specs = [spec for spec in lowering.program.signature.arguments if spec.kind == "input"]
    return Emulation(lowering, options).run([leaves[spec.leaf or 0] for spec in specs])


def _as_torch(value: Any, spec: ResultSpec) -> Any:
    """An array of the emulator as a tensor of the dtype that torch gives the result; a number as a Python scalar."""
    if spec.shape is None:
        return value.item()
    dtype = getattr(torch, spec.dtype)
    if value.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = {1: "uint8", 2: "int16"}[value.dtype.itemsize]
        return torch.from_numpy(value.view(bits).copy()).view(dtype)
    tensor = torch.from_numpy(value.copy())
    return (
        tensor.view(dtype) if dtype.itemsize == tensor.dtype.itemsize and not dtype.is_floating_point else tensor.to(dtype)
    )
