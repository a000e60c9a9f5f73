"""Delta debugging over a module (Zeller and Hildebrandt, 2002): take away as much as can be with the failure staying.

Comes in: a module file that fails, the task, what is expected.  Goes out: a :class:`Reduced` with the smallest module that
was found.  Each kind of edit is tried on ever smaller groups, and all kinds again until none helps.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirstack.bindings import new_context
from mlirstack.errors import MlirstackError
from mlirstack.ir.ops import walk
from mlirstack.ir.text import module_text, read_module
from mlirstack.reduce.attempt import Task
from mlirstack.reduce.outcome import Expectation, Outcome
from mlirstack.reduce.server import Server

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Reduced:
    """What is left: ``text`` of the module, ops before and after, how it fails, tries and seconds.

    ``unjudged``: tries that did not end in time, of which nothing is known.  ``finished``: nothing more can be taken away;
    otherwise time ran out, for the whole or for some candidates.
    """

    text: str
    ops_before: int
    ops: int
    outcome: Outcome
    tries: int
    unjudged: int
    seconds: float
    finished: bool


_DEAD_CODE = "builtin.module(canonicalize,cse,symbol-dce)"
_OPERANDS = 3  # of an op, that are tried in the place of its result


class _OutOfTime(Exception):
    pass


def reduce_module(
    module: Path,
    task: Task,
    *,
    text: str | None = None,
    expectation: Expectation | None = None,
    seconds: float = 120.0,
    limit: float = 20.0,
    tell: Tell = lambda doing: None,
) -> Reduced:
    """Reduce ``module``; raises :class:`MlirstackError` where it does not fail, or not as expected.

    ``text``: what the message must contain; without it (and without ``expectation``) the first failure is what stays.
    ``seconds`` bounds the whole, ``limit`` one candidate.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mlirstack-reduce-") as folder, Server(task, limit=limit) as server:
        scratch = Path(folder)
        if task.numbers:  # it is executed by itself: what other code hands it comes from outside
            given, module = module, scratch / "alone.mlirbc"
            first = server.outcome(given, {"edit": "own-arguments"}, module)
        else:
            first = server.outcome(module)
        if first.kind in ("ok", "invalid"):
            raise MlirstackError(f"nothing fails: {first.text()}", hint="--pipeline must be what fails on the module")
        if first.kind == "timeout" and text is None and expectation is None:  # as a slow machine would have it
            hint = "a larger --limit; --expect 'no end' where that is the failure"
            raise MlirstackError(f"nothing can be judged: {first.text()}", hint=hint)
        expected = expectation or Expectation.of(first, text)
        if not expected.matches(first):
            raise MlirstackError(f"it fails in another way: {first.text()}", hint=f"expected: {expected.text}")
        search = _Search(server, module, expected, scratch, started + seconds, tell)
        before = search.inventory["count"]
        try:
            search.run()
            finished = not search.unjudged
        except _OutOfTime:
            finished = False
        final = read_module(search.current, new_context())
        written = scratch / "final.mlir"
        written.write_text(module_text(final, elide=False))
        # The text is what people get: it must fail as well, in a process that has seen nothing else.
        with Server(task, limit=limit) as fresh:
            outcome = fresh.outcome(written)
        if not expected.matches(outcome):
            raise MlirstackError(f"the reduced module's text no longer fails: {outcome.text()}")
        count = sum(1 for _ in walk(final))
        tries, took = search.tries, time.perf_counter() - started
        return Reduced(written.read_text(), before, count, outcome, tries, search.unjudged, took, finished)


class _Search:
    """The current module and what was tried."""

    def __init__(
        self, server: Server, module: Path, expected: Expectation, scratch: Path, deadline: float, tell: Tell
    ) -> None:
        self.server, self.expected, self.scratch, self.deadline, self.tell = server, expected, scratch, deadline, tell
        self.tries = self.unjudged = 0
        self.needed: set[tuple[str, str]] = set()  # attributes that an op of this name cannot be without
        self.current = scratch / f"start{module.suffix}"
        shutil.copyfile(module, self.current)
        self.inventory = server.inventory(self.current)

    def run(self) -> None:
        """All kinds of edits, again and again."""
        self.attempt({"edit": "own-arguments"})
        while True:
            size = self.measure()
            for kind in (self._functions, self._ops, self._regions, self._results, self._sizes, self._details):
                kind()
            if self.measure() == size:
                return

    def measure(self) -> tuple[int, ...]:
        """What must shrink from round to round."""
        found = self.inventory
        return (
            found["count"],
            sum(found["sizes"]),
            len(found["attributes"]),
            sum(found["results"].values()),
            sum(found["arguments"].values()),
        )

    def attempt(self, edit: dict[str, Any]) -> bool:
        """Try an edit; where the failure stays, go on from there."""
        if time.perf_counter() > self.deadline:
            raise _OutOfTime
        self.tries += 1
        output = self.scratch / f"{self.tries:05d}.mlirbc"
        self.tell(f"{self.inventory['count']} ops, {self.tries} tries: {edit['edit']}")
        try:
            outcome = self.server.outcome(self.current, edit, output)
            fails = self.expected.matches(outcome)
            self.unjudged += outcome.kind == "timeout" and not fails
        except MlirstackError:  # the process itself died of this candidate: it is none
            fails = False
        if not fails:
            output.unlink(missing_ok=True)
            return False
        self.current.unlink()
        self.current = output
        self.inventory = self.server.inventory(output)
        return True

    def _functions(self) -> None:
        for names in _groups(self.inventory["functions"]):
            self.attempt({"edit": "drop-functions", "names": names})

    def _ops(self) -> None:
        self.attempt({"edit": "passes", "pipeline": _DEAD_CODE})
        for operands in (True, False):
            size = max(1, len(self.inventory["ops"]) // 2)
            while True:
                position = 0  # from the end: what is used last goes first
                while position < len(self.inventory["ops"]):
                    ops = self.inventory["ops"]
                    end = len(ops) - position
                    chosen = ops[max(0, end - size) : end]
                    before = len(ops)
                    if not self.attempt({"edit": "drop-ops", "ops": chosen, "operands": operands}):
                        position += size
                    elif len(self.inventory["ops"]) >= before:
                        position += size  # replaced by constants: no progress, but no harm either
                if size == 1:
                    break
                size = max(1, size // 2)

    def _regions(self) -> None:
        position = 0
        while position < len(self.inventory["regions"]):
            if not self.attempt({"edit": "inline-region", "op": self.inventory["regions"][position]}):
                position += 1

    def _results(self) -> None:
        for name in list(self.inventory["results"]):
            index = 0
            while index < self.inventory["results"].get(name, 0):
                kept = [i for i in range(self.inventory["results"][name]) if i != index]
                if not self.attempt({"edit": "drop-results", "function": name, "keep": kept}):
                    index += 1
            for index in range(self.inventory["results"].get(name, 0)):
                while any(
                    self.attempt({"edit": "return-operand", "function": name, "index": index, "operand": operand})
                    for operand in range(_OPERANDS)
                ):
                    self.attempt({"edit": "passes", "pipeline": _DEAD_CODE})
            if self.inventory["arguments"].get(name, 0):
                self.attempt({"edit": "drop-arguments", "function": name})

    def _sizes(self) -> None:
        sizes = self.inventory["sizes"]
        if sizes and self.attempt({"edit": "resize", "sizes": dict.fromkeys(map(str, sizes), 1)}):
            return
        for size in sizes:
            for new in (1, 2, size // 2):
                if size not in self.inventory["sizes"] or not 0 < new < size:
                    continue
                # Sizes that are multiples came from reshapes: they go along.
                along = {str(s): s // size * new for s in sizes if s % size == 0}
                if self.attempt({"edit": "resize", "sizes": along}) or self.attempt(
                    {"edit": "resize", "sizes": {str(size): new}}
                ):
                    break

    def _details(self) -> None:
        for chosen in _groups(self.inventory["constants"]):
            self.attempt({"edit": "simplify-constants", "ops": chosen})
        position = 0
        while position < len(self.inventory["attributes"]):
            number, name, op = self.inventory["attributes"][position]
            if (op, name) in self.needed:
                position += 1
            elif not self.attempt({"edit": "drop-attributes", "attributes": [[number, name, op]]}):
                self.needed.add((op, name))


def _groups(items: Sequence[Any]) -> Iterator[list[Any]]:
    """All of them, then halves, quarters, … down to one each."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield list(items[start : start + size])
        size //= 2
