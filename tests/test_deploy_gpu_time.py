"""The time in which a GPU is busy, from the intervals of its kernels."""

from __future__ import annotations

import pytest
import torch

from mlirstack.deploy.gpu_time import CALLS, covered, gpu_time

pytestmark = pytest.mark.portable


def test_what_overlaps_counts_once_and_gaps_not_at_all() -> None:
    assert covered([]) == 0.0
    assert covered([(0.0, 2.0), (2.0, 3.0)]) == 3.0
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0)]) == 4.0
    assert covered([(0.0, 10.0), (1.0, 2.0), (3.0, 4.0), (9.0, 12.0)]) == 12.0
    assert covered([(1.0, 2.0), (1.0, 2.0)]) == 1.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.device
def test_kernels_one_after_the_other_are_their_sum() -> None:
    x = torch.randn(1 << 22, device="cuda")
    found = gpu_time(lambda: torch.exp(x).sum())
    assert sum(kernel.count for kernel in found.kernels) >= 2 and CALLS > 1
    total = sum(kernel.seconds for kernel in found.kernels)
    assert 0.98 * total <= found.busy <= 1.001 * total
