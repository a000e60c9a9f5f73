"""Attention forward: head sizes 64 and 128, full and causal, grouped heads, masks, 512 to 16384 keys, and single queries."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from cuda_case import Case, Made
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_TOKENS = 16384  # batch times length, so that every case fills the GPU


class Attention(nn.Module):
    """``scaled_dot_product_attention`` of tensors (batch, heads, length, size).

    ``by_library``: cuDNN, the fastest there is; where that does not take the inputs, FlashAttention or torch itself.
    """

    def __init__(self, *, causal: bool = False, by_library: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.by_library = by_library

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Shapes as in torch; fewer heads of keys than of queries are shared."""
        grouped = query.size(1) != key.size(1)
        if not self.by_library:
            return scaled_dot_product_attention(query, key, value, mask, is_causal=self.causal, enable_gqa=grouped)
        order = [
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.MATH,
        ]
        with sdpa_kernel(order, set_priority=True):
            return scaled_dot_product_attention(query, key, value, mask, is_causal=self.causal, enable_gqa=grouped)


class ByHand(nn.Module):
    """Attention as textbooks write it: scores, a triangular mask, softmax, weighted sum."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(batch, heads, length, size) each."""
        length = query.size(-2)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        return scores.masked_fill(future, -math.inf).softmax(-1) @ value


@dataclass(frozen=True)
class _Shape:
    """``shared``: query heads for each head of K and V; ``mask``: "float" or "keys" (which keys of a batch may be seen)."""

    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    dtype: str = "bf16"
    causal: bool = False
    shared: int = 1
    mask: str = ""
    by_hand: bool = False

    @property
    def name(self) -> str:
        """What the tables call it."""
        length = str(self.keys) if self.queries == self.keys else f"{self.queries}x{self.keys}"
        parts = [
            f"attention_d{self.size}_{self.batch}x{self.heads}x{length}",
            *(["causal"] if self.causal else []),
            *([f"gqa{self.shared}"] if self.shared > 1 else []),
            *([f"{self.mask}_mask"] if self.mask else []),
            *(["by_hand"] if self.by_hand else []),
            self.dtype,
        ]
        return "_".join(parts)


def _case(shape: _Shape) -> Case:
    def make() -> Made:
        torch.manual_seed(shape.batch + shape.keys + shape.size)
        kind = _DTYPES[shape.dtype]
        few = shape.heads // shape.shared
        sizes = [(shape.heads, shape.queries), (few, shape.keys), (few, shape.keys)]
        inputs = [torch.randn(shape.batch, heads, length, shape.size).to(kind) for heads, length in sizes]
        if shape.mask == "float":
            inputs.append(torch.randn(1, 1, shape.queries, shape.keys).to(kind))
        elif shape.mask == "keys":
            inputs.append(torch.rand(shape.batch, 1, 1, shape.keys) > 0.1)
        return (ByHand() if shape.by_hand else Attention(causal=shape.causal)), tuple(inputs)

    rows, bits = shape.batch * shape.heads * shape.queries, {"f32": 4}.get(shape.dtype, 2)
    moved = (2 * rows + 2 * shape.batch * shape.heads // shape.shared * shape.keys) * shape.size * bits
    if shape.mask == "float":
        moved += shape.queries * shape.keys * bits
    seen = shape.keys / 2 if shape.causal else shape.keys  # causal attention needs half of the products
    group = "attention_decode" if shape.queries < 16 else "attention_f32" if shape.dtype == "f32" else "attention"

    def eager() -> nn.Module:
        return Attention(causal=shape.causal, by_library=True)

    library = None if shape.by_hand or shape.dtype == "f32" else eager
    return Case(shape.name, group, make, moved, int(4 * rows * seen * shape.size), shape.dtype, library)


_SQUARE = [
    _Shape(max(1, _TOKENS // length), 2048 // size, length, length, size, causal=causal)
    for size in (64, 128)
    for causal in (False, True)
    for length in (512, 1024, 2048, 4096, 8192, 16384)
]
CASES: tuple[Case, ...] = tuple(
    _case(shape)
    for shape in (
        *_SQUARE,
        *(_Shape(2, 32, length, length, 128, causal=True, shared=4) for length in (2048, 4096, 8192)),
        *(_Shape(4, 32, length, length, 64, causal=True, shared=8) for length in (2048, 4096)),
        _Shape(4, 32, 4096, 4096, 128, "f16"),
        _Shape(4, 32, 4096, 4096, 128, "f16", causal=True),
        _Shape(1, 8, 1000, 1000, 128, "f16"),
        _Shape(2, 16, 1000, 1000, 64, causal=True),
        _Shape(4, 16, 2048, 2048, 96, causal=True),
        _Shape(4, 8, 2048, 2048, 256, causal=True),
        _Shape(4, 16, 2048, 2048, 64, mask="float"),
        _Shape(4, 16, 2048, 2048, 128, mask="keys"),
        _Shape(4, 16, 2048, 2048, 64, by_hand=True),
        *(_Shape(batch, 32, 1, 8192, 128) for batch in (1, 8)),
        *(_Shape(batch, 32, 1, 8192, 128, shared=4) for batch in (1, 8, 32)),
        _Shape(4, 16, 1024, 1024, 64, "f32"),
        _Shape(4, 16, 1024, 1024, 64, "f32", causal=True),
    )
)
