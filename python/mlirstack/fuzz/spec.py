"""A random graph as data: inputs, calls of named operations, outputs.

A spec is what a seed or hypothesis draws, what travels to a worker process as JSON, what is made smaller when it fails, and
what a reproducer is written from.  It knows nothing of how operations compute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Option = int | float | bool | str | None | tuple[int, ...]


@dataclass(frozen=True)
class InputSpec:
    """A tensor from outside: an argument of the model, or with ``parameter`` one of its buffers.

    ``dtype`` is torch's name without the prefix.  ``layout`` says how it lies in memory and ``values`` what is in it (see
    :mod:`mlirstack.fuzz.values`), drawn with ``seed``; ``literal`` holds the elements themselves where they matter.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = "contiguous"
    values: str = "normal"
    seed: int = 0
    parameter: bool = False
    literal: tuple[float | int | bool, ...] | None = None


@dataclass(frozen=True)
class Call:
    """``name = op(*operands, **options)``: ``op`` is a key of the table of operations."""

    name: str
    op: str
    operands: tuple[str, ...]
    options: tuple[tuple[str, Option], ...] = ()


@dataclass(frozen=True)
class GraphSpec:
    """Calls in order, each reading inputs and earlier calls; ``outputs`` are names of what is returned."""

    inputs: tuple[InputSpec, ...]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]

    def text(self) -> str:
        """One line a call, for people."""
        lines = [
            f"{i.name}: {i.dtype}{list(i.shape)} {i.layout} {i.values}{' parameter' * i.parameter}" for i in self.inputs
        ]
        for call in self.calls:
            arguments = [*call.operands, *(f"{key}={value}" for key, value in call.options)]
            lines.append(f"{call.name} = {call.op}({', '.join(arguments)})")
        return "\n".join([*lines, f"return {', '.join(self.outputs)}"])


def without_dead_code(spec: GraphSpec) -> GraphSpec:
    """The same outputs, from only what they need."""
    needed = set(spec.outputs)
    for call in reversed(spec.calls):
        if call.name in needed:
            needed.update(call.operands)
    return GraphSpec(
        tuple(value for value in spec.inputs if value.name in needed),
        tuple(call for call in spec.calls if call.name in needed),
        spec.outputs,
    )


def to_json(spec: GraphSpec) -> str:
    """One line of JSON (with Python's NaN and Infinity)."""
    return json.dumps(asdict(spec))


def from_json(text: str) -> GraphSpec:
    """The inverse of :func:`to_json`."""
    data: Mapping[str, Any] = json.loads(text)
    inputs = tuple(
        InputSpec(**{**value, "shape": tuple(value["shape"]), "literal": _tuple_or_none(value["literal"])})
        for value in data["inputs"]
    )
    calls = tuple(
        Call(
            call["name"],
            call["op"],
            tuple(call["operands"]),
            tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in call["options"]),
        )
        for call in data["calls"]
    )
    return GraphSpec(inputs, calls, tuple(data["outputs"]))


def _tuple_or_none(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
