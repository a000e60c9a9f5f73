"""Accuracy against hand-computed errors: tolerances, NaN patterns, shapes, dtypes, structure, integers, mutation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlirstack import zoo
from mlirstack.compare.accuracy import (
    TOLERANCES,
    Accuracy,
    Answer,
    Reference,
    call,
    compare_answers,
    compare_leaf,
    reference,
)
from mlirstack.errors import UsageError

INFINITY, NAN = math.inf, math.nan


class Fixed(nn.Module):
    """Returns what it was given to return."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, *inputs: Any) -> Any:
        return self.result


def against(expected: Any, got: Any) -> Accuracy:
    return compare_answers(call(Fixed(got), ()), reference(Fixed(expected), ()))


def test_relative_l2_and_maximum_by_hand() -> None:
    precise = torch.tensor([3.0, 4.0])
    output = compare_leaf("y", torch.tensor([3.0, 4.5]), precise, precise.double())
    assert output.rel_l2 == pytest.approx(0.1)  # 0.5 / 5
    assert output.max_abs == pytest.approx(0.5)
    assert output.tolerance == TOLERANCES[torch.float32].floor
    assert not output.ok


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_error_within_the_floor_passes_and_ten_times_it_fails(dtype: torch.dtype) -> None:
    x = torch.linspace(1, 2, 64, dtype=torch.float64).to(dtype)
    floor = TOLERANCES[dtype].floor
    assert compare_leaf("y", (x.double() * (1 + 0.3 * floor)).to(dtype), x, x.double()).ok
    assert not compare_leaf("y", (x.double() * (1 + 10 * floor)).to(dtype), x, x.double()).ok


def test_floors_lie_well_above_the_roundoff_and_below_the_next_dtype() -> None:
    order = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    for dtype in order:
        assert TOLERANCES[dtype].floor >= 2 * torch.finfo(dtype).eps
    assert TOLERANCES[torch.float64].ceiling < torch.finfo(torch.float32).eps / 2
    assert TOLERANCES[torch.float32].floor < torch.finfo(torch.float16).eps / 2


def test_what_eager_gets_wrong_widens_the_tolerance_up_to_the_ceiling() -> None:
    precise = torch.full((16,), 1.0, dtype=torch.float64)
    eager = (precise + 1e-4).float()
    assert compare_leaf("y", (precise - 2e-4).float(), eager, precise).ok  # 4 * 1e-4 allowed
    assert not compare_leaf("y", (precise - 5e-4).float(), eager, precise).ok
    useless = (precise + 0.5).float()
    assert not compare_leaf("y", useless, useless, precise).ok  # the ceiling is 1e-3


def test_eager_against_itself_reports_its_own_error() -> None:
    torch.manual_seed(0)
    module, x = nn.Linear(300, 40), torch.randn(5, 300)
    expected = reference(module, (x,))
    accuracy = compare_answers(expected.eager, expected)
    assert accuracy.ok and accuracy.precision == "float64" and accuracy.worst is not None
    exact = x.double() @ module.weight.double().T + module.bias.double()
    by_hand = float(((module(x).double() - exact).norm() / exact.norm()).detach())
    assert accuracy.worst.rel_l2 == pytest.approx(by_hand)
    assert 1e-9 < by_hand < 1e-6


def test_one_wrong_element_among_many_fails_in_half_precision() -> None:
    x = torch.ones(1_000_000, dtype=torch.float16)
    got = x.clone()
    got[17] = 0  # relative L2 error 1e-3, below the tolerance
    output = compare_leaf("y", got, x, x.double())
    assert output.rel_l2 == pytest.approx(1e-3) and output.rel_l2 < output.tolerance
    assert output.reason is not None and "one element" in output.reason


def test_nan_in_the_same_places_passes() -> None:
    x = torch.tensor([1.0, NAN, INFINITY, -INFINITY])
    output = compare_leaf("y", x.clone(), x, x.double())
    assert output.ok and output.rel_l2 == 0.0


@pytest.mark.parametrize("value", [1.0, INFINITY, -INFINITY])
def test_missing_nan_fails(value: float) -> None:
    x = torch.tensor([1.0, NAN])
    output = compare_leaf("y", torch.tensor([1.0, value]), x, x.double())
    assert output.reason is not None and "NaN or infinity" in output.reason


def test_wrong_sign_of_infinity_and_extra_nan_fail() -> None:
    x = torch.tensor([INFINITY, 2.0])
    assert not compare_leaf("y", torch.tensor([-INFINITY, 2.0]), x, x.double()).ok
    assert not compare_leaf("y", torch.tensor([INFINITY, NAN]), x, x.double()).ok


def test_overflow_of_the_models_own_dtype_is_eagers_answer() -> None:
    eager = torch.tensor([INFINITY, 1.0], dtype=torch.float16)
    precise = torch.tensor([70000.0, 1.0], dtype=torch.float64)
    assert compare_leaf("y", eager.clone(), eager, precise).ok
    assert not compare_leaf("y", torch.tensor([60000.0, 1.0], dtype=torch.float16), eager, precise).ok


def test_zero_answer_is_compared_absolutely() -> None:
    zero = torch.zeros(4)
    assert compare_leaf("y", zero + 1e-7, zero, zero.double()).ok
    assert not compare_leaf("y", zero + 1e-3, zero, zero.double()).ok


def test_integers_and_booleans_are_exact() -> None:
    x = torch.tensor([1, 2, 3, 2**53])
    output = compare_leaf("y", torch.tensor([1, 2, -4, 2**53]), x, x)
    assert (output.rel_l2, output.max_abs, output.tolerance) == (0.25, 7.0, 0.0)
    assert output.reason == "1 of 4 elements differ"
    assert not compare_leaf("y", torch.tensor([1, 2, 3, 2**53 + 1]), x, x).ok  # float64 could not tell these apart
    assert compare_leaf("y", x.clone(), x, x).ok
    flags = torch.tensor([True, False])
    assert not compare_leaf("y", ~flags, flags, flags).ok


def test_shape_and_dtype_must_match() -> None:
    x = torch.ones(2, 3)
    assert against(x, torch.ones(3, 2)).reason == "output: is float32[3, 2], eager gives float32[2, 3]"
    assert against(x, x.double()).reason == "output: is float64[2, 3], eager gives float32[2, 3]"
    assert against(torch.ones(1), torch.ones(())).reason == "output: is float32[], eager gives float32[1]"


def test_structure_must_match() -> None:
    x = torch.ones(2)
    assert against((x, x), (x, x)).ok
    for wrong in ([x, x], (x,), {"a": x, "b": x}, (x, (x,))):
        accuracy = against((x, x), wrong)
        assert accuracy.reason is not None and "structure" in accuracy.reason


def test_nested_outputs_are_named() -> None:
    x = torch.ones(2)
    accuracy = against({"a": (x, x)}, {"a": (x, x + 1)})
    assert [output.name for output in accuracy.outputs if not output.ok] == ["output['a'][1]"]


def test_python_values_are_compared() -> None:
    assert against((1, None, True, "x", 0.5), (1, None, True, "x", 0.5)).ok
    assert not against((1,), (2,)).ok
    assert not against((1,), (True,)).ok
    assert not against((0.5,), (0.6,)).ok
    assert not against((torch.ones(()),), (1.0,)).ok
    assert against((NAN,), (NAN,)).ok


def test_complex_outputs() -> None:
    z = torch.tensor([3 + 4j], dtype=torch.complex64)
    assert against(z, z.clone()).ok
    output = against(z, torch.tensor([3 + 4.5j], dtype=torch.complex64)).outputs[0]
    assert output.rel_l2 == pytest.approx(0.1) and not output.ok


def test_empty_outputs_are_right() -> None:
    assert against(torch.ones(0, 3), torch.ones(0, 3)).ok
    assert against((), ()).ok


class Doubler(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2).sum()


def test_inputs_written_in_place_are_part_of_the_answer() -> None:
    x = torch.ones(3)
    expected = reference(Doubler(), (x,))
    assert torch.equal(x, torch.ones(3))
    assert compare_answers(call(Doubler(), (x,)), expected).ok
    accuracy = compare_answers(call(lambda x: (2 * x).sum(), (x,)), expected)
    assert accuracy.reason == "input[0] after the call: eager writes this input, the target does not"
    pure = reference(Fixed(torch.ones(())), (x,))
    accuracy = compare_answers(call(lambda x: x.mul_(2)[0] / 2, (x,)), pure)
    assert accuracy.reason == "input[0] after the call: the target writes an input that eager leaves alone"


class Stubborn(nn.Module):
    """Refuses everything but float32."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x + 1


def test_a_model_without_float64_is_compared_in_float32_and_says_so() -> None:
    expected = reference(Stubborn(), (torch.ones(2),))
    assert expected.precision == "float32"
    assert expected.note == "eager has no float64 for this model: float32 only"


class HalfOnly(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.float16, "half only"
        return x + 1


def test_a_model_without_any_higher_precision_is_compared_as_it_is() -> None:
    expected = reference(HalfOnly(), (torch.ones(2, dtype=torch.float16),))
    assert expected.precision == "as is" and expected.note is not None and "half only" in expected.note


def test_a_model_that_eager_cannot_run_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="eager cannot run the model: RuntimeError"):
        reference(nn.Linear(3, 4), (torch.ones(2, 5),))


def test_the_worst_output_is_the_one_closest_to_its_tolerance() -> None:
    x, flags = torch.ones(4), torch.tensor([True])
    eager = Answer({"a": x, "b": x, "c": flags}, "*")
    got = Answer({"a": x * (1 + 1e-6), "b": x * (1 + 5e-6), "c": flags}, "*")
    precise = Answer({"a": x.double(), "b": x.double(), "c": flags}, "*")
    accuracy = compare_answers(got, Reference(eager, precise, "float64"))
    assert accuracy.ok and accuracy.worst is not None and accuracy.worst.name == "b"


def test_answers_do_not_change_with_later_calls() -> None:
    buffer = torch.zeros(2)

    def reuse(x: Tensor) -> Tensor:
        return buffer.copy_(x)

    first = call(reuse, (torch.ones(2),))
    call(reuse, (torch.zeros(2),))
    assert torch.equal(first.leaves["output"], torch.ones(2))


@pytest.mark.parametrize("family", zoo.families())
def test_eager_is_far_within_its_own_tolerance_on_the_zoo(family: str) -> None:
    for name in zoo.names(family):
        if name in zoo.HEAVY:
            continue
        model = zoo.get(name)
        expected = reference(model.module, model.inputs)
        accuracy = compare_answers(expected.eager, expected)
        assert accuracy.ok and accuracy.precision == "float64", f"{name}: {accuracy.reason or accuracy.note}"
        for output in accuracy.outputs:
            assert output.rel_l2 is not None and output.rel_l2 <= output.tolerance / 2, f"{name}: {output}"
