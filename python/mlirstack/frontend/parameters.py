"""Parameters on disk: one safetensors file, written for bundles and for the replay of a dump.

Tensors are streamed into the file one by one, so that writing a model costs no second copy of it, and laid out so that they
can be used in place where the file is mapped: at addresses that are multiples of 64 bytes, wherever their sizes allow it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
        file.unlink(missing_ok=True)
        raise BundleError(f"cannot write {file}: {error}", hint="free space, or name another directory") from error


def _write(parameters: Mapping[str, torch.Tensor], file: Path) -> None:
    # What would push its followers off the grid stands last; safetensors allows no holes between tensors.
    ordered = sorted(parameters, key=lambda name: parameters[name].nbytes % ALIGNMENT != 0)
    header: dict[str, object] = {}
    offset = 0
    for name in ordered:
        tensor = parameters[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPE_CODES:
            raise BundleError(f"parameter '{name}' has dtype {dtype}, which safetensors cannot hold")
        span = [offset, offset + tensor.nbytes]
        header[name] = {"dtype": DTYPE_CODES[dtype], "shape": list(tensor.shape), "data_offsets": span}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for name in ordered:
            stream.write(_bytes(parameters[name]))


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor in row-major order: its own memory where it is dense, else a copy that lives as long as they."""
    import torch

    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy().data if dense.numel() else memoryview(b"")
