"""Operations with sliding windows: convolutions plain, grouped, dilated and transposed, poolings, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from mlirstack.fuzz.operations import Arguments, Operation, Picker, Value

_LARGEST_IMAGE = 2048


def _image(pick: Picker, spatial: int) -> Value:
    """Batch, channels and ``spatial`` dimensions, none empty."""
    rank = spatial + 2
    found = pick.value(
        lambda value: value.is_float and value.rank == rank and 0 not in value.shape and value.elements <= _LARGEST_IMAGE
    )
    if found is not None and pick.chance(80):
        return found
    shape = (pick.integer(1, 2), pick.one_of((2, 1, 3, 4, 6, 8)), *(pick.integer(1, 9) for _ in range(spatial)))
    return pick.fresh(shape, pick.main_float)


def _convolution(spatial: int) -> Callable[[Picker], Arguments]:
    def pick_convolution(pick: Picker) -> Arguments:
        image = _image(pick, spatial)
        channels = image.shape[1]
        groups = channels if pick.chance(25) else pick.one_of([g for g in (1, 2, 3) if channels % g == 0])
        kernel = [pick.integer(1, 3) for _ in range(spatial)]
        outputs = groups * pick.integer(1, 3)
        weight = pick.fresh((outputs, channels // groups, *kernel), image.dtype, parameter=pick.chance(80), values="normal")
        bias = pick.fresh((outputs,), image.dtype, parameter=True)
        options = _window_options(pick, spatial)
        return Arguments((image, weight, bias), {**options, "groups": groups})

    return pick_convolution


def _window_options(pick: Picker, spatial: int) -> dict[str, tuple[int, ...]]:
    return {
        "stride": tuple(pick.integer(1, 3) for _ in range(spatial)),
        "padding": tuple(pick.integer(0, 2) for _ in range(spatial)),
        "dilation": tuple(pick.integer(1, 2) for _ in range(spatial)),
    }


def _transposed(spatial: int) -> Callable[[Picker], Arguments]:
    def pick_transposed(pick: Picker) -> Arguments:
        image = _image(pick, spatial)
        channels = image.shape[1]
        groups = pick.one_of([g for g in (1, 2, 3) if channels % g == 0])
        kernel = [pick.integer(1, 3) for _ in range(spatial)]
        weight = pick.fresh((channels, pick.integer(1, 3), *kernel), image.dtype, parameter=pick.chance(80), values="normal")
        stride = tuple(pick.integer(1, 3) for _ in range(spatial))
        options = {
            "stride": stride,
            "padding": tuple(pick.integer(0, 1) for _ in range(spatial)),
            "output_padding": tuple(pick.integer(0, step - 1) for step in stride),
            "dilation": tuple(pick.integer(1, 2) for _ in range(spatial)),
        }
        return Arguments((image, weight), {**options, "groups": groups if weight.shape[0] % groups == 0 else 1})

    return pick_transposed


def _pool(spatial: int, *, dilated: bool) -> Callable[[Picker], Arguments]:
    def pick_pool(pick: Picker) -> Arguments:
        image = _image(pick, spatial)
        kernel = tuple(pick.integer(1, 3) for _ in range(spatial))
        options: dict[str, Any] = {
            "kernel": kernel,
            "stride": tuple(pick.integer(1, 3) for _ in range(spatial)),
            "padding": tuple(pick.integer(0, size // 2) for size in kernel),
            "ceil": pick.chance(25),
        }
        if dilated:
            options["dilation"] = tuple(pick.integer(1, 2) for _ in range(spatial))
        else:
            options["count_padding"] = pick.chance(50)
        return Arguments((image,), options)

    return pick_pool


def _adaptive(pick: Picker) -> Arguments:
    return Arguments((_image(pick, 2),), {"size": (pick.integer(1, 4), pick.integer(1, 4))})


def _resize(pick: Picker) -> Arguments:
    return Arguments((_image(pick, 2),), {"size": (pick.integer(1, 9), pick.integer(1, 9))})


_CONVOLUTIONS: Sequence[Callable[..., Any]] = (torch.conv1d, torch.conv2d, torch.conv3d)
_TRANSPOSED: Sequence[Callable[..., Any]] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
_MAXIMA: Sequence[Callable[..., Any]] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_MEANS: Sequence[Callable[..., Any]] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def _maximum(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, kernel, stride, padding, ceil, dilation: function(a, kernel, stride, padding, dilation, ceil)


def _mean(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, kernel, stride, padding, ceil, count_padding: function(a, kernel, stride, padding, ceil, count_padding)


OPERATIONS = (
    *(Operation(f"conv{n}d", f, _convolution(n)) for n, f in enumerate(_CONVOLUTIONS, 1)),
    *(Operation(f"conv_transpose{n}d", f, _transposed(n)) for n, f in enumerate(_TRANSPOSED, 1)),
    *(Operation(f"max_pool{n}d", _maximum(f), _pool(n, dilated=True), "exact") for n, f in enumerate(_MAXIMA, 1)),
    *(Operation(f"avg_pool{n}d", _mean(f), _pool(n, dilated=False)) for n, f in enumerate(_MEANS, 1)),
    Operation("adaptive_avg_pool2d", lambda a, size: F.adaptive_avg_pool2d(a, size), _adaptive),
    Operation("upsample_nearest", lambda a, size: F.interpolate(a, size=size, mode="nearest"), _resize, "exact"),
    Operation(
        "upsample_bilinear", lambda a, size: F.interpolate(a, size=size, mode="bilinear", align_corners=False), _resize
    ),
)
