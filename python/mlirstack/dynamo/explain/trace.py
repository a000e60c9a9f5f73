"""The structured trace of torch.compile, read in process: what goes in are log records, what comes out are :class:`Event`s.

torch writes this trace for its own tools, and its form changes from version to version: here it gets the few names and
types that the rest of ``explain`` works with, and here a trace becomes data that a file can hold.
"""

from __future__ import annotations

import json
import logging
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

# What is kept, by the name that the newest torch gives it; "artifact" entries have a name of their own.
KINDS = frozenset({
    "dynamo_start", "dynamo_output_graph", "dynamo_graph_break_reason", "dynamo_error", "recompile_reasons",
    "aot_joint_graph", "aot_inference_graph", "aot_forward_graph", "aot_backward_graph",
    "inductor_post_grad_graph", "inductor_output_code",
    "compilation_metrics", "bwd_compilation_metrics",
    "inductor_provenance_tracking_node_mappings",
})  # fmt: skip
# Of these, the fields are read; those of all others are names of files and interned strings.
_WITH_FIELDS = frozenset({"compilation_metrics", "bwd_compilation_metrics"})
_METRICS = frozenset({
    "co_name", "co_filename", "co_firstlineno", "entire_frame_compile_time_s", "backend_compile_time_s",
    "inductor_compile_time_s", "code_gen_time_s", "graph_op_count", "guard_count", "fail_type", "fail_reason",
})  # fmt: skip

Field = str | int | float | bool | None


@dataclass(frozen=True)
class Event:
    """One entry of the trace.

    ``compile_id`` is torch's "frame/recompilation", ``attempt`` counts restarts of the same compilation; ``fields`` are
    numbers and texts, ``payload`` is the long text (a graph, source code, a message).
    """

    kind: str
    compile_id: str | None
    attempt: int
    fields: Mapping[str, Field] = field(default_factory=dict)
    payload: str = ""


@dataclass(frozen=True)
class Trace:
    """All events of a run, in order, with the version of torch that wrote them."""

    torch: str
    events: tuple[Event, ...]

    def of(self, *kinds: str) -> Iterator[Event]:
        """The events of these kinds, in order."""
        return (event for event in self.events if event.kind in kinds)

    def missing(self) -> str:
        """What to print where this torch does not give a field."""
        return f"not given by torch {self.torch.partition('+')[0]}"


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.events: list[Event] = []

    def emit(self, record: logging.LogRecord) -> None:
        event = _event(getattr(record, "metadata", None) or {}, getattr(record, "payload", None) or "")
        if event is not None:
            self.events.append(event)


@contextmanager
def collect() -> Iterator[list[Event]]:
    """The events of everything that is compiled within the block, in a list that grows."""
    log = logging.getLogger("torch.__trace")
    handler, level, propagate = _Collector(), log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False  # the trace is no message to the user
    try:
        yield handler.events
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


def _event(metadata: Mapping[str, object], payload: str) -> Event | None:
    artifact = metadata.get("artifact")
    # The post-grad graph is an artifact on a cache miss, and a kind of its own on a hit: one name for both.
    names = [str(artifact.get("name"))] if isinstance(artifact, Mapping) else [name for name in metadata if name in KINDS]
    if not names or names[0] not in KINDS:
        return None
    kind, attempt, frame = names[0], metadata.get("attempt"), metadata.get("frame_id")
    compile_id = None if frame is None else f"{frame}/{metadata.get('frame_compile_id')}"
    given = metadata.get(kind)
    fields: dict[str, Field] = {}
    if kind in _WITH_FIELDS and isinstance(given, Mapping):
        known = {name: value for name, value in given.items() if name in _METRICS}
        fields = {name: value for name, value in known.items() if value is None or isinstance(value, (str, int, float))}
    return Event(kind, compile_id, attempt if isinstance(attempt, int) else 0, fields, payload)


def trace_of(events: Sequence[Event]) -> Trace:
    """What was collected, with the version of this torch."""
    return Trace(torch.__version__, tuple(events))


def trace_as_data(trace: Trace) -> dict[str, Any]:
    """A trace as data for a JSON file, without the paths of this machine."""
    text = json.dumps({"torch": trace.torch, "events": [asdict(event) for event in trace.events]})
    places = {
        str(Path(torch.__file__).parent.parent): "<site-packages>",
        sysconfig.get_path("stdlib"): "<python>",
        str(Path.cwd()): ".",
        sys.prefix: "<prefix>",
        tempfile.gettempdir(): "<tmp>",
    }
    for place, name in places.items():
        text = text.replace(place, name)
    data: dict[str, Any] = json.loads(text)
    return data


def trace_from_data(data: Mapping[str, Any]) -> Trace:
    """What :func:`trace_as_data` gave."""
    return Trace(data["torch"], tuple(Event(**event) for event in data["events"]))
