"""Which dtypes are half precision, and in which dtype eager computes with them: in one place for all decompositions."""

from __future__ import annotations

import torch

HALF = (torch.float16, torch.bfloat16)


def accumulation(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over ``dtype`` are kept, and formulas of several steps evaluated."""
    return torch.float32 if dtype in HALF else dtype
