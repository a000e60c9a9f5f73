"""A run of many random graphs: groups of them go to worker processes, results to a file, finds to be made small.

The file is written after every group, so a run that is ended goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mlirstack.errors import UsageError
from mlirstack.fuzz.examiner import Examiner
from mlirstack.fuzz.generate import Drawn
from mlirstack.fuzz.results import Numbered, Result

RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Campaign:
    """Graphs 0 to ``graphs`` - 1 of ``seed`` on ``targets``: ``group`` of them in one module, ``timeout`` seconds a step.

    ``jobs`` processes work at the same time; after ``seconds`` (None: no limit) no group is begun.
    """

    graphs: int
    seed: int
    targets: tuple[str, ...]
    group: int = 16
    timeout: float = 120.0
    jobs: int = 1
    seconds: float | None = None


def run(campaign: Campaign, directory: Path) -> Iterator[list[Numbered]]:
    """The results of each group on each target as they arrive, those of an earlier run in ``directory`` first.

    :class:`UsageError` where ``directory`` holds the run of another seed or other targets.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / RESULTS
    earlier = _earlier(file, campaign)
    yield earlier
    with file.open("a") as lines:
        if not earlier:
            lines.write(json.dumps({"seed": campaign.seed, "targets": campaign.targets}) + "\n")
        for found in _examined(campaign, {(one.number, one.target) for one in earlier}):
            lines.writelines(json.dumps(asdict(one)) + "\n" for one in found)
            lines.flush()
            yield found


def _examined(campaign: Campaign, done: set[tuple[int, str]]) -> Iterator[list[Numbered]]:
    """The results that are not ``done``, group by group, the first to be finished first."""
    ends = time.monotonic() + campaign.seconds if campaign.seconds is not None else float("inf")

    def examine(group: Mapping[str, Sequence[int]]) -> list[Numbered]:
        if time.monotonic() > ends:
            return []
        examiner, found = idle.get(), list[Numbered]()
        try:
            # By one process, which exports the graphs once for all targets.
            for target, numbers in group.items():
                results = examiner.results([Drawn(campaign.seed, number) for number in numbers], target)
                found += [Numbered(n, target, result) for n, result in zip(numbers, results, strict=True)]
        finally:
            idle.put(examiner)
        return found

    idle: SimpleQueue[Examiner] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(campaign.jobs):
            idle.put(stack.enter_context(Examiner(campaign.timeout)))
        pool = ThreadPoolExecutor(campaign.jobs)
        # Whoever stops listening wants no more: what has not begun is dropped before the processes are ended.
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        futures: list[Future[list[Numbered]]] = []
        futures.extend(pool.submit(examine, group) for group in _groups(campaign, done))
        for future in as_completed(futures):
            yield future.result()


def _groups(campaign: Campaign, done: set[tuple[int, str]]) -> Iterator[dict[str, list[int]]]:
    """The numbers of each group that are missing, for each target that misses any."""
    for first in range(0, campaign.graphs, campaign.group):
        numbers = range(first, min(first + campaign.group, campaign.graphs))
        missing = {target: [n for n in numbers if (n, target) not in done] for target in campaign.targets}
        group = {target: numbers for target, numbers in missing.items() if numbers}
        if group:
            yield group


def _earlier(file: Path, campaign: Campaign) -> list[Numbered]:
    if not file.exists():
        return []
    header, *lines = file.read_text().splitlines() or [""]
    if not header:
        return []
    known: dict[str, Any] = json.loads(header)
    if known != {"seed": campaign.seed, "targets": list(campaign.targets)}:
        raise UsageError(
            f"{file} is a run with seed {known['seed']} on {', '.join(known['targets'])}",
            hint="give another directory with --out, or the same --seed and --targets",
        )
    rows = [json.loads(line) for line in lines]
    return [
        Numbered(row["number"], row["target"], Result(**row["result"])) for row in rows if row["number"] < campaign.graphs
    ]
