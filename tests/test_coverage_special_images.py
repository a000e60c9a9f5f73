"""Windows and samples of images that hold NaN and infinities, and samples at places that are none: as eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from several import assert_as_eager
from torch import Tensor
from torch.nn import functional as F

pytestmark = pytest.mark.portable

NAN, INF = float("nan"), float("inf")


def sprinkled(x: Tensor, numbers: Sequence[float], seed: int = 0, share: float = 0.15) -> Tensor:
    """``x`` with some elements replaced."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.tensor(numbers)[torch.randint(0, len(numbers), x.shape, generator=generator)]
    return torch.where(torch.rand(x.shape, generator=generator) < share, chosen, x)


IMAGE = sprinkled(torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(1)), [NAN, INF, -INF])
VOLUME = sprinkled(torch.randn(1, 2, 5, 6, 7, generator=torch.Generator().manual_seed(2)), [NAN, INF, -INF])
NOTHING = torch.full((1, 4, 5), -INF)

MAXIMA: dict[str, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "1-d": lambda x, v, n: F.max_pool1d(x[0], 3, 2, 1, return_indices=True),
    "2-d": lambda x, v, n: F.max_pool2d(x, 2, 2, 1, 2, ceil_mode=True, return_indices=True),
    "3-d": lambda x, v, n: F.max_pool3d(v, 2, 2, 1, return_indices=True),
    "of the least number": lambda x, v, n: F.max_pool2d(n, 3, 2, 1, return_indices=True),
    "beside the image": lambda x, v, n: F.max_pool2d(n[..., :1], 2, 1, 1, 2, return_indices=True),
    "adaptive": lambda x, v, n: F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
    "adaptive, of equal sizes": lambda x, v, n: F.adaptive_max_pool2d(x[0], (3, 11), return_indices=True),
    "adaptive, of one window": lambda x, v, n: F.adaptive_max_pool2d(x, 1, return_indices=True),
    "adaptive, of the least number": lambda x, v, n: F.adaptive_max_pool2d(n, (3, 2), return_indices=True),
    "adaptive, 3-d": lambda x, v, n: F.adaptive_max_pool3d(v, (2, 3, 4), return_indices=True),
}


def _part(program: Callable[..., tuple[Tensor, Tensor]], number: int) -> Callable[..., Tensor]:
    return lambda *inputs: program(*inputs)[number]


def test_maxima_over_windows_keep_nan_and_its_place() -> None:
    values = {name: _part(program, 0) for name, program in MAXIMA.items()}
    places = {f"{name}, places": _part(program, 1) for name, program in MAXIMA.items()}
    assert_as_eager(values | places, IMAGE, VOLUME, NOTHING, route="linalg")


def test_what_an_image_is_padded_with_is_less_than_all_numbers() -> None:
    """On route TOSA it was the lowest finite number."""
    programs = {
        "values": lambda n, h: F.max_pool2d(n, 3, 2, 1),
        "places": lambda n, h: F.max_pool2d(n, 3, 2, 1, return_indices=True)[1],
        "half": lambda n, h: F.max_pool2d(h, 3, 2, 1),
    }
    assert_as_eager(programs, NOTHING, NOTHING.half(), route="tosa")


def test_samples_at_places_that_are_none() -> None:
    def sampled(mode: str, padding: str, aligned: bool) -> Callable[..., Tensor]:
        return lambda image, x, grid: F.grid_sample(x, grid, mode, padding, aligned)

    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, 5, 7, generator=generator)
    grid = sprinkled(torch.rand(2, 3, 4, 2, generator=generator) * 2.6 - 1.3, [NAN, INF, -INF], share=0.3)
    kinds = [
        ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
        ("nearest", "zeros", True), ("nearest", "border", False), ("nearest", "reflection", True),
    ]  # fmt: skip
    programs = {", ".join(map(str, kind)): sampled(*kind) for kind in kinds}
    programs["an image with infinities"] = lambda image, x, grid: F.grid_sample(
        image, grid.nan_to_num(0.3, 0.4, -0.5), align_corners=False
    )
    assert_as_eager(programs, IMAGE[..., :5, :7], x, grid)
