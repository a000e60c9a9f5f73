"""Matrix products in f32 without TF32: cubes, layouts, odd sizes, few tiles of a long K, batches."""

from __future__ import annotations

import torch
from cuda_case import Case, Made
from cuda_gemm_cases import Linear, Product


def _product(m: int, n: int, k: int, layout: str = "nt", batch: int = 0, dtype: str = "f32") -> Case:
    def make() -> Made:
        torch.manual_seed(m + n + k)
        lead = (batch,) if batch else ()
        a, b = (m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)
        kind = torch.float64 if dtype == "f64" else torch.float32
        return Product(layout), tuple(torch.randn(*lead, *shape, dtype=kind) for shape in (a, b))

    count, size = max(batch, 1), 8 if dtype == "f64" else 4
    name = f"matmul_{f'{batch}x' if batch else ''}{m}x{n}x{k}_{layout}_{dtype}"
    return Case(name, f"gemm_{dtype}", make, count * (m * k + n * k + m * n) * size, 2 * count * m * n * k, dtype)


def _linear(m: int, n: int, k: int, activation: str) -> Case:
    def make() -> Made:
        torch.manual_seed(m + n + k)
        return Linear(k, n, activation).eval(), (torch.randn(m, k),)

    name = f"linear_{m}x{n}x{k}_{activation}_f32"
    return Case(name, "gemm_f32", make, (m * k + n * k + n + m * n) * 4, 2 * m * n * k, "f32")


CASES: tuple[Case, ...] = (
    *(_product(size, size, size) for size in (512, 1024, 2048, 4096)),
    *(_product(4096, 4096, 4096, layout) for layout in ("nn", "tn", "tt")),
    _product(1000, 1545, 2045),
    _product(1000, 1544, 2040, "nn"),
    _product(256, 256, 8192),
    _product(512, 512, 128, batch=64),
    _product(16, 4096, 4096),
    _linear(4096, 4096, 4096, "gelu"),
    _product(2048, 2048, 2048, dtype="f64"),
)
