"""What graph breaks cost: the share of the run time that passes outside of compiled graphs, break by break, and timings.

A compiled call with breaks is graph, eager part, graph, …  The eager part after a graph belongs to the break that ended it.
Where Dynamo gave up on a whole function, what runs outside of any graph belongs to that break.
"""

from __future__ import annotations

import logging
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirstack.compare.timing import Effort, Timing, measure
from mlirstack.dynamo.explain.breaks import GraphBreak, parse_break
from mlirstack.dynamo.explain.capture import Call, Capture, capture, quiet, record
from mlirstack.dynamo.explain.trace import Trace

_ROUNDS = 7
_LOGGER = logging.Logger
# With these Dynamo takes into the graph, or leaves out, what it breaks at by default.
WHOLE_SETTINGS: Mapping[str, Any] = {
    "capture_scalar_outputs": True,
    "capture_dynamic_output_shape_ops": True,
    "ignore_logging_functions": {print, warnings.warn, _LOGGER.debug, _LOGGER.info, _LOGGER.warning, _LOGGER.error},
}


@dataclass(frozen=True)
class RunTimes:
    """Median seconds per call after warm-up, measured in turns.

    ``whole`` is one graph without breaks: None, and ``why_not_whole`` the reason, where torch cannot make it.
    ``eager_share`` is the share of a compiled call that passes outside of graphs.
    """

    eager: Timing
    compiled: Timing | None
    whole: Timing | None
    why_not_whole: str
    eager_share: float | None


def cost_shares(found: Capture, breaks: Sequence[GraphBreak]) -> tuple[dict[int, float | None], float | None]:
    """Share of the run time by number of the break, and of all that is outside of graphs; medians over some calls."""
    if found.error is not None:
        return {}, None
    owners = _owners(found.trace, breaks)
    skipped = [number for number, one in enumerate(breaks) if one.skipped]
    samples: dict[int, list[float]] = {number: [] for number in range(len(breaks))}
    outside = []
    for _ in range(_ROUNDS):
        began, ended, runs = record(found, found.calls[-1])
        total = ended - began
        spent = dict.fromkeys(range(len(breaks)), 0.0)
        rest = total
        for index, run in enumerate(runs):
            rest -= run.ended - run.began
            following = runs[index + 1].began if index + 1 < len(runs) else ended
            owner = owners.get(run.compile_id)
            if owner is not None:
                spent[owner] += following - run.ended
        outside.append(rest / total)
        if len(skipped) == 1:
            spent[skipped[0]] += rest - sum(spent.values())
        for number, seconds in spent.items():
            samples[number].append(seconds / total)
    shares: dict[int, float | None] = {number: statistics.median(values) for number, values in samples.items()}
    if len(skipped) > 1:  # what passes outside of graphs cannot be told apart
        shares.update(dict.fromkeys(skipped))
    return shares, statistics.median(outside)


def _owners(trace: Trace, breaks: Sequence[GraphBreak]) -> dict[str, int]:
    """Compilation → number of the break that ended its graph."""
    numbers = {(one.file, one.line, one.id or one.reason): number for number, one in enumerate(breaks)}
    owners: dict[str, int] = {}
    for event in trace.of("dynamo_graph_break_reason"):
        one = parse_break(event.payload)
        number = numbers.get((one.file, one.line, one.id or one.reason))
        if number is not None and event.compile_id is not None:
            owners[event.compile_id] = number
    return owners


def run_times(
    found: Capture, breaks: Sequence[GraphBreak], call: Call, outside: float | None, *, effort: Effort
) -> RunTimes:
    """Eager, compiled as it is, and compiled whole; the first call of each, in which it is compiled, is not timed."""
    callables = {"eager": lambda: _finish(found, call, found.function)}
    if found.error is None:
        callables["compiled"] = lambda: _finish(found, call, found.compiled)
    why_not = ""
    if breaks:
        whole = capture(found.function, [call], fullgraph=True, settings=dict(WHOLE_SETTINGS), fresh=False)
        if whole.error is None:
            callables["whole"] = lambda: _finish(found, call, whole.compiled)
        else:
            left = parse_break(str(whole.error))
            why_not = f"{left.reason} ({Path(left.file).name}:{left.line})" if left.file else left.reason
    with quiet():
        times = measure(callables, effort)
    compiled = times.get("compiled")
    return RunTimes(times["eager"], compiled, times.get("whole", None if breaks else compiled), why_not, outside)


def _finish(found: Capture, call: Call, function: Any) -> None:
    call(function)
    found.synchronize()
