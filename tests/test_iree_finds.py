"""What random graphs have found on target iree-cpu, as tests of its kind."""

from __future__ import annotations

import pytest
import torch
from several import assert_as_eager
from torch.nn import functional as F

pytestmark = pytest.mark.target


def test_a_window_at_a_single_position_may_leave_the_end_of_the_image() -> None:
    """IREE folds unit dimensions as well, and failed, or read the wrong elements."""
    programs = {
        "1-d": lambda x, y: F.max_pool1d(x[0], 3, 3, 0, 2),
        "2-d": lambda x, y: F.max_pool2d(x[..., :1], (1, 2), (1, 3), (0, 1)),
        "3-d": lambda x, y: F.max_pool3d(y, (3, 1, 2), (3, 2, 1), (0, 0, 1), (1, 2, 1)),
        "mean": lambda x, y: F.avg_pool2d(x, (3, 1), 9),
        "convolution": lambda x, y: F.conv2d(x, torch.ones(2, 1, 3, 1).to(x), stride=(9, 1)),
    }
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1, 1, 8, 6, generator=generator), torch.randn(1, 1, 4, 8, 5, generator=generator)
    assert_as_eager(programs, *images, route="linalg", target="iree-cpu")
