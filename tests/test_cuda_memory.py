"""The memory planner: buffers that live at the same time never overlap, and an arena is never larger than no sharing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlirstack.passes.cuda.memory import assign_offsets

LIFETIMES = st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # both measure the machine, not the planner
@given(st.lists(st.tuples(st.integers(0, 5000), LIFETIMES), max_size=20), st.sampled_from([1, 16, 256]))
def test_live_buffers_do_not_overlap(buffers: list[tuple[int, tuple[int, int]]], alignment: int) -> None:
    sizes, lifetimes = [size for size, _ in buffers], [lifetime for _, lifetime in buffers]
    offsets, total = assign_offsets(sizes, lifetimes, alignment)
    for a, b in itertools.combinations(range(len(sizes)), 2):
        alive_together = lifetimes[a][0] <= lifetimes[b][1] and lifetimes[b][0] <= lifetimes[a][1]
        if alive_together and sizes[a] and sizes[b]:
            assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]
    assert all(offset % alignment == 0 for offset in offsets)
    assert all(offset + size <= total for offset, size in zip(offsets, sizes, strict=True))
    peak = max(
        (sum(rounded(s, alignment) for s, (first, last) in buffers if first <= step <= last) for step in range(42)),
        default=0,
    )
    assert peak <= total <= sum(rounded(size, alignment) for size in sizes)


@pytest.mark.parametrize(
    ("sizes", "lifetimes", "offsets", "total"),
    [
        ([], [], [], 0),
        ([0], [(0, 3)], [0], 0),
        ([100, 100], [(0, 1), (2, 3)], [0, 0], 256),  # one after the other: the same memory
        ([100, 100], [(0, 1), (1, 3)], [0, 256], 512),  # both at step 1
        ([512, 1, 256], [(0, 2), (2, 3), (3, 4)], [0, 512, 0], 768),  # the third takes the place of the first
    ],
)
def test_small_arenas(sizes: list[int], lifetimes: list[tuple[int, int]], offsets: list[int], total: int) -> None:
    assert assign_offsets(sizes, lifetimes) == (offsets, total)


def test_the_smallest_gap_that_fits_is_taken() -> None:
    # After steps 0 to 2 there are gaps of 1024 and of 256 bytes between buffers that stay alive.
    sizes = [4096, 1024, 3072, 256, 2048, 200]
    lifetimes = [(0, 9), (0, 2), (0, 9), (0, 2), (0, 9), (5, 6)]
    offsets, total = assign_offsets(sizes, lifetimes)
    assert total == sum(sizes[:5])
    assert offsets[5] in (offsets[1], offsets[3])
