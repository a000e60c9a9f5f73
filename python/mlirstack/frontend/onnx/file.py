"""ONNX files, read and checked: a path comes in, a model with all shapes inferred goes out.

Whatever may be wrong with a file (damage, missing weights, operators of a newer ONNX) is found here, and said in one line.
The package ``onnx`` is imported when a file arrives; it is the extra ``onnx``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirstack.errors import MissingDependencyError, UsageError

# torch-mlir has no conversion of these, or a rough one (Gelu by tanh); ONNX says in other operators what they are.
_WRITTEN_OUT = ("Attention", "CausalConvWithState", "Gelu", "Swish")
OLDEST_OPSET = 13  # older models are converted to it: shapes and axes became operands there
_LARGEST = 2**31 - 1  # bytes of one protocol buffer message


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph: sizes are numbers or names of dynamic dimensions; ``dtype`` is torch's name."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True)
class OnnxFile:
    """A checked model (``onnx.ModelProto``): no local functions, opset 13 or newer, types of all values inferred."""

    name: str
    model: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def read_onnx(path: Path) -> OnnxFile:
    """The model in ``path``; :class:`UsageError` in one line for whatever is wrong with it."""
    onnx = _onnx()
    model = _checked(onnx, path, _parsed(onnx, path))
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_tensor(onnx, path, value) for value in model.graph.input if value.name not in stored)
    outputs = tuple(_tensor(onnx, path, value) for value in model.graph.output)
    return OnnxFile(path.stem, model, inputs, outputs)


def _onnx() -> Any:
    try:
        import onnx
        import onnx.inliner
        import onnx.reference
        import onnx.version_converter
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "ONNX models need the package onnx, which is not installed", hint="pip install 'mlirstack[onnx]'"
        ) from error
    return onnx


def _parsed(onnx: Any, path: Path) -> Any:
    """The message in the file, weights that lie beside it included."""
    if path.stat().st_size > _LARGEST:
        raise UsageError(f"{path} is larger than 2 GiB", hint="save it with its weights in a file of their own")
    # Of google.protobuf: onnx holds it, and names no errors of its own for it.
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise UsageError(f"{path} is not an ONNX model, or it is truncated") from error
    if not model.graph.output or not model.opset_import:
        raise UsageError(f"{path} is not an ONNX model, or it is truncated")
    newest = onnx.defs.onnx_opset_version()
    opset = _opset(model)
    if opset > newest:
        raise UsageError(
            f"{path} needs opset {opset} of ONNX, the installed onnx {onnx.__version__} knows up to {newest}",
            hint="export the model for an older opset",
        )
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except (onnx.checker.ValidationError, OSError, ValueError) as error:
        raise UsageError(f"{path}: its external data cannot be read: {first_line(error)}") from error
    return model


def _opset(model: Any) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def _checked(onnx: Any, path: Path, model: Any) -> Any:
    try:
        onnx.checker.check_model(model)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        model = onnx.inliner.inline_selected_functions(
            model, [("", name) for name in _WRITTEN_OUT], inline_schema_functions=True
        )
        if _opset(model) < OLDEST_OPSET:
            model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise UsageError(f"{path} is no valid ONNX model: {first_line(error)}") from error


def _tensor(onnx: Any, path: Path, value: Any) -> Tensor:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UsageError(f"{path}: '{value.name}' is a {(kind or 'value without type').removesuffix('_type')}, not a tensor")
    tensor = value.type.tensor_type
    dtype = torch_name(onnx, tensor.elem_type)
    if dtype is None:
        raise UsageError(f"{path}: '{value.name}' has elements of type {onnx.TensorProto.DataType.Name(tensor.elem_type)}")
    if not tensor.HasField("shape"):
        raise UsageError(
            f"{path}: the rank of '{value.name}' is not known", hint="give it a shape when the model is exported"
        )
    return Tensor(value.name, tuple(_size(value.name, axis, dim) for axis, dim in enumerate(tensor.shape.dim)), dtype)


def _size(name: str, axis: int, dim: Any) -> int | str:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or f"{name}_{axis}"


def torch_name(onnx: Any, element: int) -> str | None:
    """torch's name of an element type; None where torch has none, or where it is no number."""
    name = str(onnx.TensorProto.DataType.Name(element)).lower()
    known = {"float": "float32", "double": "float64"}.get(name, name)
    return known if known in _DTYPES else None


_DTYPES = frozenset(
    {"float64", "float32", "float16", "bfloat16", "complex64", "bool"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


def first_line(error: BaseException) -> str:
    """What an error of onnx says, in one line; its messages begin with blank lines, and hold the graph."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
