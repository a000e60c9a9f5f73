"""The oracle: what is wrong is told, what rounding decides is left out, nothing else is."""

from __future__ import annotations

import torch

from mlirstack.fuzz.generate import graph_of
from mlirstack.fuzz.oracle import expect, judge, undecided
from mlirstack.fuzz.spec import Call, GraphSpec, InputSpec


def graph(dtype: str, values: tuple[float, ...], *ops: tuple[str, dict[str, float]]) -> GraphSpec:
    """A chain of operations on one input."""
    names = ["x0", *(f"v{number}" for number in range(len(ops)))]
    calls = [
        Call(result, op, (operand,), tuple(options.items()))
        for (op, options), operand, result in zip(ops, names, names[1:], strict=False)
    ]
    return GraphSpec((InputSpec("x0", (len(values),), dtype, literal=values),), tuple(calls), (names[-1],))


def test_eager_itself_is_right_and_an_error_in_one_element_is_not() -> None:
    for number in range(6):
        expected = expect(graph_of(11, number))
        assert judge(expected, expected.eager).ok
        stable = [not mask.all() and mask.numel() > 0 for mask in undecided(expected)]
        if not any(stable):
            continue
        index = stable.index(True)
        damaged = [value.clone() for value in expected.eager]
        position = int((~undecided(expected)[index]).flatten().nonzero()[0])
        flat = damaged[index].contiguous().view(-1)
        flat[position] = ~flat[position] if flat.dtype == torch.bool else _far_from(flat[position])
        damaged[index] = flat.view(damaged[index].shape)
        assert not judge(expected, damaged).ok


def _far_from(value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        return value ^ 1
    return torch.ones_like(value) if not value.isfinite() else 3 * value.abs() + 100


def test_a_floor_next_to_a_whole_number_decides_nothing() -> None:
    """sqrt(x)² is 2 give or take a rounding: its floor may be 1 or 2; that of 2.5 is 2."""
    spec = graph("float32", (2.0, 2.5), ("sqrt", {}), ("square", {}), ("floor", {}))
    expected = expect(spec)
    [mask] = undecided(expected)
    assert mask.tolist() == [True, False]
    assert judge(expected, [torch.tensor([1.0, 2.0])]).ok
    assert judge(expected, [torch.tensor([2.0, 2.0])]).ok
    assert not judge(expected, [torch.tensor([2.0, 3.0])]).ok
    assert judge(expected, [torch.tensor([1.0, 2.0])]).decided in (0.5, 1.0)


def test_ties_of_whole_numbers_are_decided() -> None:
    """Sums of small whole numbers have no rounding: a comparison of equal ones has one answer."""
    spec = graph("float32", (1.0, 2.0), ("add_number", {"number": 2.0}), ("floor", {}))
    assert not undecided(expect(spec))[0].any()
    assert not judge(expect(spec), [torch.tensor([3.0, 5.0])]).ok


def test_numbers_that_may_round_to_the_same_one_are_not_known_to_be_equal() -> None:
    """sqrt(x)² is x in one implementation and not in another, and never in float64; whole numbers are equal or not."""
    spec = graph("bfloat16", (3.0, 7.0, 300.0), ("sqrt", {}), ("square", {}))
    compared = GraphSpec(spec.inputs, (*spec.calls, Call("v2", "eq", ("v1", "x0"))), ("v2",))
    expected = expect(compared)
    assert undecided(expected)[0].all()
    assert judge(expected, [torch.tensor([True, False, True])]).ok
    whole = graph("bfloat16", (3.0, 7.0, 256.0), ("add_number", {"number": 2.0}))
    for other in ("v0", "x0"):
        compared = GraphSpec(whole.inputs, (*whole.calls, Call("v1", "eq", ("v0", other))), ("v1",))
        assert not undecided(expect(compared))[0].any()
        assert not judge(expect(compared), [torch.tensor([other != "v0"] * 3)]).ok


def test_what_was_computed_in_bfloat16_is_known_to_bfloat16() -> None:
    spec = graph("bfloat16", (0.3, 0.7), ("exp", {}), ("cast", {"dtype": "float32"}))  # type: ignore[dict-item]
    expected = expect(spec)
    exact = torch.tensor([0.3, 0.7]).to(torch.bfloat16).double().exp().float()
    assert judge(expected, [exact]).ok
    assert not judge(expected, [exact * 1.1]).ok


def test_shapes_dtypes_and_counts_are_part_of_the_answer() -> None:
    expected = expect(graph("float32", (1.0, 2.0), ("neg", {})))
    assert "eager gives" in str(judge(expected, [torch.tensor([[-1.0, -2.0]])]).reason)
    assert "eager gives" in str(judge(expected, [torch.tensor([-1.0, -2.0]).double()]).reason)
    assert "0 outputs" in str(judge(expected, []).reason)


def test_a_number_next_to_infinity_decides_nothing() -> None:
    """300² overflows a float16: eager replaces infinity, and one that keeps more digits on the way the number itself."""
    spec = graph("float16", (300.0,), ("square", {}), ("nan_to_num", {}))
    expected = expect(spec)
    assert expected.eager[0].item() == 50.0
    assert undecided(expected)[0].tolist() == [True]
    assert judge(expected, [torch.tensor([65504.0], dtype=torch.float16)]).ok


def test_what_is_below_the_smallest_number_may_be_zero() -> None:
    spec = graph("float32", (-200.0, -300.0), ("exp", {}))
    expected = expect(spec)
    assert expected.eager[0].tolist() == [0.0, 0.0]
    assert judge(expected, expected.eager).ok
    assert not judge(expected, [torch.tensor([0.0, 1e-3])]).ok


def test_a_product_that_overflows_before_its_small_factors_decides_nothing() -> None:
    factors = InputSpec("x0", (2, 4), "float32", literal=(1e30, 1e30, 1e-30, 1e-30, 1e30, 1e30, 2.0, 3.0))
    spec = GraphSpec((factors,), (Call("v0", "product", ("x0",), (("dim", 1),)),), ("v0",))
    expected = expect(spec)
    assert undecided(expected)[0].tolist() == [True, False]
    assert judge(expected, [torch.tensor([float("nan"), float("inf")])]).ok
    assert not judge(expected, [torch.tensor([1.0, 1.0])]).ok


def test_so_does_one_among_the_products_of_all_factors_before() -> None:
    factors = InputSpec("x0", (4,), "float32", literal=(1e30, 1e30, 1e-30, 1e-30))
    expected = expect(GraphSpec((factors,), (Call("v0", "cumprod", ("x0",), (("dim", -1),)),), ("v0",)))
    assert undecided(expected)[0].tolist() == [False, False, True, True]
    assert judge(expected, [torch.tensor([1e30, float("inf"), float("inf"), 0.0])]).ok
    assert not judge(expected, [torch.tensor([1e30, 1e30, 1e30, 1.0])]).ok


def test_a_step_within_a_few_roundings_decides_nothing_wherever_it_lies() -> None:
    """Of 2000 products three roundings below 1 each may be cut off to 0 or to 1; those that are farther away, to 0 alone."""
    near = 10.0 * (1.0 - 1.5 * torch.finfo(torch.float32).eps)
    spec = graph("float32", (near,) * 2000 + (9.5,) * 2000, ("mul_number", {"number": 0.1}), ("floor", {}))
    expected = expect(spec)
    assert not expected.eager[0].any()
    assert judge(expected, [torch.tensor([1.0] * 2000 + [0.0] * 2000)]).ok
    assert not judge(expected, [torch.tensor([1.0] * 2001 + [0.0] * 1999)]).ok


def test_a_step_that_errors_of_several_operations_must_cross_together_decides_nothing() -> None:
    """What is rounded to 14 from above 14.5, and then divided by: the quotient is 1 where it is led down first, then up."""
    values = InputSpec("x0", (64,), "bfloat16", literal=(14.625,) * 63 + (2.0,))
    calls = (
        Call("v0", "mul_number", ("x0",), (("number", 1.0),)),
        Call("v1", "square_root_power", ("v0",)),
        Call("v2", "square", ("v1",)),
        Call("v3", "round", ("v2",)),
        Call("v4", "truncating_divide_real", ("v2", "v3")),
    )
    expected = expect(GraphSpec((values,), calls, ("v4",)))
    assert not expected.eager[0].any()
    assert judge(expected, [torch.tensor([1.0] * 63 + [0.0], dtype=torch.bfloat16)]).ok
    assert not judge(expected, [torch.ones(64, dtype=torch.bfloat16)]).ok


def test_what_is_infinite_for_eager_says_nothing_about_the_size_of_the_others() -> None:
    """The floor of 5.9997 is 6 after a rounding of float16; 1000² is no number there, and 7 million in float64."""
    spec = graph("float16", (0.92578125, 1000.0), ("square", {}), ("mul_number", {"number": 7.0}), ("floor", {}))
    expected = expect(spec)
    assert expected.eager[0].tolist() == [6.0, float("inf")]
    assert undecided(expected)[0].tolist() == [True, False]
    assert judge(expected, [torch.tensor([5.0, float("inf")], dtype=torch.float16)]).ok
    assert not judge(expected, [torch.tensor([6.0, 1.0], dtype=torch.float16)]).ok


def test_attention_next_to_nan_is_that_of_its_definition_or_of_eager_s_kernel() -> None:
    """The kernel, which takes four dimensions, gives 0 for a row of scores that are all NaN."""
    query = InputSpec("x0", (1, 1, 2, 1), "float32", literal=(float("nan"), 1.0))
    others = [InputSpec(name, (1, 1, 1, 1), "float32", literal=(2.0,)) for name in ("x1", "x2")]
    expected = expect(GraphSpec((query, *others), (Call("v0", "attention", ("x0", "x1", "x2")),), ("v0",)))
    for first in (float("nan"), 0.0):
        assert judge(expected, [torch.tensor([first, 2.0]).reshape(1, 1, 2, 1)]).ok
    assert not judge(expected, [torch.tensor([float("nan"), 3.0]).reshape(1, 1, 2, 1)]).ok


def test_subnormal_numbers_decide_nothing_where_a_target_takes_them_for_zero() -> None:
    numbers = InputSpec("x0", (4,), "float32", literal=(1e-40, -1e-40, 2.0, -3.0))
    expected = expect(GraphSpec((numbers,), (Call("v0", "sign", ("x0",)),), ("v0",)))
    flushed, wrong = torch.tensor([0.0, 0.0, 1.0, -1.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert not judge(expected, [flushed]).ok
    assert judge(expected, [flushed], flushes=True).decided == 0.5
    assert judge(expected, [flushed], flushes=True).ok
    assert not judge(expected, [wrong], flushes=True).ok


def test_sums_of_many_terms_that_cancel_may_be_off_by_roundings_of_the_terms() -> None:
    """4096 numbers near ±1 that add up to 1e-4: each of the twelve additions on the way may round; one of 1e-2 may not."""
    terms = torch.linspace(0.5, 1.5, 2048, dtype=torch.float64).float().double()
    values = InputSpec("x0", (4097,), "float32", literal=(*terms.tolist(), *(-terms).tolist(), 1e-4))
    for op, options in (("mean", (("dims", (0,)), ("keep", False))), ("sum_all", ())):
        expected = expect(GraphSpec((values,), (Call("v0", op, ("x0",), options),), ("v0",)))
        size = expected.precise[0].item() / 1e-4
        assert undecided(expected)[0].item()
        assert judge(expected, [torch.tensor(1.2e-4 * size)]).ok
    stable = InputSpec("x0", (4097,), "float32", literal=(*terms.tolist(), *terms.tolist(), 1e-4))
    expected = expect(GraphSpec((stable,), (Call("v0", "sum_all", ("x0",)),), ("v0",)))
    assert not undecided(expected)[0].item()
    assert not judge(expected, [expected.eager[0] * (1.0 + 1e-4)]).ok


def test_the_sign_of_a_zero_is_decided_where_eager_has_a_rule() -> None:
    """A sum begins at zero, and one of negative zeros is positive; a product of matrices begins where it likes."""
    zeros = InputSpec("x0", (2, 1), "float32", literal=(-0.0, -0.0))
    others = InputSpec("x1", (1, 2), "float32", literal=(1.0, 1.0)), InputSpec("x2", (1,), "float32", literal=(-1.0,))
    for call, decided in (
        (Call("v0", "cumsum", ("x0",), (("dim", 0),)), True),
        (Call("v0", "neg", ("x0",)), True),
        (Call("v0", "matmul", ("x0", "x1")), False),
        (Call("v0", "maximum", ("x0", "x0")), False),
    ):
        expected = expect(GraphSpec((zeros, *others), (call, Call("v1", "atan2", ("v0", "x2"))), ("v1",)))
        assert undecided(expected)[0].any().item() is not decided
        assert judge(expected, [-expected.eager[0]]).ok is not decided


def test_what_is_left_out_gives_no_size_to_the_others() -> None:
    """The cosine of 3e12 may be anything, and its remainder by -3e12 as large, beside which 1e7 is nothing."""
    numbers = InputSpec("x0", (3,), "float32", literal=(-3.3e12, -1.0e7, 0.5))
    calls = (Call("v0", "cos", ("x0",)), Call("v1", "remainder", ("v0", "x0")))
    expected = expect(GraphSpec((numbers,), calls, ("v1",)))
    assert undecided(expected)[0].tolist() == [True, True, False]
    right = expected.eager[0]
    assert judge(expected, [torch.where(right > 1.0, 0.5, right + torch.tensor([1e12, 1e7, 0.0]))]).ok
    assert not judge(expected, [torch.tensor([right[0], right[1], torch.nan])]).ok


def test_four_roundings_next_to_the_smallest_number_are_no_relative_error() -> None:
    """The cube of 44.8 is infinite in float16, and not in float64: what is divided by it is 0, or 3.4 times the smallest
    number."""
    divisors = InputSpec("x0", (2,), "float16", literal=(44.78125, 44.78125))
    values = InputSpec("x1", (3, 2), "float16", literal=(-0.25, 0.5, -0.02, 0.3, 0.02, -0.018))
    calls = (Call("v0", "cube", ("x0",)), Call("v1", "div", ("x1", "v0")))
    expected = expect(GraphSpec((values, divisors), calls, ("v1",)))
    assert not expected.eager[0].any()
    assert judge(expected, expected.eager).ok
    assert judge(expected, [expected.precise[0].half()]).ok
