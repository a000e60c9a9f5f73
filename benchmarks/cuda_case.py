"""What the CUDA benchmarks measure: a model, its inputs, and how much work it must do at least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """One row of a table.

    ``make`` builds the module and its inputs on the CPU, from a fixed seed.  ``bytes``: every input and parameter read once,
    every result written once; ``flops``: multiplications and additions of the contractions.  ``eager`` is another module for
    the comparison with eager where a library call says the same (cuDNN's attention, for example); None: the module itself.
    ``dtype`` "tf32": f32, with torch's permission to multiply matrices as TF32.
    """

    name: str
    group: str
    make: Callable[[], Made]
    bytes: int
    flops: int
    dtype: str
    eager: Callable[[], nn.Module] | None = None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """torch's settings as this case wants them, both when it is compiled and when eager runs it."""
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
