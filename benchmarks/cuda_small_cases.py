"""Small cases of every emitter, for a memory and race checker: every kernel runs once, with edges.

python benchmarks/cuda_speed.py build small --group small      # --arch sm_80: those of older GPUs, which the driver compiles
compute-sanitizer --tool memcheck --error-exitcode 9 python benchmarks/cuda_speed.py check small     # racecheck, synccheck
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from cuda_case import Case, Made
from torch import Tensor, nn

_BF16, _F16, _F32 = torch.bfloat16, torch.float16, torch.float32


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _case(name: str, module: Callable[[], nn.Module], *inputs: Callable[[], Tensor], dtype: str = "f32") -> Case:
    def make() -> Made:
        torch.manual_seed(0)
        return module().eval(), tuple(x() for x in inputs)

    return Case(f"small_{name}", "small", make, 1 << 20, 0, dtype)


def _random(*shape: int, dtype: torch.dtype = _F32) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape).to(dtype)


def _function(function: Callable[..., Tensor]) -> Callable[[], nn.Module]:
    return lambda: _Function(function)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.size(-2) > 1, enable_gqa=q.size(1) != k.size(1))


def _gated(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def _integers(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(-128, 128, shape, dtype=torch.int8)


def _images() -> Tensor:
    return torch.randn(2, 32, 15, 17).to(_F16).to(memory_format=torch.channels_last)


def _convolution() -> nn.Module:
    return nn.Conv2d(32, 64, 3, padding=1, dtype=_F16).to(memory_format=torch.channels_last)


_LINEAR = _function(lambda x, w, b: torch.relu(F.linear(x, w, b)))
CASES: tuple[Case, ...] = (
    _case("elementwise_odd", _function(lambda x, y: F.silu(x) * y), _random(33, 1025), _random(33, 1)),
    _case("embedding", lambda: nn.Embedding(50, 24, dtype=_BF16), lambda: torch.arange(21) * 2 % 50),
    _case("transpose_odd", _function(lambda x: x.t().contiguous()), _random(131, 1025, dtype=_BF16)),
    _case("rows_odd", _function(lambda x: x.softmax(-1)), _random(9, 1025)),
    _case("rows_of_clusters", _function(lambda x: x.softmax(-1)), _random(3, 40004)),
    _case("rows_norm_of_clusters", lambda: nn.RMSNorm(65536), _random(3, 65536)),
    _case("rows_staying", lambda: nn.LayerNorm(32768, dtype=_BF16), _random(140, 32768, dtype=_BF16)),
    _case("group_norm", lambda: nn.GroupNorm(2, 8), _random(3, 8, 6, 6)),
    _case("columns", _function(lambda x: x.sum(0)), _random(1000, 36)),
    _case("split_sum", _function(lambda x: x.sum(-1)), _random(2, 300000)),
    _case("argmax", _function(lambda x: x.argmax(-1)), _random(20, 300)),
    _case("gemm_wgmma", _LINEAR, *(_random(*s, dtype=_BF16) for s in ((520, 264), (392, 264), (392,)))),
    _case("gemm_skinny", _LINEAR, *(_random(*s, dtype=_BF16) for s in ((16, 1024), (520, 1024), (520,)))),
    _case("gemm_odd", _LINEAR, *(_random(*s, dtype=_F16) for s in ((130, 67), (71, 67), (71,)))),
    _case("gemm_f32", _LINEAR, _random(65, 130), _random(33, 130), _random(33)),
    _case("gemv", _LINEAR, _random(1, 1000), _random(33, 1000), _random(33)),
    # Factors of odd pitch are copied first: their lines padded, or turned.
    _case("gemm_padded", _function(torch.matmul), _random(512, 515, dtype=_BF16), _random(515, 544, dtype=_BF16)),
    _case("gemm_turned", _function(torch.matmul), _random(512, 512, dtype=_BF16), _random(512, 545, dtype=_BF16)),
    _case("gemm_pair", _function(_gated), *(_random(*s, dtype=_BF16) for s in ((130, 264), (392, 264), (392, 264)))),
    _case("gemm_tf32", _function(torch.matmul), _random(130, 264), _random(264, 200), dtype="tf32"),
    _case("gemm_i8", _function(lambda x, y: torch._int_mm(x, y.t())), _integers(136, 272), _integers(208, 272)),
    _case("gemm_batched", _function(torch.matmul), _random(3, 136, 72, dtype=_F16), _random(3, 72, 144, dtype=_F16)),
    _case("convolution", _convolution, _images),
    _case("convolution_depthwise", lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), _random(2, 16, 15, 17)),
    _case("pooling", lambda: nn.MaxPool2d(3, 2, 1), _random(2, 8, 15, 17)),
    _case("scan", _function(lambda x: x.cumsum(-1)), _random(5, 300)),
    _case("sort", _function(lambda x: x.sort(-1).values), _random(5, 65)),
    _case("gather", _function(lambda x: torch.cat([x[:, 3:20], x[:, ::2]], 1)), _random(7, 65)),
    _case("attention_causal", _function(_attention), *[_random(1, 2, 200, 64, dtype=_F16)] * 3),
    _case("attention_long", _function(_attention), *[_random(1, 4, 1100, 128, dtype=_BF16)] * 3),
    _case("attention_odd", _function(_attention), *[_random(1, 2, 70, 13, dtype=_F16)] * 3),
    _case("attention_f32", _function(_attention), *[_random(1, 2, 70, 40)] * 3),
    _case(
        "attention_decode",
        _function(_attention),
        _random(2, 8, 1, 64, dtype=_BF16),
        *[_random(2, 2, 300, 64, dtype=_BF16)] * 2,
    ),
)
