"""A run of many random graphs: groups of them go to a worker process, results to a file, finds to reproducers.

The file is written after every group, so a run that is ended goes on where it was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlirstack.errors import UsageError, WorkerLostError
from mlirstack.fuzz.generate import graph_of
from mlirstack.fuzz.results import Numbered, Result
from mlirstack.fuzz.spec import GraphSpec, to_json
from mlirstack.supervised import Supervised

RESULTS = "results.jsonl"
_WORKER = (sys.executable, "-m", "mlirstack.fuzz.work")
_GROUPS_PER_PROCESS = 60  # what MLIR and IREE keep grows with every compilation


@dataclass(frozen=True)
class Campaign:
    """Graphs 0 to ``graphs`` - 1 of ``seed`` on ``targets``: ``group`` of them in one module, ``timeout`` seconds a step."""

    graphs: int
    seed: int
    targets: tuple[str, ...]
    group: int = 16
    timeout: float = 120.0


class Examiner:
    """Asks a worker process for results; one that dies or hangs is replaced, and its graphs are asked for one by one."""

    def __init__(self, timeout: float, *, command: Sequence[str] = _WORKER) -> None:
        self._worker = Supervised(command, timeout=timeout, environment={"OMP_NUM_THREADS": "1"})
        self._asked = 0

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *exception: object) -> None:
        self._worker.close()

    def results(self, specs: Sequence[GraphSpec], target: str, dump: Path | None = None) -> list[Result]:
        """The result of each of ``specs`` on ``target``; ``dump`` is a directory for the stages."""
        self._asked += 1
        if self._asked % _GROUPS_PER_PROCESS == 0:
            self._worker.close()
        question = {"specs": [to_json(s) for s in specs], "targets": [target], "dump": str(dump) if dump else None}
        try:
            return [Result(**result) for result in self._worker.ask(question)[target]]
        except WorkerLostError as error:
            if len(specs) == 1:
                return [Result("died", error.message)]
            middle = len(specs) // 2
            return self.results(specs[:middle], target) + self.results(specs[middle:], target)


def run(campaign: Campaign, directory: Path) -> Iterator[list[Numbered]]:
    """The results of each group on each target, those of an earlier run in ``directory`` first.

    :class:`UsageError` where ``directory`` holds the run of another seed or other targets.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / RESULTS
    earlier = _earlier(file, campaign)
    yield earlier
    done = {(one.number, one.target) for one in earlier}
    with Examiner(campaign.timeout) as examiner, file.open("a") as lines:
        if not earlier:
            lines.write(json.dumps({"seed": campaign.seed, "targets": campaign.targets}) + "\n")
        for first in range(0, campaign.graphs, campaign.group):
            numbers = range(first, min(first + campaign.group, campaign.graphs))
            specs = {number: graph_of(campaign.seed, number) for number in numbers}
            for target in campaign.targets:
                missing = [number for number in numbers if (number, target) not in done]
                if not missing:
                    continue
                results = examiner.results([specs[number] for number in missing], target)
                found = [Numbered(n, target, result) for n, result in zip(missing, results, strict=True)]
                lines.writelines(json.dumps(asdict(one)) + "\n" for one in found)
                lines.flush()
                yield found


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
