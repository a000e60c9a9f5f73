"""A planned function for one set of shapes: every expression becomes a number, buffers get their offsets, empty work goes.

A pure function from plan to plan, so that whatever runs a plan sees static ones only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from mlirstack.errors import BundleError
from mlirstack.passes.cuda.memory import assign_offsets
from mlirstack.passes.cuda.plan import (
    Argument,
    Buffer,
    Check,
    Copy,
    Expr,
    Fill,
    Launch,
    PlannedFunction,
    ResultRef,
    Step,
    evaluate,
)

Number = int | float


def specialize(
    function: PlannedFunction, shapes: Mapping[int, Sequence[int]], scalars: Mapping[int, Number]
) -> PlannedFunction:
    """``function`` for tensor inputs of ``shapes`` and scalar inputs of values ``scalars``, both by input number.

    Where the compiler gave no offsets, temporaries are laid out here.  Launches of no blocks, copies and fills of no bytes,
    and conditions that hold are left out; a condition that does not hold stays, as 0.
    """

    # A scalar leaf may be a float: then the whole expression is that leaf, the value of an argument of a kernel.
    def number(expr: Expr | float) -> int:
        return evaluate(expr, shapes, scalars)  # type: ignore[arg-type]

    def step(original: Step) -> Step | None:
        match original:
            case Launch():
                x, y, z = (number(size) for size in original.grid)
                arguments = tuple(_argument(argument, number) for argument in original.arguments)
                if min(x, y, z) == 0 or any(0 in a.tensor_map.sizes for a in arguments if a.tensor_map):
                    return None
                if x % original.cluster:
                    raise BundleError(f"kernel '{original.kernel}': {x} blocks do not divide by cluster {original.cluster}")
                return dataclasses.replace(original, grid=(x, y, z), arguments=arguments)
            case Copy():
                numbers = {
                    "bytes": number(original.bytes),
                    "source_offset": number(original.source_offset),
                    "destination_offset": number(original.destination_offset),
                }
                return dataclasses.replace(original, **numbers) if numbers["bytes"] else None  # type: ignore[arg-type]
            case Fill():
                size, offset = number(original.bytes), number(original.offset)
                return dataclasses.replace(original, bytes=size, offset=offset) if size else None
            case Check():
                condition = number(original.condition)
                if original.buffer < 0 and condition:
                    return None
                return dataclasses.replace(original, offset=number(original.offset), condition=condition)

    buffers = [
        dataclasses.replace(b, bytes=number(b.bytes), shape=tuple(number(size) for size in b.shape))
        for b in function.buffers
    ]
    arena, unshared = function.arena_bytes, function.unshared_bytes
    temporaries = [i for i, buffer in enumerate(buffers) if buffer.kind == "temporary"]
    if arena is None or any(buffers[i].offset is None for i in temporaries):
        arena, unshared = _lay_out(buffers, temporaries)
    return dataclasses.replace(
        function,
        buffers=tuple(buffers),
        steps=tuple(s for s in map(step, function.steps) if s is not None),
        results=tuple(ResultRef(r.buffer, number(r.value)) for r in function.results),
        arena_bytes=arena,
        unshared_bytes=unshared,
    )


def _argument(argument: Argument, number: Callable[[Expr | float], int]) -> Argument:
    seen = argument.tensor_map
    if seen is not None:
        seen = dataclasses.replace(seen, sizes=tuple(map(number, seen.sizes)))
    return dataclasses.replace(argument, offset=number(argument.offset), value=number(argument.value), tensor_map=seen)


def _lay_out(buffers: list[Buffer], temporaries: Sequence[int]) -> tuple[int, int]:
    """Give the temporaries offsets; bytes of the arena, and what it would take without reuse."""
    sizes = [_static(buffers[i].bytes) for i in temporaries]
    lifetimes = [(buffers[i].first, buffers[i].last) for i in temporaries]
    offsets, total = assign_offsets(sizes, lifetimes)
    for i, offset in zip(temporaries, offsets, strict=True):
        buffers[i] = dataclasses.replace(buffers[i], offset=offset)
    return total, assign_offsets(sizes, [(0, 0)] * len(sizes))[1]


def _static(expr: Expr) -> int:
    assert isinstance(expr, int)
    return expr
