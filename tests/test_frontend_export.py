"""torch.export to a program: what becomes an argument, a result, a specification of an output, a mutation."""

from __future__ import annotations

import dataclasses
import json
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from mlirstack.errors import UnsupportedError
from mlirstack.frontend import trees
from mlirstack.frontend.export import export
from mlirstack.frontend.graph import placeholders
from mlirstack.frontend.program import ArgumentSpec, Mutation, OutputSpec, Program, ResultSpec

Pair = namedtuple("Pair", "left right")


class Function(nn.Module):
    """A model that is one Python function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def run_by_signature(program: Program, *args, **kwargs):
    """Call the exported graph as a target would: arguments by the signature, outputs rebuilt from it."""
    leaves = pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: leaf is None)
    values = [program.parameters[a.name] if a.kind == "parameter" else leaves[a.leaf] for a in program.signature.arguments]
    results = program.payload.module(*values)
    assert [(tuple(r.shape), str(r.dtype)) for r in results if isinstance(r, torch.Tensor)] == [
        (r.shape, f"torch.{r.dtype}") for r in program.signature.results if r.shape is not None
    ]
    outputs = []
    for spec in program.signature.outputs:
        if spec.kind == "result":
            outputs.append(results[spec.index])
        elif spec.kind == "constant":
            outputs.append(spec.value)
        else:
            outputs.append(leaves[spec.index] if spec.kind == "input" else program.parameters[spec.name])
    return pytree.tree_unflatten(outputs, trees.loads(program.signature.out_spec)), results


def assert_same(found, wanted):
    found_leaves, found_spec = pytree.tree_flatten(found)
    leaves, spec = pytree.tree_flatten(wanted)
    assert found_spec == spec
    for a, b in zip(found_leaves, leaves, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b


class Weights(nn.Module):
    """Every kind of state that a model can hold."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 4)
        self.unused = nn.Parameter(torch.zeros(3))
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("shift", torch.full((4,), 3.0), persistent=False)
        self.table = torch.arange(4.0)

    def forward(self, x):
        return self.fc1(x) * self.scale + self.shift + self.table + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_all_state_that_is_read_becomes_named_arguments():
    model, x = Weights(), torch.randn(2, 8)
    program = export(model, (x,))
    assert [(a.name, a.kind) for a in program.signature.arguments] == [
        ("fc1.weight", "parameter"),
        ("fc1.bias", "parameter"),
        ("scale", "parameter"),
        ("shift", "parameter"),
        ("table", "parameter"),
        ("lifted_tensor_0", "parameter"),
        ("x", "input"),
    ]
    assert list(program.parameters) == [a.name for a in program.signature.arguments[:-1]]
    assert program.parameters["fc1.weight"].data_ptr() == model.fc1.weight.data_ptr(), "weights are shared, not copied"
    assert not program.parameters["fc1.weight"].requires_grad
    assert_same(run_by_signature(program, x)[0], model(x).detach())


def test_placeholders_stand_in_the_order_of_the_arguments():
    program = export(Weights(), (torch.randn(2, 8),))
    shapes = [tuple(node.meta["val"].shape) for node in placeholders(program.payload.module.graph)]
    assert shapes == [a.shape for a in program.signature.arguments]


def test_tied_weights_are_one_argument():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model, tokens = Tied(), torch.tensor([[1, 2, 3]])
    program = export(model, (tokens,))
    assert len(program.parameters) == 1
    assert_same(run_by_signature(program, tokens)[0], model(tokens).detach())


def test_single_numbers_stay_in_the_graph():
    model = Function(lambda x: x * torch.tensor(2.0))
    program = export(model, (torch.ones(3),))
    assert program.parameters == {}
    assert_same(run_by_signature(program, torch.ones(3))[0], torch.full((3,), 2.0))


def test_nested_inputs_and_outputs():
    model = Function(lambda pair, *, extra: {"sum": (pair[0] + pair[1], [extra["k"]]), "twice": extra["k"] * 2})
    a, b, k = torch.randn(2), torch.randn(2), torch.randn(3)
    program = export(model, ([a, b],), {"extra": {"k": k}})
    assert [(x.kind, x.leaf) for x in program.signature.arguments] == [("input", 0), ("input", 1), ("input", 2)]
    assert_same(run_by_signature(program, [a, b], extra={"k": k})[0], model([a, b], extra={"k": k}))
    assert trees.loads(program.signature.in_spec) == pytree.tree_structure((([a, b],), {"extra": {"k": k}}))


def test_one_value_returned_twice_is_one_result():
    def twice(x):
        y = x + 1
        return y, y, x * 2

    program = export(Function(twice), (torch.zeros(2),))
    assert len(program.signature.results) == 2
    assert [o.index for o in program.signature.outputs] == [0, 0, 1]


def test_one_tensor_given_twice_is_two_inputs():
    x = torch.ones(2)
    program = export(Function(lambda a, b: a - 2 * b), (x, x))
    output, _ = run_by_signature(program, torch.full((2,), 7.0), x)
    assert output.tolist() == [5.0, 5.0]


def test_arithmetic_on_numbers_read_from_tensors():
    def numbers(x, n):
        return float(x) + int(n), int(float(x)), float(int(n))

    inputs = (torch.tensor(2.75), torch.tensor(3))
    output, _ = run_by_signature(export(Function(numbers), inputs), *inputs)
    assert output == (5.75, 2, 3.0)


def test_passed_through_values_are_no_results():
    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x, y):
            return y, self.weight, x + y

    x, y = torch.zeros(2), torch.ones(2)
    program = export(Through(), (x, y))
    assert program.signature.outputs == (
        OutputSpec("input", index=1, shape=(2,), dtype="float32"),
        OutputSpec("parameter", name="weight", shape=(2,), dtype="float32"),
        OutputSpec("result", index=0, shape=(2,), dtype="float32"),
    )
    assert program.signature.results == (ResultSpec((2,), "float32"),)


def test_constants_and_none_among_the_outputs():
    program = export(Function(lambda x: (3, None, x.shape[0], True, x + 1)), (torch.zeros(5),))
    assert [(o.kind, o.value) for o in program.signature.outputs] == [
        ("constant", 3),
        ("constant", None),
        ("constant", 5),
        ("constant", True),
        ("result", None),
    ]


def test_python_scalars_are_part_of_the_program():
    model = Function(lambda x, n, f, flag: x * n + f if flag else x)
    x = torch.ones(2)
    program = export(model, (x, 3, 0.5, True))
    assert [(a.name, a.leaf) for a in program.signature.arguments] == [("args_0", 0)]
    assert program.signature.specialized == ((1, 3), (2, 0.5), (3, True))
    assert_same(run_by_signature(program, x, 3, 0.5, True)[0], torch.full((2,), 3.5))


def test_a_number_read_from_a_tensor_is_a_scalar_result():
    program = export(Function(lambda x: x.sum().item()), (torch.ones(4),))
    assert program.signature.results == (ResultSpec(None, "float64"),)
    assert program.signature.outputs == (OutputSpec("result", index=0, dtype="float64", scalar=True),)


def test_writes_into_buffers_and_inputs_are_mutations():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            x.mul_(2)
            return x + self.count

    program = export(Counter(), (torch.ones(2),))
    assert program.signature.mutations == (Mutation(0, name="count"), Mutation(1, leaf=0))
    assert program.signature.arguments[0] == ArgumentSpec("count", "parameter", (), "float32")
    output, results = run_by_signature(program, torch.ones(2))
    assert results[0] == 1 and results[1].tolist() == [2.0, 2.0]
    assert output.tolist() == [3.0, 3.0]


def test_training_mode_batch_norm_updates_its_statistics():
    model, x = nn.BatchNorm1d(3), torch.randn(8, 3)
    program = export(model, (x,))
    assert [m.name for m in program.signature.mutations] == ["running_mean", "running_var", "num_batches_tracked"]
    output, results = run_by_signature(program, x)
    assert_same(output, model(x).detach())
    torch.testing.assert_close(results[0], model.running_mean)
    torch.testing.assert_close(results[1], model.running_var)


def test_a_buffer_that_is_only_written_is_still_an_argument():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2))

        def forward(self, x):
            self.last.copy_(x * 2)
            return x + 1

    program = export(Last(), (torch.ones(2),))
    assert [a.name for a in program.signature.arguments] == ["last", "x"]
    assert program.signature.mutations == (Mutation(0, name="last"),)


def test_dtypes_are_torchs_own():
    program = export(
        Function(lambda x, y: (x + 1, y > 0, x.to(torch.int16))), (torch.ones(2, dtype=torch.uint8), torch.ones(2))
    )
    assert [a.dtype for a in program.signature.arguments] == ["uint8", "float32"]
    assert [r.dtype for r in program.signature.results] == ["uint8", "bool", "int16"]


def test_named_tuples_and_torchs_return_types_survive_as_text():
    model = Function(lambda x: Pair(torch.max(x, 0), x + 1))
    x = torch.randn(3, 2)
    program = export(model, (x,))
    output, _ = run_by_signature(program, x)
    assert isinstance(output, Pair) and isinstance(output.left, torch.return_types.max)
    assert_same(output.left.values, x.max(0).values)


def test_exported_programs_are_taken_as_they_are():
    x = torch.randn(2, 8)
    model = Weights()
    exported = torch.export.export(model, (x,))
    assert export(exported).signature == export(model, (x,)).signature


def test_the_signature_is_plain_data():
    program = export(Weights(), (torch.randn(2, 8),))
    assert json.loads(json.dumps(dataclasses.asdict(program.signature)))["arguments"][0]["name"] == "fc1.weight"


def test_the_text_names_parameters_and_shows_no_weights():
    text = export(Weights(), (torch.randn(2, 8),)).payload.text
    assert "parameter fc1.weight: float32[4, 8]" in text
    assert "torch.ops.aten.mm" in text
    assert len(text) < 5000


def test_a_branch_on_values_is_refused_with_the_users_line():
    def branch(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(UnsupportedError) as refused:
        export(Function(branch), (torch.ones(2),))
    assert refused.value.ops[0].source.file == __file__
    assert refused.value.ops[0].source.line == branch.__code__.co_firstlineno + 1
    assert refused.value.hint


def test_an_error_of_the_model_itself_is_reported_with_its_line():
    with pytest.raises(UnsupportedError, match="cannot capture") as refused:
        export(Function(lambda x: x @ x), (torch.ones(2, 3),))
    assert refused.value.ops[0].source.file == __file__
