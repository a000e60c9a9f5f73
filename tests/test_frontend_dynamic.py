"""Dynamic dimensions: names and ranges in the signature, the --dynamic option, and example inputs of size one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

import mlirstack as ms
from mlirstack.errors import SignatureError, UsageError
from mlirstack.frontend.dynamic_option import parse_dynamic
from mlirstack.frontend.export import export
from mlirstack.frontend.program import ResultSpec


class Doubled(nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y], 0), x.shape[0], x * 2


def test_a_dim_gives_its_name_and_range():
    batch = Dim("batch", min=1, max=64)
    program = export(nn.Linear(4, 3), (torch.randn(5, 4),), dynamic_shapes=({0: batch},))
    assert program.signature.arguments[-1].shape == ("batch", 4)
    assert program.signature.results == (ResultSpec(("batch", 3), "float32"),)
    assert program.signature.dynamic == {"batch": (1, 64)}


def test_sizes_of_results_are_expressions_over_names():
    batch = Dim("batch", min=1, max=64)
    shapes = {"x": {0: batch}, "y": {0: batch}}
    program = export(Doubled(), (torch.randn(3, 2), torch.randn(3, 2)), dynamic_shapes=shapes)
    assert [r.shape for r in program.signature.results] == [("2*batch", 2), None, ("batch", 2)]
    assert program.signature.outputs[1].scalar and program.signature.outputs[1].dtype == "int64"


def test_hints_are_named_after_argument_and_axis():
    shapes = {"x": {0: Dim.DYNAMIC}, "y": {0: Dim.DYNAMIC(min=2, max=9)}}
    program = export(Doubled(), (torch.randn(3, 2), torch.randn(4, 2)), dynamic_shapes=shapes)
    assert [a.shape for a in program.signature.arguments] == [("x_0", 2), ("y_0", 2)]
    assert program.signature.dynamic["y_0"] == (2, 9)
    assert program.signature.results[0].shape == ("x_0 + y_0", 2)


def test_an_unbounded_dimension_has_no_upper_limit():
    program = export(nn.Linear(4, 3), (torch.randn(5, 4),), dynamic_shapes=({0: Dim("batch")},))
    assert program.signature.dynamic["batch"][1] is None


def test_an_example_of_batch_one_is_no_contradiction():
    batch = Dim("batch", min=1, max=64)
    program = export(nn.Linear(4, 3), (torch.randn(1, 4),), dynamic_shapes=({0: batch},))
    assert program.signature.arguments[-1].shape == ("batch", 4)


def test_a_dimension_inside_a_nested_input():
    class Nested(nn.Module):
        def forward(self, pair, *, extra):
            return pair[0] + extra["k"]

    batch = Dim("batch", max=9)
    program = export(
        Nested(),
        ([torch.randn(3, 2), torch.randn(2)],),
        {"extra": {"k": torch.randn(3, 2)}},
        dynamic_shapes={"pair": [{0: batch}, None], "extra": {"k": {0: batch}}},
    )
    assert [a.shape for a in program.signature.arguments] == [("batch", 2), (2,), ("batch", 2)]


class Gathered(nn.Module):
    """Inputs of every kind of parameter."""

    def forward(self, first, *others, sides):
        return first + sum(others) + sides["left"]


def test_dimensions_of_any_kind_of_parameter_have_their_names_and_ranges():
    batch = Dim("batch", min=1, max=9)
    one = torch.randn(1, 2)  # of all of them: an example of size one is no contradiction
    program = export(
        Gathered(),
        (one, torch.randn(2), one.clone(), one.clone()),
        {"sides": {"left": one.clone()}},
        dynamic_shapes=({0: batch}, (None, {0: batch}, {0: batch}), {"left": {0: batch}}),
    )
    rows = [a.shape for a in program.signature.arguments]
    assert rows == [("batch", 2), (2,), ("batch", 2), ("batch", 2), ("batch", 2)]
    assert program.signature.dynamic == {"batch": (1, 9)}


def test_a_dimension_that_is_said_to_stay_does():
    shapes = ({0: Dim("batch", max=9), 1: Dim.STATIC},)
    program = export(nn.Linear(1, 3), (torch.randn(4, 1),), dynamic_shapes=shapes)
    assert program.signature.arguments[-1].shape == ("batch", 1)


def test_shapes_are_told_by_the_tensors_themselves_or_by_more_examples():
    x, y = torch.randn(3, 2), torch.randn(4, 2)
    marked = torch.export.ShapesCollection()
    marked[x] = {0: Dim("few", max=9)}
    examples = torch.export.AdditionalInputs()
    examples.add((torch.randn(5, 2), torch.randn(4, 2)))
    for shapes, name in ((marked, "few"), (examples, "x_0")):
        program = export(Doubled(), (x, y), dynamic_shapes=shapes)
        assert [a.shape for a in program.signature.arguments] == [(name, 2), (4, 2)]


@pytest.mark.parametrize("axis", [2, -1])
def test_a_dimension_that_an_input_does_not_have_is_refused(axis):
    with pytest.raises(UsageError, match=f"dimension {axis} of input 1, which has 2"):
        export(Doubled(), (torch.randn(3, 2), torch.randn(3, 2)), dynamic_shapes={"x": None, "y": {axis: Dim("n")}})


def test_a_size_that_depends_on_data_is_named_too():
    class NonZero(nn.Module):
        def forward(self, x):
            return x.nonzero()

    program = export(NonZero(), (torch.ones(4),))
    (name, rank) = program.signature.results[0].shape
    assert isinstance(name, str) and rank == 1
    assert name in program.signature.dynamic


def test_the_dynamic_option():
    assert parse_dynamic({"x:0": "1..64", "x:2": "3..", "y:1": "2..8"}) == {
        "x": {0: (1, 64), 2: (3, None)},
        "y": {1: (2, 8)},
    }


@pytest.mark.parametrize(
    ("place", "bounds"), [("x", "1..4"), ("x:a", "1..4"), ("x:0", "4"), ("x:0", "a..b"), ("x:0", "4..4")]
)
def test_a_malformed_dynamic_option_is_refused(place, bounds):
    with pytest.raises(UsageError, match="--dynamic"):
        parse_dynamic({place: bounds})


def test_dimensions_derived_from_another_are_held_to_it() -> None:
    class Halves(nn.Module):
        def forward(self, few: torch.Tensor, many: torch.Tensor) -> torch.Tensor:
            return few + many.view(-1, 2, 3).sum(1)

    length = Dim("length", min=2, max=9)
    shapes = {"few": {0: length}, "many": {0: 2 * length}}
    compiled = ms.compile(Halves(), (torch.randn(4, 3), torch.randn(8, 3)), dynamic_shapes=shapes)
    few, many = torch.randn(5, 3), torch.randn(10, 3)
    torch.testing.assert_close(compiled(few, many), Halves()(few, many))
    for rows, message in (
        (12, "dimension '2\\*length' is 12, but 'length' is 5 in argument 'few'"),
        (11, "dimension '2\\*length' is 11, which is that for no 'length'"),
        (20, "dimension '2\\*length' is 20, allowed of 'length': 2 to 9"),
    ):
        with pytest.raises(SignatureError, match=message):
            compiled(few, torch.randn(rows, 3))
