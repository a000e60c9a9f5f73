"""NumPy arrays into a function of tensors and back out, and calls in the order of CUDA streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from mlirstack.bundle.parameters import numpy_dtype


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor over the array's memory, or over a copy where torch cannot have it: read-only, or negative strides."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype.name.startswith(("bfloat16", "float8")):
        return torch.from_numpy(array.view(f"u{array.dtype.itemsize}")).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """An array over the tensor's memory; of a tensor on a device, a copy."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(plain.dtype).removeprefix("torch.")
    if name.startswith(("bfloat16", "float8")):
        bits = torch.uint16 if plain.dtype.itemsize == 2 else torch.uint8
        return plain.contiguous().view(bits).numpy().view(numpy_dtype(name))
    array: np.ndarray = plain.numpy()
    return array


def call_with_arrays(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], device: str) -> Any:
    """Call ``function`` with arrays as tensors on ``device``; tensors of its output come back as arrays."""
    moved, moved_kwargs = pytree.tree_map(
        lambda leaf: tensor_of(leaf).to(device) if isinstance(leaf, np.ndarray) else leaf, (args, dict(kwargs))
    )
    output = function(*moved, **moved_kwargs)
    return pytree.tree_map(lambda leaf: array_of(leaf) if isinstance(leaf, torch.Tensor) else leaf, output)


def in_stream_order(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """``function`` for another thread: there it waits for what this thread's current stream has been told so far."""
    stream: torch.cuda.Stream = torch.cuda.current_stream(torch.device(device))

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.cuda.stream(stream):
            return function(*args, **kwargs)

    return call
