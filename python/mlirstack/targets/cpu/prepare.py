"""What a program computes of its parameters alone, once: packed weights, transposes, tables.

Parameters go in, tensors come out: computed when the program is loaded, or read from a file that was written when its bundle
was built.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from mlirstack.errors import BundleError
from mlirstack.frontend.parameters import ALIGNMENT, DTYPE_CODES, TensorSpec, create_tensors
from mlirstack.frontend.program import Signature
from mlirstack.passes import abi
from mlirstack.targets.cpu.loader import LoadedObject
from mlirstack.targets.cpu.memref import Frame, Layout, Returned, dtype_of, plain, point, static_shape

Parameters = Mapping[str, torch.Tensor]


def prepared(
    code: LoadedObject, signature: Signature, parameters: Parameters, ahead: Mapping[str, np.ndarray]
) -> list[torch.Tensor]:
    """The results of @prepare, where there is one: those that :func:`prepare_ahead` has left, else computed now.

    :class:`BundleError` where what it has left does not belong to this object.
    """
    function = code.abi.function(abi.PREPARE)
    if function is None:
        return []
    if not ahead:
        return _run(code, function, signature, parameters, [_empty(value) for value in function.outs])
    try:
        return [_tensor(ahead[str(number)], _spec(value)) for number, value in enumerate(_results(function))]
    except (KeyError, RuntimeError) as error:
        raise BundleError(f"the packed parameters are not those of this object: {error}", hint="build it again") from None


def prepare_ahead(code: LoadedObject, signature: Signature, parameters: Parameters, file: Path) -> None:
    """Write the results of @prepare to ``file``, by their numbers; none where there are no results, or sizes that only their
    values tell."""
    function = code.abi.function(abi.PREPARE)
    if function is None or not all(_is_storable(value) for value in _results(function)):
        return
    specs = {str(number): _spec(value) for number, value in enumerate(_results(function))}
    stored = create_tensors(specs, file)
    memory = [_tensor(stored[name], spec) for name, spec in specs.items()]
    place = {position: number for number, position in enumerate(function.order)}
    outs = [memory[place[position]] for position in range(len(function.outs))]
    results = _run(code, function, signature, parameters, outs)
    for name, spec in specs.items():
        result = results[int(name)]
        if result.numel() and result.data_ptr() != stored[name].ctypes.data:
            _flat(stored[name], spec).copy_(result)


def _run(
    code: LoadedObject,
    function: abi.FunctionAbi,
    signature: Signature,
    parameters: Parameters,
    outs: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Call @prepare with memory for what it does not allocate itself."""
    _give_back_memory()
    layout = Layout.of(function)
    frame = Frame(layout)
    given = []
    for word, value in zip(layout.inputs, function.inputs, strict=True):
        assert value.index is not None
        given.append(plain(parameters[signature.arguments[value.index].name]))
        point(frame, word, given[-1])
        frame.set_shape(word, given[-1].shape)
    for word, tensor in zip(layout.outs, outs, strict=True):
        point(frame, word, tensor)
    code.entry(abi.PREPARE)(frame.address)
    returned = Returned(frame.words)
    values = [*outs]
    for word, value in zip(layout.returned, function.returned, strict=True):
        values.append(returned.adopt(word, value, dtype_of(value)))
    returned.close()
    return [values[i] for i in function.order]


def _results(function: abi.FunctionAbi) -> list[abi.ValueAbi]:
    values = [*function.outs, *function.returned]
    return [values[position] for position in function.order]


def _is_storable(value: abi.ValueAbi) -> bool:
    return value.is_static and str(dtype_of(value)).removeprefix("torch.") in DTYPE_CODES


def _empty(value: abi.ValueAbi) -> torch.Tensor:
    return torch.empty(static_shape(value), dtype=dtype_of(value))


def _spec(value: abi.ValueAbi) -> TensorSpec:
    shape, dtype = static_shape(value), dtype_of(value)
    return TensorSpec(str(dtype).removeprefix("torch."), shape, math.prod(shape) * dtype.itemsize)


def _tensor(contents: np.ndarray, spec: TensorSpec) -> torch.Tensor:
    """The tensor whose bytes these are: in place where they are aligned, else a copy."""
    flat = _flat(contents, spec)
    return flat if flat.data_ptr() % ALIGNMENT == 0 else flat.clone()


def _flat(contents: np.ndarray, spec: TensorSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if not spec.nbytes:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.from_numpy(contents).view(dtype).reshape(spec.shape)


def _give_back_memory() -> None:
    """What compilers have freed goes back to the system before as much is taken for packed weights; glibc keeps it else."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
