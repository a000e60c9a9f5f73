"""What random graphs have found, as tests of its kind: each was a wrong answer or a failure on target cpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import Several, assert_as_eager
from torch.nn import functional as F

import mlirstack as ms
from mlirstack.errors import RuntimeCheckError

pytestmark = pytest.mark.portable

NAN, INF = float("nan"), float("inf")
BYTES = torch.tensor([200, 3, 255, 0, 128, 127], dtype=torch.uint8)
ODD = torch.tensor([NAN, INF, 1.0, 2.0, -INF, 0.0, -3.0])
OTHER = torch.tensor([1.0, INF, NAN, 2.0, 3.0, -1.0, -INF])
LARGE = torch.tensor([2**40 + 1, -(2**33) - 3, 7, -5])
BITS = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])


@pytest.mark.parametrize("route", ["auto", "linalg"])
def test_bounds_and_extrema_keep_nan_and_infinity(route: str) -> None:
    programs = {
        "clamp": lambda x, y: torch.clamp(x, -1.0, 1.5),
        "clamp from below": lambda x, y: torch.clamp(x, min=0.1),
        "clamp from above": lambda x, y: torch.clamp(x, max=1.0),
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "hardtanh": lambda x, y: F.hardtanh(x),
        "hardsigmoid": lambda x, y: F.hardsigmoid(x),
        "relu6": lambda x, y: F.relu6(x),
        "infinity over infinity": lambda x, y: x / torch.clamp(x.abs(), min=0.1),
    }
    assert_as_eager(programs, ODD, OTHER, route=route)


def test_large_integers_are_not_cut_to_32_bits_nor_rounded() -> None:
    programs = {
        "add": lambda x: x + x,
        "add a number": lambda x: x + 3,
        "sub": lambda x: x - 5,
        "number minus": lambda x: 3 - x,
        "scaled add": lambda x: torch.add(x, x, alpha=3),
        "neg": lambda x: -x,
    }
    assert_as_eager(programs, LARGE)


def test_remainders_and_negatives_of_int32_are_exact() -> None:
    x = torch.tensor([2**31 - 1, -(2**31) + 1, 2**24 + 1, -7], dtype=torch.int32)
    assert_as_eager({"remainder": lambda x: x % 1001, "neg": lambda x: -x}, x)


def test_the_sum_of_truth_values_is_their_disjunction() -> None:
    programs = {
        "add": lambda x, y: x + y,
        "scaled": lambda x, y: torch.add(x, y, alpha=True),
        "by nothing": lambda x, y: torch.add(x, y, alpha=False),
    }
    assert_as_eager(programs, *BITS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gelu_by_tanh_has_the_accuracy_of_its_dtype(dtype: torch.dtype) -> None:
    x = torch.linspace(-3.0, 3.0, 41, dtype=torch.float64).to(dtype)
    assert_as_eager({"gelu": lambda x: F.gelu(x, approximate="tanh")}, x)


def test_a_window_at_a_single_position_may_leave_the_end_of_the_image() -> None:
    programs = {
        "pool": lambda x: F.max_pool3d(x, (3, 1, 2), (3, 2, 1), (0, 0, 1), (1, 2, 1)),
        "convolution": lambda x: torch.conv3d(x, torch.ones(2, 1, 3, 2, 2, dtype=x.dtype), stride=(2, 2, 3)),
        "mean": lambda x: F.avg_pool3d(x, (3, 4, 4), 4),
    }
    assert_as_eager(programs, torch.randn(2, 1, 4, 8, 5, generator=torch.Generator().manual_seed(0)))


def test_float64_is_rounded_to_bfloat16_as_eager_does() -> None:
    x = torch.linspace(-3.0, 3.0, 41, dtype=torch.float64)
    got = ms.compile(Several({"cast": lambda x: x.to(torch.bfloat16)}), (x,))(x)["cast"]
    assert torch.equal(got, x.to(torch.bfloat16))


def test_a_mean_over_windows_that_are_partly_outside() -> None:
    """A tile of it divides by counts alone: a body that hands on its argument."""
    x = torch.randn(1, 1, 5, 6, generator=torch.Generator().manual_seed(0))
    pool = {"pool": lambda x: F.avg_pool2d(x, (2, 2), (3, 2), (1, 1), ceil_mode=True, count_include_pad=False)}
    assert_as_eager(pool, x)


def test_a_scatter_may_count_its_dimension_from_the_end() -> None:
    """Each of them ended the process."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([[2, 0, 0, 1], [0, 2, 1, 0], [1, 1, 2, 2]])
    programs = {
        "add": lambda x, i: torch.scatter_add(x, -2, i, x),
        "add to a half": lambda x, i: torch.scatter_add(x.half(), -1, i, x.half()),
        "put": lambda x, i: torch.scatter(x, -2, i, x),
        "largest": lambda x, i: torch.scatter_reduce(x, -1, i, x, "amax", include_self=False),
        "sum": lambda x, i: torch.scatter_reduce(x, -2, i, x, "sum"),
    }
    assert_as_eager(programs, x, rows)


def test_a_number_less_a_float64_is_not_rounded_to_float32() -> None:
    x = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    assert_as_eager({"rsub": lambda x: 0.001 - x, "scaled": lambda x: torch.rsub(x, 0.001, alpha=0.3)}, x)


def test_one_place_is_taken_without_knowing_it() -> None:
    programs = {
        "one": torch.take,
        "several": lambda x, i: torch.take(x, torch.stack([i, i - 2]).reshape(2, 1)),
    }
    assert_as_eager(programs, torch.linspace(0.0, 1.0, 12).reshape(3, 4), torch.tensor(-5))


def test_where_a_result_lies_in_memory_is_no_matter_of_the_graph() -> None:
    """``lerp`` of transposed tensors is decomposed with a copy that changes strides."""
    x = torch.linspace(0.0, 1.0, 12).reshape(3, 4)
    assert_as_eager({"lerp": lambda x, y: torch.lerp(x.t(), y.t(), y.t())}, x, 1 - x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_depthwise_convolutions_have_three_dimensions_too(dtype: torch.dtype) -> None:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)

    programs = {
        "plain": lambda x, w, b: F.conv3d(x, w, groups=3),
        "all options": lambda x, w, b: F.conv3d(x, w, b, (2, 1, 2), (1, 0, 2), (2, 1, 1), groups=3),
    }
    assert_as_eager(programs, random(2, 3, 5, 4, 6), random(3, 1, 2, 2, 3), random(3), route="linalg")


def test_a_tensor_of_one_complex_number() -> None:
    programs = {
        "zeros": lambda x: torch.zeros(2, 3, dtype=torch.complex64),
        "none": lambda x: torch.zeros(0, 3, dtype=torch.complex64),
        "product": lambda x: torch.full((3,), 1 + 2j) * x,
    }
    x = torch.tensor([1.0, 2.0, -3.0])
    got, expected = ms.compile(Several(programs), (x,))(x), Several(programs)(x)
    assert all(torch.equal(got[name], expected[name]) for name in programs)


def test_bytes_have_no_sign_beside_other_dtypes() -> None:
    """As operands of another dtype's arithmetic, in comparisons, quotients and joins, with and without dimensions."""
    whole = torch.tensor([-5, 1000, 2, 7, 200, 3])
    real = torch.tensor([0.5, -1.0, 300.0, 2.0, 201.0, 3.0])
    several = {
        "sum": torch.add,
        "product": torch.mul,
        "quotient": lambda x, y: x / torch.where(y == 0, 1, y),
        "smaller": torch.minimum,
        "less": torch.lt,
        "chosen": lambda x, y: torch.where(y > 2, x, y),
    }
    programs: dict[str, Callable[..., Any]] = {
        f"{name} {kind}": (lambda b, z, i, r, f=f, at=at, by=by: f((b, z, i, r)[at], (b, z, i, r)[by]))
        for name, f in several.items()
        for kind, at, by in (
            ("of whole", 0, 2), ("of real", 3, 0), ("scalar of whole", 1, 2), ("scalar of real", 3, 1), ("alone", 0, 1)
        )
    }  # fmt: skip
    programs |= {
        "angle": lambda b, z, i, r: (
            torch.atan2(r, b),
            torch.atan2(i.to(torch.int8), z),
            torch.copysign(z, i.to(torch.int8)),
        ),
        "join": lambda b, z, i, r: torch.cat([b, r]),
        "times a real number": lambda b, z, i, r: (b * 2.5, z * 2.5, b**0.5),
        "less than a number": lambda b, z, i, r: (b < 150, b < 150.5, z >= 3, b < 300),
        "rest": lambda b, z, i, r: torch.fmod(z, torch.where(i == 0, 1, i)),
        "bits": lambda b, z, i, r: (b & i[4], z & i, b | i[0], b ^ i[1], b << i[5], b >> i[2], i >> b.clamp(max=7)),
    }
    got = ms.compile(Several(programs), (BYTES, BYTES[0], whole, real))(BYTES, BYTES[0], whole, real)
    expected = Several(programs)(BYTES, BYTES[0], whole, real)
    torch.testing.assert_close(got, expected, equal_nan=True)


def test_bytes_have_no_sign_alone() -> None:
    programs = {
        "abs": lambda b, z: (b.abs(), z.abs(), b.sign()),
        "bounds": lambda b, z: (b.clamp(-3, 3), b.clamp(min=-3), b.clamp(5, 150), z.clamp(max=100.5)),
        "cut to a byte": lambda b, z: (torch.maximum(b, torch.tensor(-5)), torch.le(b[:1], torch.tensor(-5))),
        "sum": lambda b, z: (b.sum(), z.sum(), b.prod(), b.cumsum(0)),
        "order": lambda b, z: (b.sort(descending=True), b.argmax(), b.amin(), b.max(0), b.topk(2)),
    }
    got = ms.compile(Several(programs), (BYTES, BYTES[0]))(BYTES, BYTES[0])
    torch.testing.assert_close(got, Several(programs)(BYTES, BYTES[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_remainders_and_whole_quotients_of_real_numbers_are_exact(dtype: torch.dtype) -> None:
    """By infinity, of infinity, by zero, and where the quotient has no room for its digits."""
    x = torch.tensor([1.5, -2.0, INF, 3.0, NAN, 1.0, 0.0, -7.0, 6e4, -INF, 1.0, -0.5], dtype=dtype)
    y = torch.tensor([INF, INF, 1.0, -INF, 1.0, NAN, 1.0, 2.0, 0.3, 0.5, 0.0, INF], dtype=dtype)
    programs = {
        "fmod": torch.fmod,
        "remainder": torch.remainder,
        "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "by a number": lambda x, y: (torch.fmod(x, 0.75), x // -0.75),
    }
    got = ms.compile(Several(programs), (x, y))(x, y)
    torch.testing.assert_close(got, Several(programs)(x, y), rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("route", ["auto", "linalg", "tosa"])
@pytest.mark.parametrize("count", [9, 64])
def test_small_numbers_are_not_lost_beside_one(route: str, count: int) -> None:
    """Vectors have functions of their own; single numbers, which are left over of nine, have others."""
    x = torch.cat([torch.tensor([0.0, -1.0, INF, NAN]), torch.logspace(-12, 1, count - 4)])
    programs = {
        "log1p": torch.log1p,
        "expm1": lambda x: torch.expm1(-x),
        "logsigmoid": lambda x: F.logsigmoid(4 * x),
    }
    got, expected = ms.compile(Several(programs), (x,), route=route)(x), Several(programs)(x)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0.0, equal_nan=True)


def test_a_maximum_of_two_dtypes_keeps_nan() -> None:
    whole = torch.tensor([1, 5, 2, -3, 4, 0, 7])
    programs = {
        "maximum": torch.maximum,
        "minimum": lambda x, y: torch.minimum(y, x),
        "bytes and one that is longer": lambda x, y: torch.maximum(torch.minimum(y.amax(), y.to(torch.int8)), y[0]),
    }
    assert_as_eager(programs, ODD, whole)


def test_rolls_by_more_than_a_turn() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    programs = {
        "forwards": lambda x: torch.roll(x, 5, 1),
        "backwards": lambda x: torch.roll(x, -9, -1),
        "both": lambda x: torch.roll(x, (3, -2), (0, 2)),
        "flat": lambda x: torch.roll(x, 30),
    }
    assert_as_eager(programs, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_bilinear_resizing_between_infinities(dtype: torch.dtype) -> None:
    x = torch.randn(1, 2, 4, 7, generator=torch.Generator().manual_seed(0))
    x[..., 0] = INF
    x[0, 1, 2, 4:] = -INF
    programs = {
        "smaller": lambda x: F.interpolate(x, size=(1, 5), mode="bilinear"),
        "larger": lambda x: F.interpolate(x, size=(7, 13), mode="bilinear", align_corners=True),
        "by factors": lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear"),
    }
    assert_as_eager(programs, x.to(dtype))


def test_constants_of_uint8_may_be_results() -> None:
    programs = {
        "full": lambda x: torch.full((2, 2), 200, dtype=torch.uint8),
        "ones": torch.ones_like,
        "product": lambda x: torch.tensor(100, dtype=torch.uint8).expand(4) * 3,
    }
    assert_as_eager(programs, torch.tensor([1, 200, 3, 0], dtype=torch.uint8))


def test_the_norm_of_a_single_number_is_its_magnitude() -> None:
    x = torch.tensor([[3e30], [-INF], [NAN], [-1e-30]])
    programs = {
        "kept": lambda x: torch.linalg.vector_norm(x, 2, (1,), keepdim=True),
        "dropped": lambda x: torch.linalg.vector_norm(x, 3, 1),
        "of none": lambda x: torch.linalg.vector_norm(x[0, 0]),
        "of several": lambda x: torch.linalg.vector_norm(x[3:].T, 1),
    }
    assert_as_eager(programs, x)


@pytest.mark.parametrize("route", ["auto", "linalg"])
def test_truth_values_next_to_small_integers_are_made_wider_first(route: str) -> None:
    """Each of them ended the process: torch-mlir has no conversion of one bit to eight on the way."""
    small = torch.tensor([-3, 100, 0, 7], dtype=torch.int8)
    programs = {
        "cat": lambda x, y: torch.cat([x, y]),
        "cat the other way": lambda x, y: torch.cat([y, x, x]),
        "stack": lambda x, y: torch.stack([x, y]),
        "where": lambda x, y: torch.where(x, x, y),
        "where the other way": lambda x, y: torch.where(x, y, y > 0),
        "cat with real numbers": lambda x, y: torch.cat([y, x.to(torch.float64), y.half()]),
    }
    assert_as_eager(programs, BITS[0], small, route=route)


def test_what_is_computed_from_constants_alone_is_eager_s() -> None:
    """Torch-mlir compares constants of real numbers with whole ones by their bits: a wrong answer, or the process ends."""
    programs = {
        "sign": lambda x: torch.sign(torch.full((4, 2), -2.0)) * x,
        "sign of zero": lambda x: torch.sign(torch.zeros_like(x)) + x,
        "sign of a number": lambda x: torch.sign(torch.tensor(2.0)) * x,
        "sign of float16": lambda x: torch.sign(torch.full((4, 2), 3.0, dtype=torch.float16)) + x,
        "places of padding": lambda x: torch.argmin(torch.sign(F.pad(x[:, :0], (1, 1))), -2),
        "whole constants and a real number": lambda x: (torch.full((4, 2), 3) > 2.5) | (x > 0),
        "a whole constant and a real number": lambda x: (torch.tensor(3) > 2.5) & (x > 0),
        "NaN": lambda x: torch.where(torch.isnan(torch.full((4, 2), NAN)), x, 0.0),
        "different in every place": lambda x: torch.sign(torch.zeros(4, 2) - 1).cumsum(0) * x,
    }
    assert_as_eager(programs, torch.randn(4, 2, generator=torch.Generator().manual_seed(0)))


def test_whole_numbers_are_compared_with_a_real_one_in_its_dtype() -> None:
    x = torch.tensor([2**24 + 1, 2**24, -3, 0])
    programs = {
        "above": lambda x: x > float(2**24),
        "between": lambda x: x.int() <= -2.5,
        "truth values": lambda x: (x > 0) > 0.5,
        "equal": lambda x: x == float(2**24),
    }
    assert_as_eager(programs, x)


def test_a_sum_over_no_dimensions_is_part_of_what_reads_it() -> None:
    """Written once for every element that reads it, it could not be vectorized."""
    programs = {
        "sum": lambda s, x: torch.atan2(x * s.sum(), x),
        "product": lambda s, x: torch.atan2(x + s.prod(), x),
        "largest": lambda s, x: torch.atan2(x, s.amax() * x),
        "sum that is returned": lambda s, x: s.sum(),
    }
    assert_as_eager(programs, torch.tensor(2.0), torch.rand(7, 3, 5, generator=torch.Generator().manual_seed(0)) + 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quotients_of_half_precision_are_cut_off_before_they_are_rounded(dtype: torch.dtype) -> None:
    divisor = torch.arange(1.0, 65.0).to(dtype)
    programs = {
        "tensors": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        "negative": lambda x, y: torch.div(-x, y, rounding_mode="trunc"),
        "a number": lambda x, y: torch.div(x, 7.0, rounding_mode="trunc"),
        "floored": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    }
    assert_as_eager(programs, torch.nextafter(3 * divisor, torch.zeros_like(divisor)), divisor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_exponential_units_keep_small_numbers(dtype: torch.dtype) -> None:
    """The exponential less one would leave few digits of them."""
    x = torch.cat([torch.linspace(-2e-3, 1e-3, 40), torch.tensor([NAN, INF, -INF, 0.0])]).to(dtype)
    programs = {
        "elu": lambda x: F.elu(x[:40], 2.5),
        "selu": lambda x: F.selu(x[:40]),
        "celu": lambda x: F.celu(x[:40], 0.3),
        "special": lambda x: F.selu(x[40:]),
        "large": lambda x: F.elu(x[:30] * 1e4),
    }
    assert_as_eager(programs, x)


def test_attention_is_zero_where_all_scores_are_negative_infinity() -> None:
    """By infinities in the query, without a mask; a score that is infinite gives NaN."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 5, 4, generator=generator)
    query[0, 0, 1, 2], query[0, 0, 4, 0], query[0, 1, 3, 1] = -INF, -INF, INF
    programs = {
        "heads": F.scaled_dot_product_attention,
        "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "three dimensions": lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]),
    }
    assert_as_eager(programs, query, key.abs() + 0.1, value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8])
def test_an_operand_without_dimensions_is_cut_to_the_dtype_of_the_others(dtype: torch.dtype) -> None:
    """An int8 is compared with 300 as with 44; shifts by a wider number ended the process."""
    x = torch.tensor([1, 5, 44, 100, 127, 3, 0]).to(dtype)
    wide = torch.tensor(2**32 + 300)
    programs = {
        "equal": torch.eq,
        "less": torch.lt,
        "not less, the other way round": lambda x, y: torch.ge(y, x),
        "largest": torch.maximum,
        "floored": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "cut off": lambda x, y: torch.div(y, x | 1, rounding_mode="trunc"),
        "rest": lambda x, y: (torch.remainder(y, x | 1), torch.fmod(x, y))[0],
        "shift": lambda x, y: (x >> (y & 3)) + (x << (y & 1)),
        "bits": lambda x, y: ((x & y) + (y | x)) ^ y,
        "larger": torch.fmax,
        "chosen": lambda x, y: torch.where(x > 4, x, y),
    }
    assert_as_eager(programs, x, wide)


def test_real_numbers_are_compared_in_the_dtype_of_those_with_dimensions() -> None:
    x = torch.tensor([0.1, 0.2, -1.0, NAN, INF])
    programs = {
        "equal": torch.eq,
        "equal in half precision": lambda x, y: torch.eq(x.half(), y),
        "above": lambda x, y: torch.gt(y, x),
        "largest number": torch.fmax,
        "smallest number": lambda x, y: torch.fmin(y, x.half()),
        "largest of two shapes": lambda x, y: torch.fmax(x, x[:, None]),
        "floored in half precision": lambda x, y: torch.div(x.half(), y, rounding_mode="floor"),
    }
    assert_as_eager(programs, x, torch.tensor(0.1, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_are_divided_without_ending_the_process(dtype: torch.dtype) -> None:
    """Processors trap where the least number is divided by -1, whose quotient is itself, and where the divisor is 0."""
    programs = {
        "floored": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "rest": torch.remainder,
        "rest with the sign of the dividend": torch.fmod,
        "by a number": lambda x, y: (x // -1 + x % 3) * y,
    }
    x, y = torch.tensor([torch.iinfo(dtype).min, 5, -7], dtype=dtype), torch.tensor([-1, 2, -2], dtype=dtype)
    compiled = ms.compile(Several(programs), (x, y))
    expected = Several(programs)(x, y)
    assert all(torch.equal(got, expected[name]) for name, got in compiled(x, y).items())
    with pytest.raises(RuntimeCheckError, match="integer division by zero"):
        compiled(x, torch.tensor([-1, 0, 2], dtype=dtype))
