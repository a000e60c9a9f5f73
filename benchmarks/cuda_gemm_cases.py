"""Matrix products: sizes of language models, cubes, few rows, odd sizes, all layouts, batches, and what follows them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from cuda_case import Case, Made
from torch import Tensor, nn
from torch.nn import functional as F

_DTYPES = {
    "f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2, "i8": torch.int8,
}  # fmt: skip
_BYTES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "i8": 1}
_RESULT_BYTES = {**_BYTES, "e4m3": 2, "e5m2": 2, "i8": 4}


class Product(nn.Module):
    """``a @ b`` where each factor may come transposed: "nt" takes b as (n, k), as a linear layer keeps its weight."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(…, m, k) and (…, k, n), or their transposes → (…, m, n)."""
        a = a if self.layout[0] == "n" else a.transpose(-1, -2)
        return a @ (b if self.layout[1] == "n" else b.transpose(-1, -2))


class Fp8Product(nn.Module):
    """fp8 factors, both with K contiguous, summed in f32, rounded to bf16.  Of e5m2 by e5m2 no library has a product."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(m, k), (n, k) → (m, n)."""
        return torch.mm(a.to(torch.float32), b.to(torch.float32).t()).to(torch.bfloat16)


class IntegerProduct(nn.Module):
    """i8 factors, both with K contiguous, summed in i32: what quantised layers compute."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(m, k), (n, k) → (m, n)."""
        return torch._int_mm(a, b.t())


class ScaledProduct(nn.Module):
    """The same by the library's call."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(m, k), (n, k) → (m, n)."""
        one = torch.ones((), device=a.device)
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)


class Linear(nn.Module):
    """A linear layer and what follows it: "none", "relu", "gelu", "gelu_tanh" or "silu", then a residual if there is one."""

    def __init__(self, inputs: int, outputs: int, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.activation = activation

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """(rows, inputs) → (rows, outputs)."""
        y = self.linear(x)
        if self.activation == "gelu_tanh":
            y = F.gelu(y, approximate="tanh")
        elif self.activation != "none":
            y = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[self.activation](y)
        return y if residual is None else y + residual


class SwigluMlp(nn.Module):
    """down(silu(gate(x)) * up(x)), without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width), unchanged in shape."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


def _product(m: int, n: int, k: int, dtype: str = "bf16", layout: str = "nt", batch: int = 0, group: str = "gemm") -> Case:
    def make() -> Made:
        torch.manual_seed(m + n + k)
        lead = (batch,) if batch else ()
        a, b = (m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)
        if dtype == "i8":
            return IntegerProduct(), tuple(torch.randint(-128, 128, shape, dtype=torch.int8) for shape in (a, b))
        module = Fp8Product() if dtype in ("e4m3", "e5m2") else Product(layout)
        return module, tuple(torch.randn(*lead, *shape).to(_DTYPES[dtype]) for shape in (a, b))

    count = max(batch, 1)
    total = count * ((m + n) * k * _BYTES[dtype] + m * n * _RESULT_BYTES[dtype])
    name = f"matmul_{f'{batch}x' if batch else ''}{m}x{n}x{k}_{layout}_{dtype}"
    eager: Callable[[], nn.Module] | None = ScaledProduct if dtype == "e4m3" else None
    return Case(name, group, make, total, 2 * count * m * n * k, dtype, eager)


def _linear(m: int, n: int, k: int, activation: str, *, residual: bool = False, dtype: str = "bf16") -> Case:
    def make() -> Made:
        torch.manual_seed(m + n + k)
        kind = _DTYPES[dtype]
        inputs = (torch.randn(m, k).to(kind), *([torch.randn(m, n).to(kind)] if residual else []))
        return Linear(k, n, activation).eval().to(kind), inputs

    size = ((m + n) * k + n + m * n * (2 if residual else 1)) * _BYTES[dtype]
    name = f"linear_{m}x{n}x{k}_{activation}{'_residual' if residual else ''}_{dtype}"
    return Case(name, "linear", make, size, 2 * m * n * k, dtype)


def _swiglu(rows: int, width: int, hidden: int, dtype: str = "bf16") -> Case:
    def make() -> Made:
        torch.manual_seed(rows)
        return SwigluMlp(width, hidden).eval().to(_DTYPES[dtype]), (torch.randn(rows, width).to(_DTYPES[dtype]),)

    size = (3 * width * hidden + 2 * rows * width) * _BYTES[dtype]
    return Case(f"swiglu_{rows}x{width}x{hidden}_{dtype}", "linear", make, size, 6 * rows * width * hidden, dtype)


_CUBES = (1024, 2048, 4096, 8192)
_MODELS = ((4096, 14336, 4096), (4096, 4096, 14336), (2048, 6144, 4096), (512, 14336, 4096))
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LAYOUTS = ("nt", "nn", "tn", "tt")
_ODD = ((4096, 4096, 2044), (1000, 1545, 2048), (1000, 1544, 2040), (1023, 1545, 1021))


def _sixteen_bits(dtype: str, group: str) -> tuple[Case, ...]:
    """Cubes, sizes of language models, few rows, all layouts, batches."""
    return (
        *(_product(size, size, size, dtype, group=group) for size in _CUBES),
        *(_product(*shape, dtype, group=group) for shape in _MODELS),
        *(_product(rows, 4096, 4096, dtype, group=group) for rows in _ROWS),
        *(_product(size, size, size, dtype, layout, group=group) for size in (1024, 4096) for layout in ("nn", "tn", "tt")),
        *(_product(rows, 4096, 4096, dtype, "nn", group=group) for rows in (1, 16, 64)),
        *(_product(1024, 1024, 1024, dtype, layout, batch=16, group=group) for layout in ("nt", "nn")),
        _product(512, 512, 128, dtype, batch=128, group=group),
    )


CASES: tuple[Case, ...] = (
    *_sixteen_bits("bf16", "gemm"),
    *_sixteen_bits("f16", "gemm_f16"),
    *(_product(*shape, group="gemm_odd") for shape in _ODD),
    *(_product(*shape, layout="nn", group="gemm_odd") for shape in _ODD[:2]),
    *(_product(size, size, size, "tf32", layout, group="gemm_tf32") for size in (2048, 4096) for layout in _LAYOUTS),
    *(_product(*shape, "e4m3", group="gemm_fp8") for shape in ((4096, 4096, 4096), (4096, 14336, 4096), (64, 4096, 4096))),
    _product(4096, 4096, 4096, "e5m2", group="gemm_fp8"),
    *(_product(*shape, "i8", group="gemm_i8") for shape in ((4096, 4096, 4096), (4096, 14336, 4096), (64, 4096, 4096))),
    *(_product(rows, 4096, 4096, "f32", group="gemv_f32") for rows in (1, 4)),
    *(_linear(4096, n, 4096, kind) for n in (4096, 14336) for kind in ("none", "relu", "gelu", "gelu_tanh", "silu")),
    *(_linear(4096, 4096, 14336, kind, residual=True) for kind in ("none", "gelu")),
    _linear(4096, 4096, 4096, "silu", residual=True, dtype="f16"),
    *(_linear(16, 4096, 4096, kind) for kind in ("none", "silu")),
    *(_swiglu(rows, 4096, 14336) for rows in (1, 16, 512, 4096)),
)
