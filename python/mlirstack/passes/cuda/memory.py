"""The memory planner: offsets of temporary buffers in one arena, so that buffers that live at the same time do not overlap.

A pure function over sizes and lifetimes.  The compiler calls it for static plans, the run time for each new set of shapes
of a dynamic one.
"""

from __future__ import annotations

from collections.abc import Sequence

ALIGNMENT = 256  # bytes: what cudaMalloc promises, and more than any vector or bulk copy asks for
INPUT_ALIGNMENT = 16  # bytes: what kernels may assume of every input; the run time copies inputs that begin elsewhere


def assign_offsets(
    sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]], alignment: int = ALIGNMENT
) -> tuple[list[int], int]:
    """Offsets in bytes of buffers of ``sizes`` bytes, and the bytes of the arena that holds them.

    Buffer i is alive from step ``lifetimes[i][0]`` to step ``lifetimes[i][1]``, both inclusive.  Greedy by size with best
    fit (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest buffer first,
    each into the smallest gap between the buffers placed before that are alive at the same time, else behind them.  The
    arena is at least the peak of live bytes and at most their sum, sizes being rounded up to ``alignment``.  Empty buffers
    take no room.  Quadratic in the number of buffers.
    """
    rounded = [-(-size // alignment) * alignment for size in sizes]
    offsets = [0] * len(sizes)
    placed: list[int] = []  # by offset
    order = sorted((i for i, size in enumerate(rounded) if size), key=lambda i: (-rounded[i], lifetimes[i]))
    for buffer in order:
        first, last = lifetimes[buffer]
        neighbours = [i for i in placed if lifetimes[i][0] <= last and first <= lifetimes[i][1]]
        offsets[buffer] = _best_fit(rounded[buffer], [(offsets[i], offsets[i] + rounded[i]) for i in neighbours])
        placed.append(buffer)
        placed.sort(key=offsets.__getitem__)
    return offsets, max((offsets[i] + rounded[i] for i in placed), default=0)


def _best_fit(size: int, taken: Sequence[tuple[int, int]]) -> int:
    """Start of the smallest gap of at least ``size`` bytes between the ``taken`` ranges, sorted by start; else their end."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        if start - end >= size and (best is None or start - end < best[0]):
            best = (start - end, end)
        end = max(end, stop)
    return end if best is None else best[1]
