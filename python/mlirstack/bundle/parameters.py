"""The parameters of a bundle, mapped from their file: nothing is read before it is used, and all targets share one file.

The mapping is private: a model that updates its buffers changes its own pages, never the file.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlirstack.errors import BundleError
from mlirstack.frontend.parameters import DTYPE_CODES

if TYPE_CHECKING:
    import torch

_DTYPES = {code: name for name, code in DTYPE_CODES.items()}


@dataclass(frozen=True)
class MappedTensor:
    """One parameter: torch's name of its dtype, its shape, and its bytes in the mapping."""

    dtype: str
    shape: tuple[int, ...]
    contents: np.ndarray

    def array(self) -> np.ndarray:
        """As an array over the mapping."""
        return self.contents.view(numpy_dtype(self.dtype)).reshape(self.shape)

    def tensor(self) -> torch.Tensor:
        """As a tensor over the mapping."""
        import torch

        dtype = getattr(torch, self.dtype)
        if not self.contents.size:
            return torch.empty(self.shape, dtype=dtype)
        return torch.from_numpy(self.contents).view(dtype).reshape(self.shape)


def map_parameters(file: Path) -> dict[str, MappedTensor]:
    """Every tensor of a safetensors file; :class:`BundleError` where it is none."""
    try:
        whole = np.memmap(file, np.uint8, mode="c")
        size = int.from_bytes(whole[:8].tobytes(), "little")
        header: dict[str, Any] = json.loads(whole[8 : 8 + size].tobytes())
        return {name: _tensor(entry, whole[8 + size :]) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{file.name} cannot be read as safetensors: {error}", hint="copy the bundle again") from error


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for torch's name of one; those that NumPy lacks are those of ml_dtypes."""
    if name.startswith(("bfloat16", "float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _tensor(entry: dict[str, Any], data: np.ndarray) -> MappedTensor:
    first, last = entry["data_offsets"]
    shape, dtype = tuple(entry["shape"]), _DTYPES[entry["dtype"]]
    if not 0 <= first <= last <= data.size or last - first != math.prod(shape) * numpy_dtype(dtype).itemsize:
        raise ValueError(f"a tensor of shape {list(shape)} does not lie at {first}..{last}")
    return MappedTensor(dtype, shape, np.asarray(data[first:last]))
