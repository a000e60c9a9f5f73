"""ONNX models as models like any other: ONNX's reference evaluator is their eager, torch-mlir's importer their front end.

Weights (initialisers) become parameters under their own names; what shapes and axes are read from stays in the graph.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mlirstack.errors import UnsupportedError, UsageError
from mlirstack.frontend.onnx.file import OnnxFile, Tensor, first_line, read_onnx, torch_name
from mlirstack.frontend.program import ArgumentSpec, OutputSpec, Program, ResultSpec, Signature

# Operands of these tell the shape of the result, or numbers that conversions want to see.
_READ_AS_CONSTANTS = frozenset({"Resize", "Upsample", "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"})
_INLINE_INTEGERS = 1024  # integer tensors of at most that many elements stay in the graph: shapes, axes, small tables
_DYNAMIC_SIZE = 2  # of the first dynamic dimension in example inputs; each further one is larger by one


class OnnxModule(nn.Module):
    """The model as ONNX's reference evaluator computes it, in NumPy: its definition, and as slow as that.

    Weights are buffers, so that the model can be copied and converted; inputs are given in the order of the file.
    :meth:`program` is what torch.export is for other modules.
    """

    def __init__(self, file: OnnxFile, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._file = file
        self._weights = tuple(weights)
        for position, tensor in enumerate(weights.values()):
            self.register_buffer(f"weight_{position}", tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """One tensor, or a tuple where the model has more outputs."""
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(self._file.model)
        names = [value.name for value in self._file.inputs]
        given = {name: tensor.detach().numpy() for name, tensor in zip(names, inputs, strict=True)}
        for position, name in enumerate(self._weights):
            given[name] = self.get_buffer(f"weight_{position}").numpy()
        results = tuple(torch.as_tensor(result) for result in evaluator.run(None, given))
        return results[0] if len(results) == 1 else results

    def program(self) -> Program:
        """Import the graph; it stands at level "onnx".  :class:`UnsupportedError` where the importer refuses it."""
        weights = {name: self.get_buffer(f"weight_{position}") for position, name in enumerate(self._weights)}
        return _program(self._file, weights)


def load_onnx(path: Path, seed: int = 0) -> tuple[OnnxModule, tuple[torch.Tensor, ...]]:
    """The model in a file, and example inputs from ``seed``; :class:`UsageError` where it is none.

    Example inputs: normal numbers; integers are 0 or 1, which are valid tokens, positions and masks everywhere.
    """
    file = read_onnx(path)
    weights = _lift_weights(file.model)
    return OnnxModule(file, weights), _examples(file.inputs, seed)


def _lift_weights(model: Any) -> dict[str, torch.Tensor]:
    """Make the weights of ``model`` inputs of its graph; their values by name."""
    import onnx

    graph = model.graph
    wanted = {name for node in graph.node if node.op_type in _READ_AS_CONSTANTS for name in node.input}
    declared = {value.name: value for value in graph.input}
    weights: dict[str, torch.Tensor] = {}
    for stored in list(graph.initializer):
        if stored.name in wanted or not _is_weight(onnx, stored):
            continue
        weights[stored.name] = _torch_tensor(onnx, stored)
        if stored.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(stored.name, stored.data_type, stored.dims))
        graph.initializer.remove(stored)
    return weights


def _is_weight(onnx: Any, stored: Any) -> bool:
    dtype = torch_name(onnx, stored.data_type)
    if dtype is None:
        raise UsageError(f"'{stored.name}' has elements of type {onnx.TensorProto.DataType.Name(stored.data_type)}")
    elements = 1
    for size in stored.dims:
        elements *= size
    integers = not getattr(torch, dtype).is_floating_point and not getattr(torch, dtype).is_complex
    return elements > (_INLINE_INTEGERS if integers else 1)


def _torch_tensor(onnx: Any, stored: Any) -> torch.Tensor:
    array = onnx.numpy_helper.to_array(stored)
    if torch_name(onnx, stored.data_type) == "bfloat16":  # NumPy has no such type: ml_dtypes' is taken by its bits
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _examples(inputs: tuple[Tensor, ...], seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    names = dict.fromkeys(size for value in inputs for size in value.shape if isinstance(size, str))
    sizes = {name: _DYNAMIC_SIZE + position for position, name in enumerate(names)}
    examples = []
    for value in inputs:
        shape = [sizes[size] if isinstance(size, str) else size for size in value.shape]
        dtype = getattr(torch, value.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            examples.append(torch.randn(shape, generator=generator).to(dtype))
        else:
            examples.append(torch.randint(0, 2, shape, generator=generator).to(dtype))
    return tuple(examples)


# --------------------------------------------------------------------------------------------------------------- import


def _program(file: OnnxFile, weights: dict[str, torch.Tensor]) -> Program:
    from mlirstack.frontend.onnx.importer import import_onnx  # needs MLIR; the model can be evaluated without

    inputs = {value.name: value for value in file.inputs}
    arguments: list[ArgumentSpec] = []
    for value in file.model.graph.input:
        if value.name in weights:
            tensor = weights[value.name]
            dtype = str(tensor.dtype).removeprefix("torch.")
            arguments.append(ArgumentSpec(value.name, "parameter", tuple(tensor.shape), dtype))
        elif value.name in inputs:
            given = inputs[value.name]
            arguments.append(
                ArgumentSpec(given.name, "input", given.shape, given.dtype, leaf=list(inputs).index(given.name))
            )
    try:
        module = import_onnx(copy.deepcopy(file.model), tuple(a.name for a in arguments if a.kind == "parameter"))
    except (NotImplementedError, KeyError, ValueError, AssertionError) as error:
        raise UnsupportedError(f"{file.name} cannot be imported: {first_line(error)}") from error
    return Program(file.name, module, "onnx", _signature(file, tuple(arguments)), dict(weights))


def _signature(file: OnnxFile, arguments: tuple[ArgumentSpec, ...]) -> Signature:
    leaf = 0
    output = leaf if len(file.outputs) == 1 else (leaf,) * len(file.outputs)
    dynamic = [size for value in file.inputs for size in value.shape if isinstance(size, str)]
    return Signature(
        arguments=arguments,
        results=tuple(ResultSpec(value.shape, value.dtype) for value in file.outputs),
        outputs=tuple(
            OutputSpec("result", index=i, shape=value.shape, dtype=value.dtype) for i, value in enumerate(file.outputs)
        ),
        in_spec=pytree.treespec_dumps(pytree.tree_structure(((leaf,) * len(file.inputs), {}))),
        out_spec=pytree.treespec_dumps(pytree.tree_structure(output)),
        dynamic=dict.fromkeys(dynamic, (1, None)),
    )
