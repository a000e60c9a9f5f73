"""A failing graph made small by hypothesis: every call may be cut out, its result becoming an input.

Hypothesis looks for the simplest list of decisions, one for each call, under which the graph still fails in the same way;
"keep all" is where it starts, "cut, any numbers will do" is the simplest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from mlirstack.errors import MissingDependencyError
from mlirstack.fuzz.operations import dtype_name, evaluate
from mlirstack.fuzz.results import Result
from mlirstack.fuzz.spec import Call, GraphSpec, InputSpec, without_dead_code
from mlirstack.fuzz.values import tensor_of

CUT, CUT_WITH_VALUES, KEEP = range(3)

Examine = Callable[[GraphSpec], Result]


@dataclass(frozen=True)
class Shrunk:
    """The smallest graph found and its result; ``tried`` graphs were examined."""

    spec: GraphSpec
    result: Result
    tried: int


def shrink(spec: GraphSpec, result: Result, examine: Examine, *, seconds: float = 120.0) -> Shrunk:
    """The smallest graph that fails as ``spec`` does (same status), as far as it is found in ``seconds``.

    :class:`MissingDependencyError` where hypothesis is not installed.
    """
    search = _Search(spec, result, examine, time.monotonic() + seconds, start=spec)
    for name in spec.outputs:  # most often one output is enough
        search.fails(without_dead_code(replace(search.best, outputs=(name,))) if len(search.best.outputs) > 1 else spec)
    search.start = search.best
    _decide(len(search.start.calls), search.decisions_fail)
    return Shrunk(search.best, search.result, search.tried)


@dataclass
class _Search:
    """What is known so far: the smallest failing graph."""

    best: GraphSpec
    result: Result
    examine: Examine
    deadline: float
    start: GraphSpec
    tried: int = 0

    def fails(self, spec: GraphSpec) -> bool:
        """Whether ``spec`` fails in the same way; kept if it is smaller."""
        if time.monotonic() > self.deadline:
            return False
        self.tried += 1
        result = self.examine(spec)
        if result.status != self.result.status:
            return False
        if _size(spec) < _size(self.best):
            self.best, self.result = spec, result
        return True

    def decisions_fail(self, decisions: Sequence[int]) -> bool:
        """Whether ``start`` with ``decisions`` fails."""
        return self.fails(cut(self.start, decisions))


def _size(spec: GraphSpec) -> tuple[int, int, int]:
    literals = sum(len(value.literal or ()) for value in spec.inputs)
    return len(spec.calls), literals, len(spec.inputs)


def _decide(count: int, fails: Callable[[Sequence[int]], bool]) -> None:
    """Let hypothesis look for the simplest failing decisions."""
    try:
        from hypothesis import HealthCheck, Phase, find, settings
        from hypothesis import strategies as st
        from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
        from hypothesis.errors import Flaky, NoSuchExample, Unsatisfiable
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "hypothesis, which makes failing graphs small, is not installed", hint="pip install 'mlirstack[test]'"
        ) from error
    key, database = b"graph", InMemoryExampleDatabase()
    # Where the search starts.  Under the key itself are examples that were made small before, and are not tried again.
    database.save(key + b".secondary", choices_to_bytes([KEEP] * count))
    options = settings(
        database=database,
        phases=[Phase.reuse, Phase.shrink],
        max_examples=1000,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    decisions = st.tuples(*[st.integers(CUT, KEEP)] * count)
    try:
        find(decisions, fails, settings=options, database_key=key)
    except (Flaky, NoSuchExample, Unsatisfiable):  # not reproducible, or no time is left: what was found before stands
        return


def cut(spec: GraphSpec, decisions: Sequence[int]) -> GraphSpec:
    """``spec`` where results of calls that are not kept are inputs, with other numbers or with eager's."""
    values: dict[str, Tensor] = {value.name: tensor_of(value) for value in spec.inputs}
    inputs, calls = list(spec.inputs), []
    for call, decision in zip(spec.calls, decisions, strict=True):
        values[call.name] = evaluate(call, values)
        if decision == KEEP or call.name in spec.outputs:
            calls.append(call)
        else:
            inputs.append(_input_of(call, values[call.name], literal=decision == CUT_WITH_VALUES))
    return without_dead_code(GraphSpec(tuple(inputs), tuple(calls), spec.outputs))


def _input_of(call: Call, value: Tensor, *, literal: bool) -> InputSpec:
    elements = tuple(value.flatten().tolist()) if literal else None
    return InputSpec(call.name, tuple(value.shape), dtype_name(value.dtype), literal=elements)
