"""Cases that memory bandwidth bounds: elementwise chains, transpositions, reductions, softmax and norms.

Sizes are bytes moved: 512 MB is far beyond the L2 cache of an H200 (50 MB), 64 MB is a layer of a large model.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from cuda_case import Case, Made
from torch import nn

LARGE, SMALL = 512 << 20, 64 << 20  # bytes moved
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
Shape = tuple[int, ...]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class Permute(nn.Module):
    """Another order of the dimensions, in memory."""

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.order).contiguous()


def case(name: str, group: str, module: Callable[[], nn.Module], shapes: tuple[Shape, ...], dtype: str, moved: int) -> Case:
    """A case on random inputs of one dtype; the name is the seed."""

    def make() -> Made:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        inputs = tuple(torch.randn(shape, generator=generator).to(DTYPES[dtype]) for shape in shapes)
        return module().eval(), inputs

    return Case(name, group, make, moved, 0, dtype)


def size_of(dtype: str) -> int:
    """Bytes of an element."""
    return DTYPES[dtype].itemsize


# ----------------------------------------------------------------------------------------------------------- elementwise

ELEMENTWISE: dict[str, tuple[Callable[..., torch.Tensor], int]] = {  # function, number of inputs
    "relu": (torch.relu, 1),
    "add": (torch.add, 2),
    "swiglu": (lambda x, y: F.silu(x) * y, 2),
    "gelu": (F.gelu, 1),
    "chain": (lambda x, y: torch.tanh(x * 0.5 + 1.0) * torch.sigmoid(y) - x, 2),
}


def elementwise() -> Iterator[Case]:
    """Every function on both dtypes and sizes; casts; a bias and a column that are broadcast; an odd number of elements."""
    for name, (function, inputs) in ELEMENTWISE.items():
        for dtype in DTYPES:
            for label, total in (("512mb", LARGE), ("64mb", SMALL)):
                rows = total // ((inputs + 1) * size_of(dtype) * 4096)
                moved = rows * 4096 * (inputs + 1) * size_of(dtype)
                shapes = ((rows, 4096),) * inputs
                yield case(f"{name}_{dtype}_{label}", "elementwise", partial(Function, function), shapes, dtype, moved)
    count = LARGE // 6
    yield case("cast_f32_to_bf16", "elementwise", lambda: Function(lambda x: x.bfloat16()), ((count,),), "f32", 6 * count)
    yield case("cast_bf16_to_f32", "elementwise", lambda: Function(lambda x: x.float()), ((count,),), "bf16", 6 * count)
    count = LARGE // 8 - 3
    yield case("relu_f32_odd", "elementwise", lambda: Function(torch.relu), ((count,),), "f32", 8 * count)
    rows, moved = LARGE // (8 * 4096), LARGE
    for name, other in (("bias", (4096,)), ("column", (rows, 1))):
        yield case(f"{name}_f32", "elementwise", lambda: Function(torch.mul), ((rows, 4096), other), "f32", moved)


# ---------------------------------------------------------------------------------------------------------- transposition

TRANSPOSED: dict[str, tuple[Shape, tuple[int, ...]]] = {  # shape for four-byte elements, order of the dimensions
    "transpose": ((8192, 8192), (1, 0)),
    "transpose_odd": ((8191, 8191), (1, 0)),
    "channels_last": ((64, 256, 64, 64), (0, 2, 3, 1)),
    "channels_first": ((64, 64, 64, 256), (0, 3, 1, 2)),
    "heads": ((32, 2048, 16, 64), (0, 2, 1, 3)),
}


def transpositions() -> Iterator[Case]:
    """Permutations with and without the innermost dimension, and one with an elementwise op."""
    for name, (shape, order) in TRANSPOSED.items():
        for dtype in DTYPES:
            moved = 2 * size_of(dtype) * torch.Size(shape).numel()
            yield case(f"{name}_{dtype}", "transpose", partial(Permute, order), (shape,), dtype, moved)
    shape = (8192, 8192)
    moved = 3 * 4 * torch.Size(shape).numel()
    yield case("transpose_add_f32", "transpose", lambda: Function(lambda x, y: x.t() + y), (shape, shape), "f32", moved)


# -------------------------------------------------------------------------------------------------------------- reductions

REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "argmax": torch.argmax,
}  # fmt: skip
REDUCED: dict[str, tuple[Shape, int | tuple[int, ...]]] = {  # shape for four-byte elements, dimensions
    "last": ((32768, 4096), -1),
    "long": ((64, 1 << 21), -1),
    "first": ((32768, 4096), 0),
    "middle": ((64, 512, 4096), 1),
    "all": ((32768, 4096), (0, 1)),
}


def reductions() -> Iterator[Case]:
    """Reductions over the last, the first, the middle and all dimensions."""
    for name, function in REDUCTIONS.items():
        for where, (shape, dims) in REDUCED.items():
            if name == "argmax" and not isinstance(dims, int):
                continue
            for dtype in DTYPES:
                moved = size_of(dtype) * torch.Size(shape).numel()
                module = partial(Function, partial(function, dim=dims))
                yield case(f"{name}_{where}_{dtype}", "reduction", module, (shape,), dtype, moved)


# -------------------------------------------------------------------------------------------------------------------- rows


def _row_modules(columns: int, dtype: torch.dtype) -> dict[str, Callable[[], nn.Module]]:
    return {
        "softmax": lambda: Function(lambda x: F.softmax(x, -1)),
        "log_softmax": lambda: Function(lambda x: F.log_softmax(x, -1)),
        "layer_norm": lambda: _with_random_parameters(nn.LayerNorm(columns, dtype=dtype)),
        "rms_norm": lambda: _with_random_parameters(nn.RMSNorm(columns, dtype=dtype)),
    }


def _with_random_parameters(module: nn.Module) -> nn.Module:
    """Parameters that are not all 0 or 1, so that using the wrong one shows."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def rows() -> Iterator[Case]:
    """Softmax and norms over rows of many lengths, two of them odd."""
    for dtype, kind in DTYPES.items():
        for columns in (64, 512, 1024, 1025, 2048, 4096, 5000, 8192, 16384, 32768, 65536):
            for label, total in (("512mb", LARGE), ("64mb", SMALL)):
                if label == "64mb" and columns not in (1024, 4096, 32768):
                    continue
                count = total // (2 * size_of(dtype) * columns)
                for name, module in _row_modules(columns, kind).items():
                    if name == "log_softmax" and columns not in (1024, 32768):
                        continue
                    moved = 2 * count * columns * size_of(dtype)
                    full = f"{name}_{columns}_{dtype}_{label}"
                    yield case(full, "rows", module, ((count, columns),), dtype, moved)
    middle, images = (64, 512, 1024), (64, 256, 64, 64)
    moved = 2 * 4 * torch.Size(middle).numel()
    yield case("softmax_middle_f32", "rows", lambda: Function(lambda x: F.softmax(x, 1)), (middle,), "f32", moved)
    moved = 2 * 4 * torch.Size(images).numel()
    yield case("group_norm_f32", "rows", lambda: _with_random_parameters(nn.GroupNorm(32, 256)), (images,), "f32", moved)


CASES: tuple[Case, ...] = (*elementwise(), *transpositions(), *reductions(), *rows())
