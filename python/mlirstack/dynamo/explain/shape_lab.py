"""The recompile lab: one function over a list of shapes, as torch.compile has it by default, dynamic, marked, and static.

What comes out is which call compiled, and what guard made it; code is not generated, as Dynamo alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlirstack.dynamo.explain.capture import Function, call_with, capture
from mlirstack.dynamo.explain.recompiles import Recompile, recompilations


@dataclass(frozen=True)
class LabRun:
    """One way of compiling: ``compiled`` are the numbers of the calls in which something was compiled."""

    way: str
    compilations: int
    compiled: tuple[int, ...]
    recompiles: tuple[Recompile, ...]
    error: str = ""


@dataclass(frozen=True)
class ShapeLab:
    """``shapes``: what each call was given; ``runs``: the four ways over the same calls."""

    shapes: tuple[str, ...]
    runs: tuple[LabRun, ...]


def shape_lab(function: Function, inputs: Sequence[Sequence[Any]]) -> ShapeLab:
    """``inputs``: the arguments of each call, in order."""
    changing = _changing(inputs)

    def marked() -> list[tuple[Any, ...]]:
        fresh = [tuple(_copy(value) for value in args) for args in inputs]
        for args in fresh:
            for position, axis in changing:
                torch._dynamo.mark_dynamic(args[position], axis)
        return fresh

    ways: dict[str, tuple[bool | None, Callable[[], Sequence[Sequence[Any]]]]] = {
        "default": (None, lambda: inputs),
        "dynamic=True": (True, lambda: inputs),
        "mark_dynamic": (None, marked),
        "dynamic=False": (False, lambda: inputs),
    }
    runs = [_run(way, function, given(), dynamic) for way, (dynamic, given) in ways.items()]
    return ShapeLab(tuple(_shapes(args) for args in inputs), tuple(runs))


def _run(way: str, function: Function, inputs: Sequence[Sequence[Any]], dynamic: bool | None) -> LabRun:
    calls = [call_with(args, {}, backward=False) for args in inputs]
    found = capture(function, calls, generate_code=False, dynamic=dynamic)
    counts = [0, *found.graphs_after_call]
    compiled = tuple(number for number in range(len(counts) - 1) if counts[number + 1] > counts[number])
    error = str(found.error).strip().partition("\n")[0] if found.error else ""
    return LabRun(way, found.compiled_graphs, compiled, recompilations(found.trace), error)


def _changing(inputs: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
    """Argument and axis of each dimension that is not the same in all calls."""
    found = []
    for position, values in enumerate(zip(*inputs, strict=False)):
        if all(isinstance(value, torch.Tensor) for value in values) and len({value.dim() for value in values}) == 1:
            found += [(position, axis) for axis in range(values[0].dim()) if len({v.shape[axis] for v in values}) > 1]
    return found


def _copy(value: Any) -> Any:
    """A tensor without the marks of another run."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _shapes(args: Sequence[Any]) -> str:
    return ", ".join("x".join(map(str, a.shape)) if isinstance(a, torch.Tensor) else repr(a) for a in args)


def inputs_of_shapes(example: Sequence[Any], shapes: Sequence[Mapping[int, tuple[int, ...]]]) -> list[tuple[Any, ...]]:
    """The example's arguments in other shapes: values are repeated or cut, so that indices stay in range."""
    return [tuple(_reshaped(value, shape.get(position)) for position, value in enumerate(example)) for shape in shapes]


def _reshaped(value: Any, shape: tuple[int, ...] | None) -> Any:
    if shape is None or not isinstance(value, torch.Tensor):
        return value
    count = 1
    for size in shape:
        count *= size
    flat = value.detach().reshape(-1)
    repeats = -(-count // max(flat.numel(), 1))
    return flat.repeat(repeats)[:count].reshape(shape)
