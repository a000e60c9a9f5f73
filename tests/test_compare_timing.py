"""Timing with a clock that only the measured functions move."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from mlirstack.compare.timing import Effort, measure, torch_threads


class Clock:
    """Stands still but for ``work``; keeps who worked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, seconds: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            self.log.append(name)
            self.now += next(seconds)

        return run


ONE_CALL = Effort(seconds=0, min_samples=5, max_samples=5, sample_seconds=0, warm_up_calls=2, warm_up_seconds=0)


def test_median_and_minimum_without_the_warm_up() -> None:
    clock = Clock()
    seconds = iter([100.0, 50.0, 3.0, 1.0, 2.0, 9.0, 4.0])
    timing = measure({"a": clock.work("a", seconds)}, ONE_CALL, clock=clock)["a"]
    assert (timing.median_s, timing.min_s, timing.samples, timing.calls) == (3.0, 1.0, 5, 1)


def test_callables_take_turns_and_each_round_starts_with_another() -> None:
    clock = Clock()
    functions = {name: clock.work(name, itertools.repeat(1.0)) for name in "abc"}
    measure(functions, ONE_CALL, clock=clock)
    rounds = "".join(clock.log)[6:]  # two warm-up calls each
    assert rounds == "abcbcacababcbca"


def test_short_calls_are_repeated_until_the_sample_is_long_enough() -> None:
    clock = Clock()
    effort = Effort(seconds=0, min_samples=3, sample_seconds=1e-2, warm_up_calls=1, warm_up_seconds=0)
    timing = measure({"a": clock.work("a", itertools.repeat(3e-3))}, effort, clock=clock)["a"]
    assert timing.calls == 4 and timing.samples == 3
    assert timing.median_s == pytest.approx(3e-3)
    assert len(clock.log) == 1 + 3 * 4


def test_samples_are_taken_until_the_time_is_spent_but_not_beyond_the_maximum() -> None:
    clock = Clock()
    spent = Effort(seconds=1.0, min_samples=2, max_samples=100, sample_seconds=0, warm_up_calls=1, warm_up_seconds=0)
    functions = {"fast": clock.work("f", itertools.repeat(0.0625)), "slow": clock.work("s", itertools.repeat(0.1875))}
    timings = measure(functions, spent, clock=clock)
    assert timings["fast"].samples == timings["slow"].samples == 8  # 8 * (0.0625 + 0.1875) = 2 callables * 1 s
    few = Effort(seconds=1.0, min_samples=2, max_samples=5, sample_seconds=0, warm_up_calls=1, warm_up_seconds=0)
    assert measure({"a": clock.work("a", itertools.repeat(1e-3))}, few, clock=clock)["a"].samples == 5


def test_warm_up_lasts_as_long_as_asked() -> None:
    clock = Clock()
    effort = Effort(seconds=0, min_samples=1, sample_seconds=0, warm_up_calls=2, warm_up_seconds=1.0)
    measure({"a": clock.work("a", itertools.repeat(0.25))}, effort, clock=clock)
    assert len(clock.log) == 4 + 1


def test_garbage_collection_rests_and_comes_back_even_after_an_error() -> None:
    def fail() -> None:
        assert not gc.isenabled()
        raise ValueError("no")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="no"):
        measure({"a": fail}, ONE_CALL)
    assert gc.isenabled()


def test_nothing_to_measure() -> None:
    assert measure({}, ONE_CALL) == {}


def test_torch_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with torch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
