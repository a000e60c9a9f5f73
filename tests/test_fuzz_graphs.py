"""Random graphs: the same for a seed, faithful as text and as modules; shrinking keeps the failure and little else."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlirstack.fuzz.build import build, run
from mlirstack.fuzz.generate import MAXIMUM_CALLS, generate, graph_of
from mlirstack.fuzz.operations import table
from mlirstack.fuzz.oracle import expect, judge
from mlirstack.fuzz.results import Result
from mlirstack.fuzz.shrink import shrink
from mlirstack.fuzz.spec import Call, GraphSpec, InputSpec, from_json, to_json, without_dead_code


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))


QUICK = settings(
    max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


@given(st.data())
@QUICK
def test_a_graph_is_its_text_and_its_module_is_its_meaning(data: st.DataObject) -> None:
    spec = generate(Drawn(data))
    assert from_json(to_json(spec)) == spec
    assert 0 < len(spec.calls) <= MAXIMUM_CALLS
    assert without_dead_code(spec) == spec
    built = build([spec])
    expected = expect(spec)
    answers = run(built.module, built.inputs)
    for got, eager in zip(answers[0], expected.eager, strict=True):
        torch.testing.assert_close(got, eager, rtol=0, atol=0, equal_nan=True)
    assert judge(expected, answers[0]).ok


def test_seeds_give_the_same_graphs_and_reach_every_operation() -> None:
    graphs = [graph_of(3, number) for number in range(150)]
    assert graphs[:5] == [graph_of(3, number) for number in range(5)]
    assert len({spec.text() for spec in graphs}) == len(graphs)
    reached = {call.op for spec in graphs for call in spec.calls}
    assert set(table()) - reached == set()


def test_several_graphs_in_one_module_do_not_mix() -> None:
    specs = [graph_of(4, number) for number in range(3)]
    together, apart = build(specs), [build([spec]) for spec in specs]
    for outputs, one in zip(run(together.module, together.inputs), apart, strict=True):
        for left, right in zip(outputs, run(one.module, one.inputs)[0], strict=True):
            assert torch.equal(left.isnan(), right.isnan())
            assert torch.equal(left.nan_to_num(), right.nan_to_num())


def test_shrinking_leaves_the_operation_at_fault() -> None:
    spec = graph_of(0, 7)
    culprit = spec.calls[len(spec.calls) // 2]
    asked = []

    def examine(graph: GraphSpec) -> Result:
        asked.append(graph)
        broken = any(call.op == culprit.op and call.options == culprit.options for call in graph.calls)
        return Result("wrong", "by decree") if broken else Result("ok")

    small = shrink(spec, Result("wrong", "by decree"), examine)
    assert [call.op for call in small.spec.calls].count(culprit.op) >= 1
    assert len(small.spec.calls) <= 2  # an output may stand behind it
    assert small.tried == len(asked)


def test_shrinking_keeps_numbers_that_matter() -> None:
    """A failure that depends on a computed value: the value becomes an input with its elements."""
    start = InputSpec("x0", (3,), "float32", literal=(1.0, 4.0, 9.0))
    calls = (Call("v0", "sqrt", ("x0",)), Call("v1", "neg", ("v0",)), Call("v2", "abs", ("v1",)))
    spec = GraphSpec((start,), calls, ("v2",))

    def examine(graph: GraphSpec) -> Result:
        three = float(expect(graph).eager[0][2]) == 3.0
        return Result("wrong" if three and graph.calls[-1].op == "abs" else "ok")

    small = shrink(spec, Result("wrong"), examine).spec
    assert [call.op for call in small.calls] == ["abs"]
    assert small.inputs == (InputSpec("v1", (3,), "float32", literal=(-1.0, -2.0, -3.0)),)
