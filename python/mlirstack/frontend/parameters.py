"""Parameters on disk: one safetensors file, written for bundles and for the replay of a dump.

Tensors are streamed into the file one by one, so that writing a model costs no second copy of it, and laid out so that they
can be used in place where the file is mapped: at addresses that are multiples of 64 bytes, wherever their sizes allow it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mlirstack.errors import BundleError

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64  # bytes, what IREE asks for

DTYPE_CODES: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""safetensors' code for torch's name of a dtype."""


def save_parameters(parameters: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write ``parameters`` to ``file``, or remove the file where there are none; :class:`BundleError` where it cannot be."""
    try:
        if not parameters:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(parameters, file)
    except OSError as error:
        raise _cannot_write(file, error) from error


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be stored: torch's name of its dtype, its shape, its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def create_tensors(specs: Mapping[str, TensorSpec], file: Path) -> dict[str, np.ndarray]:
    """Create ``file`` for tensors that are yet to be computed: their bytes in a mapping of the file, to be filled in place.

    :class:`BundleError` where there is no space for all of it.
    """
    head, spans = _layout(specs)
    size = max((last for _, last in spans.values()), default=0)
    try:
        with file.open("wb") as stream:
            stream.write(head)
            # Without space, writing to the mapping would end the process.
            os.posix_fallocate(stream.fileno(), 0, len(head) + size)
        data = np.memmap(file, np.uint8, mode="r+", offset=len(head)) if size else np.empty(0, np.uint8)
    except OSError as error:
        raise _cannot_write(file, error) from error
    return {name: np.asarray(data[first:last]) for name, (first, last) in spans.items()}


def _cannot_write(file: Path, error: OSError) -> BundleError:
    file.unlink(missing_ok=True)
    return BundleError(f"cannot write {file}: {error}", hint="free space, or name another directory")


def _write(parameters: Mapping[str, torch.Tensor], file: Path) -> None:
    specs = {name: _spec(name, tensor) for name, tensor in parameters.items()}
    head, spans = _layout(specs)
    with file.open("wb") as stream:
        stream.write(head)
        for name in spans:
            stream.write(_bytes(parameters[name]))


def _spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPE_CODES:
        raise BundleError(f"parameter '{name}' has dtype {dtype}, which safetensors cannot hold")
    return TensorSpec(dtype, tuple(tensor.shape), tensor.nbytes)


def _layout(specs: Mapping[str, TensorSpec]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """What the file begins with, and where each tensor lies behind that, in order."""
    # What would push its followers off the grid stands last; safetensors allows no holes between tensors.
    ordered = sorted(specs, key=lambda name: specs[name].nbytes % ALIGNMENT != 0)
    header, spans, offset = {}, {}, 0
    for name in ordered:
        spec = specs[name]
        spans[name] = offset, offset + spec.nbytes
        header[name] = {"dtype": DTYPE_CODES[spec.dtype], "shape": list(spec.shape), "data_offsets": spans[name]}
        offset += spec.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, spans


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor in row-major order: its own memory where it is dense, else a copy that lives as long as they."""
    import torch

    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy().data if dense.numel() else memoryview(b"")
