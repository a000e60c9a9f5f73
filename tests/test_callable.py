"""The user's callable around an executable: what a call must look like, what is written back, what is returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from mlirstack.errors import SignatureError
from mlirstack.frontend.program import ArgumentSpec, Mutation, OutputSpec, ResultSpec, Signature
from mlirstack.targets.base import Executable
from mlirstack.targets.callable import CompiledFunction

pytestmark = pytest.mark.portable


class Recorder(Executable):
    """Returns what it is told to, and remembers its inputs."""

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = list(results)
        self.inputs: list[Any] = []

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        self.inputs = list(inputs)
        return self.results


def spec_of(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> str:
    return pytree.treespec_dumps(pytree.tree_structure((args, kwargs or {})))


def function(
    arguments: tuple[ArgumentSpec, ...],
    in_spec: str,
    outputs: tuple[OutputSpec, ...] = (OutputSpec("result", index=0),),
    out: Any = 0,
    results: Sequence[Any] = (torch.zeros(2),),
    parameters: dict[str, torch.Tensor] | None = None,
    **keywords: Any,
) -> tuple[CompiledFunction, Recorder]:
    recorder = Recorder(results)
    specs = tuple(ResultSpec((2,), "float32") for _ in results)
    out_spec = pytree.treespec_dumps(pytree.tree_structure(out))
    signature = Signature(arguments, specs, outputs, in_spec, out_spec, **keywords)
    return CompiledFunction(recorder, signature, parameters or {}), recorder


X = ArgumentSpec("x", "input", (2, 3), "float32", 0)
BATCHED = ArgumentSpec("x", "input", ("batch", 3), "float32", 0)
ALSO = ArgumentSpec("y", "input", ("batch",), "int64", 1)


def test_positional_tensors_go_straight_in() -> None:
    call, recorder = function((X,), spec_of((0,)))
    x = torch.ones(2, 3)
    assert torch.equal(call(x), torch.zeros(2))
    assert recorder.inputs[0] is x


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(3, 2), r"'x' has shape \[3, 2\], expected \[2, 3\]"),
        (torch.ones(2), r"'x' has shape \[2\]"),
        (torch.ones(2, 3, dtype=torch.float64), "'x' has dtype float64, expected float32"),
        (3.0, "'x' must be a tensor, not float"),
        (torch.ones(2, 3, device="meta"), "'x' is on meta"),
    ],
)
def test_a_wrong_argument_is_named(value: Any, message: str) -> None:
    call, _ = function((X,), spec_of((0,)))
    with pytest.raises(SignatureError, match=message):
        call(value)


def test_a_wrong_number_of_arguments_is_counted() -> None:
    call, _ = function((X,), spec_of((0,)))
    with pytest.raises(SignatureError, match=r"takes 1 value\(s\), 2 given"):
        call(torch.ones(2, 3), torch.ones(2, 3))


def test_keywords_in_any_order() -> None:
    a, b = (ArgumentSpec(n, "input", (2,), "float32", i) for i, n in enumerate("ab"))
    call, recorder = function((a, b), spec_of((), {"a": 0, "b": 0}))
    one, two = torch.ones(2), torch.full((2,), 2.0)
    call(b=two, a=one)
    assert recorder.inputs[0] is one and recorder.inputs[1] is two
    with pytest.raises(SignatureError, match="nested otherwise"):
        call(one, b=two)


def test_nested_inputs_are_flattened() -> None:
    leaf = ArgumentSpec("d", "input", (2,), "float32", 1)
    call, recorder = function((leaf,), spec_of(([0, {"k": 0}],)))
    x = torch.ones(2)
    call([torch.zeros(1), {"k": x}])
    assert recorder.inputs == [x]


def test_dynamic_dimensions_have_ranges_and_agree() -> None:
    call, _ = function((BATCHED, ALSO), spec_of((0, 0)), dynamic={"batch": (1, 8)})
    call(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(SignatureError, match="'batch' is 9, allowed: 1 to 8"):
        call(torch.ones(9, 3), torch.zeros(9, dtype=torch.int64))
    with pytest.raises(SignatureError, match="'y': dimension 'batch' is 5, but 4 in argument 'x'"):
        call(torch.ones(4, 3), torch.zeros(5, dtype=torch.int64))


def test_python_numbers_are_inputs_or_part_of_the_program() -> None:
    n = ArgumentSpec("n", "input", None, "int64", 0)
    call, recorder = function((n,), spec_of((0,)))
    call(7)
    assert recorder.inputs == [7]
    with pytest.raises(SignatureError, match="'n' must be a Python int64, not str"):
        call("7")
    fixed, _ = function((X,), spec_of((0, 0)), specialized=((1, 2),))
    fixed(torch.ones(2, 3), 2)
    for other in (3, 2.0, True):
        with pytest.raises(SignatureError, match="exported for 2"):
            fixed(torch.ones(2, 3), other)


def test_outputs_take_the_model_s_own_form() -> None:
    outputs = (
        OutputSpec("result", index=1),
        OutputSpec("input", index=0),
        OutputSpec("parameter", name="w"),
        OutputSpec("constant", value=5),
        OutputSpec("result", index=1),
    )
    r, w, x = torch.ones(2), torch.full((2,), 3.0), torch.ones(2, 3)
    out = {"a": 0, "b": (0, 0), "c": [0, 0]}
    call, _ = function((X,), spec_of((0,)), outputs, out, (torch.zeros(2), r), {"w": w})
    result = call(x)
    assert result["a"] is r and result["b"][0] is x and result["b"][1] is w
    assert result["c"] == [5, r]


def test_mutations_are_written_into_inputs_and_parameters() -> None:
    updated = torch.arange(6.0).reshape(2, 3)
    mutations = (Mutation(0, leaf=0), Mutation(1, name="count"))
    parameters = {"count": torch.zeros(2)}
    call, _ = function((X,), spec_of((0,)), results=(updated, torch.ones(2)), parameters=parameters, mutations=mutations)
    x = torch.zeros(3, 2).t()
    call(x)
    assert torch.equal(x, updated)
    assert torch.equal(parameters["count"], torch.ones(2))
