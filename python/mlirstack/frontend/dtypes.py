"""Element types of MLIR and dtypes of torch: one table, read in both directions."""

from __future__ import annotations

import re

TORCH_NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i1": "bool",
    **{f"{sign}i{bits}": f"int{bits}" for sign in ("", "s") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "index": "int64", "complex<f32>": "complex64", "complex<f64>": "complex128",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
    "!torch.int": "int64", "!torch.float": "float64", "!torch.bool": "bool",
}  # fmt: skip

_TORCH_TENSOR = re.compile(r"!torch\.v?tensor<\[([^\]]*)\],(.+)>")
_BUILTIN_SHAPED = re.compile(r"(?:tensor|memref)<((?:(?:\d+|\?)x)*)([^,]+?)(?:, .*)?>")


def parse_type(text: str) -> tuple[tuple[int | None, ...] | None, str | None]:
    """Shape (None: a scalar; a size of None: dynamic) and torch dtype name (None: no torch dtype) of an MLIR type's text."""
    sizes: list[str] | None = None
    element = text
    if found := _TORCH_TENSOR.fullmatch(text):
        sizes, element = [s for s in found[1].split(",") if s], found[2]
    elif found := _BUILTIN_SHAPED.fullmatch(text):
        sizes, element = [s for s in found[1].split("x") if s], found[2]
    shape = None if sizes is None else tuple(None if s == "?" else int(s) for s in sizes)
    return shape, TORCH_NAMES.get(element)
