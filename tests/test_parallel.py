"""The same work in many processes: results, errors, processes that die, defects."""

from __future__ import annotations

import os
import signal

import pytest

from mlirstack.errors import UsageError, WorkerLostError
from mlirstack.parallel import each


def work(item: str) -> tuple[str, int]:
    """What happens is the item's name; the result says in which process."""
    if item == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "fails":
        raise UsageError("asked for")
    if item == "defect":
        raise ZeroDivisionError("not expected")
    return item, os.getpid()


def test_results_errors_and_deaths_belong_to_their_items() -> None:
    items = ["a", "dies", "fails", "b", "c"]
    found = dict(each(work, items, jobs=2))
    assert sorted(found) == list(range(len(items)))
    assert [found[number][0] for number in (0, 3, 4)] == ["a", "b", "c"]  # type: ignore[index]
    assert all(found[number][1] != os.getpid() for number in (0, 3, 4))  # type: ignore[index]
    assert isinstance(found[1], WorkerLostError)
    assert isinstance(found[2], UsageError)
    assert found[2].message == "asked for"


def test_one_job_is_this_process() -> None:
    found = dict(each(work, ["a", "fails", "b"]))
    assert found[0] == ("a", os.getpid())
    assert isinstance(found[1], UsageError)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_defect_is_raised(jobs: int) -> None:
    with pytest.raises(ZeroDivisionError, match="not expected"):
        list(each(work, ["defect", "a"], jobs))
