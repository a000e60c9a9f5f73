"""What tests of several areas share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

AllowTf32 = Callable[[bool, bool], None]


@pytest.fixture
def allow_tf32() -> Iterator[AllowTf32]:
    """``allow_tf32(products, convolutions)`` sets torch's settings; they are as before after the test."""

    def set_both(products: bool, convolutions: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = products
        torch.backends.cudnn.allow_tf32 = convolutions

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield set_both
    set_both(*before)


@pytest.fixture
def without_tf32(allow_tf32: AllowTf32) -> None:
    """f32 is multiplied as f32 on CUDA: torch allows TF32 in convolutions unless told otherwise, eager on a CPU has none."""
    allow_tf32(False, False)
