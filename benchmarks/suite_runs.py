"""Programs of another project's suite, each judged in a process that may die: what the commands for suites share.

Each result is a line of JSON at once, in a journal, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlirstack.errors import UsageError, WorkerLostError
from mlirstack.supervised import Supervised

Row = dict[str, Any]


class Judge:
    """Asks a worker process; a program on which it dies is asked once more of a fresh one, which no other has harmed.

    ``timeout`` is in seconds for a step of a program; ``lifetime``: programs of one process, since what MLIR keeps grows
    with every compilation.  In one of the ``beyond`` steps it is the suite that cannot run a program, not we.
    """

    def __init__(
        self, command: Sequence[str], *, threads: int, timeout: float, lifetime: int, beyond: Sequence[str] = ()
    ) -> None:
        self._worker = Supervised(command, timeout=timeout, environment={"OMP_NUM_THREADS": str(threads)})
        self._lifetime, self._beyond, self._asked = lifetime, beyond, 0

    def ask(self, question: Any) -> Any:
        """The worker's answer."""
        return self._worker.ask(question)

    def row(self, question: Any) -> Row:
        """What became of a program: the fields of its worker's ``Verdict``; "died" and "timeout" are verdicts as well."""
        self._asked += 1
        if self._asked % self._lifetime == 0:
            self._worker.close()
        for attempt in (1, 2):
            try:
                row: Row = self._worker.ask(question)
                return row
            except WorkerLostError as error:
                late = error.message.startswith("no answer")
                if late or attempt == 2:
                    return self._lost(error, late)
        raise AssertionError("unreachable")

    def _lost(self, error: WorkerLostError, late: bool) -> Row:
        verdict = "cannot" if error.doing in self._beyond else "timeout" if late else "died"
        return {"verdict": verdict, "reason": f"in step '{error.doing}': {error.message}"}

    def close(self) -> None:
        """End the process."""
        self._worker.close()


def run(
    programs: Mapping[str, Any], judge: Callable[[], Judge], journal: Path, header: Mapping[str, Any], jobs: int = 1
) -> Iterator[tuple[str, Row]]:
    """Each program's name and row, those that ``journal`` holds already first.  ``programs``: the judge's questions by name.

    ``header`` is what all results of a journal have in common; :class:`UsageError` where that of ``journal`` is another.
    """
    earlier = _earlier(journal, header)
    yield from ((name, earlier[name]) for name in programs if name in earlier)
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in programs:
        if name not in earlier:
            todo.put(name)
    count = todo.qsize()
    done: queue.SimpleQueue[tuple[str, Row]] = queue.SimpleQueue()

    def work() -> None:
        judging = judge()
        try:
            while True:
                name = todo.get_nowait()
                done.put((name, judging.row(programs[name])))
        except queue.Empty:
            judging.close()

    with journal.open("a") as lines:
        if not lines.tell():
            lines.write(json.dumps(header) + "\n")
        workers = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, count))]
        for worker in workers:
            worker.start()
        for _ in range(count):
            name, row = done.get()
            lines.write(json.dumps({"name": name, **row}) + "\n")
            lines.flush()
            yield name, row
        for worker in workers:  # until their processes are ended
            worker.join()


def differences(expected: Mapping[str, Row], found: Mapping[str, Row]) -> list[str]:
    """How the verdicts of a run differ from the table's, a line each."""
    lines = []
    for name, row in found.items():
        wanted = expected.get(name, {}).get("verdict")
        if row["verdict"] != wanted:
            kind = "unexpected pass" if row["verdict"] == "pass" else "unexpected failure"
            lines.append(f"{name}: {kind}: {row['verdict']}, the table says {wanted}. {row.get('reason', '')}".strip())
    return lines


def _earlier(journal: Path, header: Mapping[str, Any]) -> dict[str, Row]:
    journal.parent.mkdir(parents=True, exist_ok=True)
    lines = journal.read_text().splitlines() if journal.exists() else []
    if not lines:
        return {}
    if json.loads(lines[0]) != header:
        raise UsageError(f"{journal} is a run of something else: {lines[0]}", hint="give another --out")
    rows = [json.loads(line) for line in lines[1:]]
    return {row.pop("name"): row for row in rows}
