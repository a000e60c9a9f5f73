"""Routes: what goes where and why, what is refused, and what is said when no route is left."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as map_rows

import mlirstack
from mlirstack.bindings import ir, new_context
from mlirstack.errors import StageError, UnsupportedError, UsageError
from mlirstack.frontend.export import export
from mlirstack.frontend.program import Program, Signature
from mlirstack.frontend.routes import choose_route, route_failure_reason, unsupported_ops
from mlirstack.ir.ops import function
from mlirstack.ir.text import module_text, parse_module
from mlirstack.pipeline.observers import LevelCheck, Verification
from mlirstack.pipeline.runner import Runner
from mlirstack.pipeline.stage import Pipeline
from mlirstack.pipelines.frontend import frontend_stages, stablehlo_pipeline

X = torch.rand(4, 4)


class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        unused = torch.rand(3)
        y = self.drop(x)
        return y + torch.randn_like(x) + unused.shape[0]


class Unsupported(nn.Module):
    def forward(self, x):
        a = torch.special.i0(x)
        b = torch.special.i1(x)
        c = torch.special.bessel_j0(x)
        return torch.relu(a + b + c)


class Unsigned(nn.Module):
    def forward(self, x):
        return x.to(torch.uint8) - 3


class Sorted(nn.Module):
    def forward(self, x):
        return torch.sort(x.long())[0]


def line(module: type[nn.Module], offset: int) -> int:
    return module.forward.__code__.co_firstlineno + offset


def attempt(program: Program, route: str) -> tuple[Pipeline, StageError]:
    table = Pipeline(route, frontend_stages(route, program.level))
    with pytest.raises(StageError) as failed:
        Runner().run(table, program.payload)
    return table, failed.value


# ------------------------------------------------------------------------------------------------------------- decisions


def test_tosa_is_tried_first_with_linalg_to_fall_back_on():
    route = choose_route(export(nn.Linear(4, 4), (X,)))
    assert (route.name, route.fallback) == ("tosa", "linalg")


@pytest.mark.parametrize("function", [lambda x: x.sort().values, lambda x: x.topk(2).values, lambda x: x.cumsum(0)])
def test_what_tosa_says_in_too_many_ops_goes_to_linalg_first(function):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    program = export(Model(), (X,))
    route = choose_route(program)
    assert (route.name, route.fallback) == ("linalg", "tosa")
    assert "for every position" in route.reason
    assert choose_route(program, "tosa").name == "tosa"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.scatter_add(0, torch.zeros(2, 4, dtype=torch.int64), x), "linalg"),
        (lambda x: torch.index_put(x, (torch.tensor([1, 2]),), x[:2], accumulate=True), "linalg"),
        (lambda x: torch.index_put(x, (torch.tensor([1, 2]),), x[:2]), "tosa"),
        (lambda x: nn.functional.max_pool2d(x[None], 2, return_indices=True), "linalg"),
        (lambda x: nn.functional.max_pool2d(x[None], 2), "tosa"),
    ],
)
def test_what_the_tosa_route_takes_apart_goes_to_linalg_first(function, name):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    program = export(Model(), (X,))
    assert choose_route(program).name == name
    assert choose_route(program, "tosa").name == "tosa"


@pytest.mark.parametrize("name", ["tosa", "linalg"])
def test_a_route_that_was_asked_for_has_no_fallback(name):
    route = choose_route(export(nn.Linear(4, 4), (X,)), name)
    assert (route.name, route.fallback, route.reason) == (name, None, "asked for")


def test_an_unknown_route_is_refused():
    with pytest.raises(UsageError, match="unknown route 'tosca'"):
        choose_route(export(nn.Linear(4, 4), (X,)), "tosca")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.to(torch.uint8) + 1, "uint8 .*no sign"),
        (lambda x: torch.complex(x, x).real, "complex64 .*no complex"),
        (lambda x: x.double() + 0.1, "round the number 0.1 to float32"),
        (lambda x: torch.nn.functional.gelu(x.double()), "numbers rounded to float32"),
        (lambda x: x.sum().item(), "no scalar results"),
        (lambda x: x.sum() + torch.arange(10**6), "hold 1000000 numbers as a constant"),
    ],
)
def test_what_tosa_gets_wrong_goes_to_linalg_with_the_reason(function, reason):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    route = choose_route(export(Model(), (X,)))
    assert (route.name, route.fallback) == ("linalg", None)
    assert re.search(reason, route.reason)


def test_the_reason_names_the_users_line_and_asking_for_tosa_is_refused():
    program = export(Unsigned(), (X,))
    assert f"{__file__}:{line(Unsigned, 1)}" in choose_route(program).reason
    with pytest.raises(UnsupportedError, match="cannot go through TOSA") as refused:
        choose_route(program, "tosa")
    assert {op.source.line for op in refused.value.ops} == {line(Unsigned, 1)}


def test_randomness_is_refused_all_of_it_at_once_with_lines():
    program = export(Random(), (X,))
    with pytest.raises(UnsupportedError, match="draws random numbers") as refused:
        choose_route(program)
    assert [(op.op, op.source.line) for op in refused.value.ops] == [
        ("aten.dropout.default", line(Random, 2)),
        ("aten.randn_like.default", line(Random, 3)),
    ]
    assert "model.eval()" in refused.value.hint


def test_dropout_in_eval_mode_is_no_randomness():
    choose_route(export(nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), (X,)))


def test_randomness_can_be_allowed_and_then_avoids_tosa():
    route = choose_route(export(Random(), (X,), allow_random=True))
    assert route.name == "linalg" and "int64" in route.reason  # the generator counts in integers of 64 bits


@pytest.mark.parametrize("function", [lambda x: x.long() + 1, lambda x: x.double().exp()])
def test_what_lies_beyond_tosas_base_profile_goes_to_linalg_first(function):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    program = export(Model(), (X,))
    route = choose_route(program)
    assert (route.name, route.fallback) == ("linalg", "tosa") and "base profile" in route.reason
    assert choose_route(program, "tosa").name == "tosa"


@pytest.mark.target
def test_long_sums_and_floor_divisions_through_tosa_are_eagers():
    class Integers(nn.Module):
        def forward(self, x, y):
            sums = x + y, torch.sub(x, y, alpha=3), torch.rsub(x, 5, alpha=2), x + 2 ** (5 * x.element_size()), x.sum() - y
            return *sums, -x, x // y, x % y, x // -3, x % 7

    x = torch.tensor([[7, -7, 2**40 + 1, 2**63 - 1], [0, 1, -(2**63), 5]])
    y = torch.tensor([3, -2, 2**33 + 5, -(2**31)])
    for dtype in (torch.int64, torch.int32):
        inputs = (x.to(dtype), y.to(dtype))
        program = mlirstack.compile(Integers(), inputs, target="cpu", route="tosa")
        for got, wanted in zip(program(*inputs), Integers()(*inputs), strict=True):
            assert torch.equal(got, wanted)


def test_modules_below_torch_have_one_way_left():
    def program(level: str) -> Program:
        return Program("m", None, level, Signature((), (), (), "", ""), {})

    assert choose_route(program("tosa")).name == "tosa"
    assert choose_route(program("linalg")).name == "linalg"
    with pytest.raises(UsageError, match="stands at level 'tosa'"):
        choose_route(program("tosa"), "linalg")
    with pytest.raises(UsageError, match="no route leads from level 'stablehlo'"):
        choose_route(program("stablehlo"))


# ---------------------------------------------------------------------------------------------------------------- stages


@pytest.mark.portable
@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_every_stage_leaves_its_level_and_weights_stay_arguments(route):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    program = export(model, (torch.randn(2, 64),))
    module = Runner([LevelCheck(), Verification()]).run(Pipeline(route, frontend_stages(route, "fx")), program.payload)
    entry = function(module, "main")
    names = [a["mlirstack.parameter"].value if "mlirstack.parameter" in a else None for a in entry.arg_attrs]
    assert names == ["0.weight", "0.bias", "2.weight", "2.bias", None]
    assert len(module_text(module)) < 10_000
    assert [str(t) for t in ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value).results] == [
        "tensor<2x64xf32>"
    ]


@pytest.mark.portable
def test_one_graph_can_be_lowered_again():
    payload = export(nn.Linear(4, 4), (X,)).payload
    texts = [module_text(Runner().run(Pipeline("p", frontend_stages("linalg", "fx")), payload)) for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.portable
def test_source_lines_reach_linalg():
    payload = export(Unsigned(), (X,)).payload
    module = Runner().run(Pipeline("p", frontend_stages("linalg", "fx")), payload)
    assert f'"{__file__}":{line(Unsigned, 1)}' in module_text(module, locations=True)


@pytest.mark.portable
def test_stablehlo_can_be_read():
    module = Runner([LevelCheck()]).run(stablehlo_pipeline(), export(nn.Linear(4, 4), (X,)).payload)
    assert "stablehlo.dot" in module_text(module)


def test_stages_start_where_the_program_stands():
    assert [s.name for s in frontend_stages("tosa", "fx")] == ["fx", "torch", "tosa", "linalg"]
    assert [s.name for s in frontend_stages("linalg", "torch")] == ["linalg"]
    assert [s.name for s in frontend_stages("tosa", "tosa")] == ["linalg"]
    assert frontend_stages("linalg", "linalg") == frontend_stages("tosa", "vector") == ()
    with pytest.raises(UsageError, match="does not pass level 'tosa'"):
        frontend_stages("linalg", "tosa")


@pytest.mark.portable
def test_a_torch_module_from_a_file_is_judged_by_its_types():
    text = """func.func @main(%a: !torch.vtensor<[4],ui8>) -> !torch.vtensor<[4],ui8> {
      %0 = torch.aten.relu %a : !torch.vtensor<[4],ui8> -> !torch.vtensor<[4],ui8>
      return %0 : !torch.vtensor<[4],ui8>
    }"""
    program = Program("m", parse_module(text, new_context()), "torch", Signature((), (), (), "", ""), {})
    assert choose_route(program).name == "linalg"


# -------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.portable
def test_the_reason_of_a_failure_is_one_line_with_op_dtype_and_place():
    _, error = attempt(export(Sorted(), (X,)), "tosa")
    reason = route_failure_reason(error)
    assert reason == f"aten.sort(int64) has no lowering in pass 'convert-torch-to-tosa' at {__file__}:{line(Sorted, 1)}"


@pytest.mark.portable
def test_all_unsupported_ops_are_listed_at_once():
    program = export(Unsupported(), (X,))
    tables, failures = zip(*(attempt(program, route) for route in ("tosa", "linalg")), strict=True)
    ops = unsupported_ops(program, failures, tables)
    assert [(op.op, op.source.line) for op in ops] == [
        ("aten.i0.default(float32)", line(Unsupported, 1)),
        ("aten.special_i1.default(float32)", line(Unsupported, 2)),
        ("aten.special_bessel_j0.default(float32)", line(Unsupported, 3)),
    ]
    assert all(op.source.file == __file__ for op in ops)


@pytest.mark.portable
def test_an_op_that_one_route_can_lower_is_not_listed():
    program = export(Sorted(), (X,))
    table, error = attempt(program, "tosa")
    linalg = Pipeline("linalg", frontend_stages("linalg", "fx"))
    assert unsupported_ops(program, (error, error), (table, linalg)) == ()


@pytest.mark.portable
def test_control_flow_that_cannot_be_imported_names_the_op():
    class Rows(nn.Module):
        def forward(self, x):
            return map_rows(lambda row: row + 1, x)

    program = export(Rows(), (X,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    _, error = attempt(program, "linalg")
    assert error.stage == "torch" and error.pass_name == "mlirstack-import-fx"
    assert "'map_impl(float32)' cannot be imported" in error.message
    assert "dynamic number of steps" in error.message
    assert "dense<" not in str(error)


@pytest.mark.portable
def test_sizes_of_dynamic_dimensions_carry_the_line_that_needs_them():
    class Flat(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, -1)

    program = export(Flat(), (X,), dynamic_shapes=({0: torch.export.Dim("batch", max=8)},))
    _, error = attempt(program, "tosa")
    assert str(error.location) == f"{__file__}:{line(Flat, 1)}"


def test_recurrent_layers_are_random_only_with_dropout_in_training():
    inputs = (torch.randn(5, 2, 4),)
    choose_route(export(nn.LSTM(4, 3, num_layers=2), inputs))
    choose_route(export(nn.RNN(4, 3, num_layers=2, dropout=0.5).eval(), inputs))
    with pytest.raises(UnsupportedError, match="training mode"):
        choose_route(export(nn.GRU(4, 3, num_layers=2, dropout=0.5), inputs))
