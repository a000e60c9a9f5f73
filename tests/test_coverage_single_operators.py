"""Operations alone, with every dtype that eager takes and the ends of their ranges: each was wrong, refused, or ended the
process."""

from __future__ import annotations

import math

import pytest
import torch
from several import Several, assert_as_eager, assert_bits_of_eager
from torch import Tensor
from torch.nn import functional as F

import mlirstack as ms
from mlirstack.errors import UnsupportedError
from mlirstack.frontend.decompositions.table import decomposition_table

pytestmark = pytest.mark.portable

aten = torch.ops.aten

NAN, INF = math.nan, math.inf
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)
_MAGNITUDES = (
    0.0,
    1e-45,
    1e-40,
    1e-20,
    1e-3,
    0.3,
    0.5,
    0.7,
    0.9999999,
    1.0,
    1.5,
    2.0,
    2.5,
    9.5,
    12.0,
    1e3,
    1e6,
    1e10,
    3e38,
    INF,
)
SPECIAL = torch.tensor([NAN, *_MAGNITUDES, *(-x for x in _MAGNITUDES)])
TIES = torch.tensor([[1.0, NAN, 3.0, 3.0, INF, NAN, 0.0], [-0.0, 0.0, -1.0, -INF, -1.0, 2.0, 2.0]])


def _random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """All values of a narrow dtype, and large ones of a wide one."""
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(limits.min, limits.max, shape, generator=generator, dtype=torch.int64).to(dtype)


@pytest.mark.parametrize("route", ["auto", "tosa"])
def test_sums_of_integers_are_of_64_bits(route: str) -> None:
    programs = {
        "sum": lambda *x: [a.sum() for a in x],
        "sum along": lambda *x: [a.sum(1, keepdim=True) for a in x],
        "sum of int32": lambda *x: [a.sum((0, 1), dtype=torch.int32) for a in x],
    }
    if route == "auto":
        programs |= {
            "sum of int8": lambda *x: [a.sum(0, dtype=torch.int8) for a in x],
            "product": lambda *x: [a.prod(1) for a in x],
            "running sum": lambda *x: [a.cumsum(1) for a in x],
        }
    # TOSA has no bytes without sign.
    dtypes = [dtype for dtype in INTEGERS if route == "auto" or dtype != torch.uint8]
    operands = [_random(3, 5, dtype=dtype) for dtype in dtypes] + [torch.ones(3, 5, dtype=torch.bool)]
    parts = {f"{name} {i}": lambda *x, f=f, i=i: f(*x)[i] for name, f in programs.items() for i in range(len(operands))}
    assert_as_eager(parts, *operands, route=route)


def test_windows_over_integers() -> None:
    programs = {}
    operands = [_random(1, 2, 4, 6, 5, dtype=dtype) for dtype in INTEGERS]
    for i, dtype in enumerate(INTEGERS):
        cases = {
            "conv1d": lambda x: F.conv1d(x[:, :, 0, 0], x[:, :, 1, 1, :3], x[0, 0, 0, 0, :1], padding=1),
            "conv2d": lambda x: F.conv2d(x[:, :, 0], x[:, :, 1, :3, :2], stride=2),
            "conv3d": lambda x: F.conv3d(x, x[:, :, :2, :2, :2], padding=1),
            "max_pool2d": lambda x: F.max_pool2d(x[0], 2, return_indices=True)[0],
            "max_pool2d's places": lambda x: F.max_pool2d(x[0], 2, return_indices=True)[1],
            "max_pool3d": lambda x: F.max_pool3d(x, 2, padding=1),
        }
        programs |= {f"{name} {dtype}": lambda *x, f=f, i=i: f(x[i]) for name, f in cases.items()}
    assert_as_eager(programs, *operands)


def test_maxima_of_long_integers_in_three_dimensions_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="max_pool3d"):
        ms.compile(torch.nn.MaxPool3d(2), (torch.ones(1, 1, 4, 4, 4, dtype=torch.int64),))


def test_bytes_are_resized_by_eagers_arithmetic() -> None:
    x = _random(2, 3, 7, 5, dtype=torch.uint8)
    programs = {
        "twice": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "smaller": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear"),
        "corners": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
        "cubic": lambda x: F.interpolate(x, size=(9, 4), mode="bicubic"),
        "cubic, corners": lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic", align_corners=True),
    }
    assert_as_eager(programs, x)


def test_truth_values_that_are_added_at_places_stay_true() -> None:
    places = torch.tensor([[0, 0, 2], [1, 1, 0], [3, 3, 3]])
    programs = {
        "scatter_add": lambda x, i: torch.zeros_like(x).scatter_add(1, i, x[:, :3]),
        "index_add": lambda x, i: torch.zeros_like(x).index_add(1, i[0], x[:, :3]),
        "index_put": lambda x, i: torch.zeros_like(x).index_put((i[0],), x, accumulate=True),
    }
    assert_as_eager(programs, torch.ones(3, 4, dtype=torch.bool), places % 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_formulas_of_functions_of_statistics(dtype: torch.dtype) -> None:
    x = SPECIAL.to(dtype)
    for op in (
        aten.erfc.default,
        aten.special_erfcx.default,
        aten.erfinv.default,
        aten.lgamma.default,
        aten.digamma.default,
        aten.special_log_ndtr.default,
    ):
        _assert_close(op.name(), x, decomposition_table()[op](x), op(x))


def test_functions_of_statistics() -> None:
    functions = (torch.erfc, torch.erfinv, torch.lgamma)
    module = Several({function.__name__: function for function in functions})
    got, expected = ms.compile(module, (SPECIAL,))(SPECIAL), module(SPECIAL)
    for name, eager in expected.items():
        _assert_close(name, SPECIAL, got[name], eager)


def _assert_close(name: str, x: Tensor, got: Tensor, eager: Tensor) -> None:
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[eager.dtype]
    # Of the smallest subnormal number the last bit is all.
    close = torch.isclose(got, eager, rtol=tolerance, atol=0.0, equal_nan=True) | (x.abs() < 1e-44)
    assert close.all(), (name, x[~close], got[~close], eager[~close])


def test_running_extrema_medians_and_places_in_sorted_numbers() -> None:
    edges = torch.tensor([-1.0, 0.0, 0.0, 2.0, 5.0, NAN])
    programs = {
        "cummax": lambda x, b, e: torch.cummax(x, 1)[0],
        "cummax's places": lambda x, b, e: torch.cummax(x, -1)[1],
        "cummin": lambda x, b, e: torch.cummin(x, 0)[0],
        "cummin's places": lambda x, b, e: torch.cummin(x, 1)[1],
        "cummax of bytes": lambda x, b, e: torch.cummax(b, 0)[0],
        "median": lambda x, b, e: torch.median(x, 1)[0],
        "median of all": lambda x, b, e: torch.median(x[:, 2:4]),
        "median of bytes": lambda x, b, e: torch.median(b),
        "nanmedian": lambda x, b, e: torch.nanmedian(x, 1, keepdim=True)[0],
        "searchsorted": lambda x, b, e: torch.searchsorted(e, x),
        "from the right": lambda x, b, e: torch.searchsorted(e, x, right=True, out_int32=True),
        "of each row": lambda x, b, e: torch.searchsorted(torch.stack([e, e + 1.0]), x),
        "bucketize": lambda x, b, e: torch.bucketize(x, e),
        "a number": lambda x, b, e: torch.searchsorted(e, 1.0),
    }
    assert_as_eager(programs, TIES, _random(9, dtype=torch.uint8), edges)


@pytest.mark.parametrize("route", ["auto", "tosa"])
def test_logarithms_of_the_largest_numbers(route: str) -> None:
    x = torch.tensor([1e38, 3e38, INF, 1e19, 1e10, 1e-10, -1e-40, 0.0, -1.0, NAN])
    assert_as_eager({"log1p": torch.log1p}, x, route=route)


def test_functions_of_two_numbers_next_to_nan_and_infinities() -> None:
    values = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-40, 1.0, 1.0 + 1e-7, -3.0, 100.0, 3e38])
    x, y = (part.clone() for part in torch.broadcast_tensors(values[:, None], values[None]))
    programs = {
        "between tensors": lambda x, y: torch.clamp(x, y, y + 1.0),
        "above a tensor": lambda x, y: torch.clamp(x, min=y),
        "logaddexp": torch.logaddexp,
        "logaddexp2": torch.logaddexp2,
        "hypot": torch.hypot,
        "over infinity": lambda x, y: x / INF,
        "reciprocal root": lambda x, y: x**-0.5,
    }
    assert_as_eager(programs, x, y)


def test_quotients_of_subnormal_numbers() -> None:
    small = torch.tensor([1e-40, -1e-45, 0.3, 1.0, 0.0, 1e-20])
    assert_as_eager({"quotient": lambda x: x / (x * 2.0), "sinc": torch.sinc}, small)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_quotients_by_what_is_stretched_are_eagers_bits(target: str) -> None:
    """Not products with a reciprocal, which are rounded twice, and once more where the divisor is next to the largest."""
    x = torch.randn(1025, 7, generator=torch.Generator().manual_seed(0))
    rows, columns = 2.0 + torch.arange(1025.0)[:, None] / 7, 2.0 + torch.arange(7.0) / 3
    programs = {
        "rows": lambda x, a, b: x / a,
        "columns": lambda x, a, b: x / b,
        "both": lambda x, a, b: b / a,
        "one": lambda x, a, b: x / a[0, 0],
        "a number": lambda x, a, b: 1.7 / x,
        "large": lambda x, a, b: (x * 1e37) / (a * 1e36),
    }
    assert_bits_of_eager(programs, x, rows, columns, route="tosa", target=target)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_double_precision_is_rounded_to_half_as_eager_rounds_it(target: str) -> None:
    """By way of single precision: numbers half way between two, and beside, subnormal ones and those too large."""
    halves = torch.arange(-(2**15), 2**15, 7).to(torch.int16).view(torch.float16).double()
    x = torch.cat([halves * factor for factor in (1.0, 1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-30, 1 - 2.0**-30, 0.125)])
    programs = {"half": lambda x: x.half(), "bfloat16": lambda x: x.bfloat16(), "after": lambda x: (x * 0.75).half()}
    assert_bits_of_eager(programs, x, target=target)


def test_what_lies_beside_a_diagonal_or_between_two_places_does_not_matter() -> None:
    x = torch.tensor([[1.0, INF, NAN, 4.0], [NAN, 2.0, -INF, INF], [INF, NAN, 3.0, 5.0]])
    programs = {
        "diagonal": torch.diagonal,
        "above": lambda x: torch.diagonal(x, 3),
        "below": lambda x: x[None].expand(2, 3, 4).diagonal(-1, 1, 2),
        "trace": torch.trace,
        "linear": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="linear"),
        "trilinear": lambda x: F.interpolate(x[None, None, None], size=(2, 5, 4), mode="trilinear", align_corners=True),
    }
    assert_as_eager(programs, x)
