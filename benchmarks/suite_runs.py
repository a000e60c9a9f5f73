"""Programs of a suite, each judged in a process that may die: what the commands for suites share.

Each result is a line of JSON at once, in a journal, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

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


def options_parser(text: str | None, *, timeout: float, out: Path, table: Path) -> argparse.ArgumentParser:
    """The options of every suite, with a suite's own defaults; ``timeout`` is in seconds for a step of a program."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="what has a name that it is found in")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--timeout", type=float, default=timeout, help=f"seconds for one step (default {timeout:g})")
    parser.add_argument("--out", type=Path, default=out, help=f"results so far (default {out})")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="begin nothing after that; a later run goes on")
    parser.add_argument("--update", action="store_true", help="write the results of this run into the table")
    parser.add_argument("--table", type=Path, default=table, help="another table")
    return parser


def exit_status(body: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """What ``body`` returns; 2, and one line that says why, where it could not begin."""
    try:
        return body(options)
    except (UsageError, WorkerLostError, re.error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def judged(
    programs: Mapping[str, Any],
    judge: Callable[[], Any],
    journal: Path,
    header: Mapping[str, Any],
    jobs: int,
    description: str = "Working...",
    budget: float | None = None,
) -> dict[str, Row]:
    """All that :func:`run` gives, with a bar that says how far it has come."""
    with Progress(disable=not sys.stderr.isatty()) as progress:
        results = run(programs, judge, journal, header, jobs, budget)
        return dict(progress.track(results, total=len(programs), description=description))


def json_lines(entries: Mapping[str, Any], indent: int = 2) -> str:
    """The members of a JSON object, one line each."""
    return ",\n".join(f"{' ' * indent}{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())


def run(
    programs: Mapping[str, Any],
    judge: Callable[[], Judge],
    journal: Path,
    header: Mapping[str, Any],
    jobs: int = 1,
    budget: float | None = None,
) -> Iterator[tuple[str, Row]]:
    """Each program's name and row, those that ``journal`` holds already first.  ``programs``: the judge's questions by name.

    ``header`` is what all results of a journal have in common; :class:`UsageError` where that of ``journal`` is another.
    After ``budget`` seconds no program is begun.
    """
    started = time.monotonic()
    earlier = _earlier(journal, header)
    yield from ((name, earlier[name]) for name in programs if name in earlier)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in programs:
        if name not in earlier:
            waiting.put(name)
    done: queue.SimpleQueue[tuple[str, Row] | None] = queue.SimpleQueue()  # None: a worker has no more to do

    def work() -> None:
        judging = judge()
        try:
            while budget is None or time.monotonic() - started < budget:
                name = waiting.get_nowait()
                done.put((name, judging.row(programs[name])))
        except queue.Empty:
            pass
        judging.close()
        done.put(None)

    with journal.open("a") as lines:
        if not lines.tell():
            lines.write(json.dumps(header) + "\n")
        at_work = min(jobs, waiting.qsize())
        for _ in range(at_work):
            threading.Thread(target=work, daemon=True).start()
        while at_work:
            found = done.get()
            if found is None:
                at_work -= 1
                continue
            name, row = found
            lines.write(json.dumps({"name": name, **row}) + "\n")
            lines.flush()
            yield name, row


def differences(expected: Mapping[str, Row], found: Mapping[str, Row]) -> list[str]:
    """How the verdicts of a run differ from the table's, a line each."""
    lines = []
    for name, row in found.items():
        wanted = expected.get(name, {}).get("verdict")
        if row["verdict"] != wanted:
            kind = "unexpected pass" if row["verdict"] == "pass" else "unexpected failure"
            lines.append(f"{name}: {kind}: {row['verdict']}, the table says {wanted}. {row.get('reason', '')}".strip())
    return lines


def shown(lines: Sequence[str]) -> int:
    """Print what differs; the exit status that says whether anything does."""
    print("".join(f"  {line}\n" for line in lines), end="")
    return 1 if lines else 0


def _earlier(journal: Path, header: Mapping[str, Any]) -> dict[str, Row]:
    journal.parent.mkdir(parents=True, exist_ok=True)
    lines = journal.read_text().splitlines() if journal.exists() else []
    if not lines:
        return {}
    if json.loads(lines[0]) != header:
        raise UsageError(f"{journal} is a run of something else: {lines[0]}", hint="give another --out")
    rows = [json.loads(line) for line in lines[1:]]
    return {row.pop("name"): row for row in rows}
