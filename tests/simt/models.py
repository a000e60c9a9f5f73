"""Whole torch models through the emulator: lowered to launches, executed, compared with eager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mlirstack.api import Lowering

from .host import run_plan
from .launch import Options


def run_model(lowering: Lowering, inputs: Sequence[Any], *, options: Options | None = None) -> list[torch.Tensor]:
    """The results of a model that was lowered for CUDA up to the stage ``mapped`` or ``gpu``, as torch tensors."""
    signature, parameters = lowering.program.signature, lowering.program.parameters
    leaves, _ = torch.utils._pytree.tree_flatten((tuple(inputs), {}))
    arguments = [
        parameters[spec.name] if spec.kind == "parameter" else leaves[spec.leaf or 0] for spec in signature.arguments
    ]
    results = run_plan(lowering.payload, arguments, options=options)
    return [as_tensor(array, result.dtype) for array, result in zip(results, signature.results, strict=True)]


def as_tensor(array: Any, dtype: str) -> torch.Tensor:
    """An array of the emulator as a tensor of torch's dtype of that name."""
    wanted = getattr(torch, dtype)
    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = {1: "uint8", 2: "int16"}[array.dtype.itemsize]
        return torch.from_numpy(array.view(bits).copy()).view(wanted)
    return torch.as_tensor(array.copy()).to(wanted)
