"""The process that tries candidates: it holds the module, and forks a child for each edit, because many of them crash.

Started as ``python -m mlirstack.reduce.server TASK``.  A question names the current module and one edit; the answer is how
the attempt ended, and where the edited module is.  Forking costs a millisecond, and a crash nothing more.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from mlirstack.bindings import new_context
from mlirstack.errors import MlirstackError, UsageError, WorkerLostError
from mlirstack.ir.level import LEVELS
from mlirstack.ir.text import module_bytecode, parse_module, read_module
from mlirstack.lowering import read_payload
from mlirstack.pipeline.reproducer import EMPTY_PIPELINE
from mlirstack.pipeline.runner import sha256
from mlirstack.reduce.attempt import Task, attempt
from mlirstack.reduce.edits import apply, inventory
from mlirstack.reduce.outcome import Outcome, as_json
from mlirstack.supervised import Supervised, serve

_WARM_UP = (
    "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = math.exp %a : tensor<2xf32> return %0 : tensor<2xf32> }"
)


class Server:
    """The parent's end: ask for outcomes of edits on a module file."""

    def __init__(self, task: Task, *, limit: float = 20.0) -> None:
        """``limit``: seconds for one candidate."""
        self.limit = limit
        command = [sys.executable, "-m", "mlirstack.reduce.server", task.text(), str(limit)]
        self._process = Supervised(command, timeout=limit + 60)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.close()

    def outcome(self, module: Path, edit: dict[str, Any] | None = None, output: Path | None = None) -> Outcome:
        """How the task ends on ``module`` after ``edit``; the edited module is written to ``output``."""
        question = {"do": "try", "module": str(module), "edit": edit, "output": str(output) if output else None}
        return Outcome(**self._ask(question))

    def inventory(self, module: Path) -> dict[str, Any]:
        """What there is to edit (see :func:`mlirstack.reduce.edits.inventory`)."""
        answer: dict[str, Any] = self._ask({"do": "list", "module": str(module)})
        return answer

    def _ask(self, question: dict[str, Any]) -> Any:
        try:
            answer = self._process.ask(question)
        except WorkerLostError as error:
            raise MlirstackError(f"the process that tries candidates ended: {error.message}") from error
        if "error" in answer:
            kind = UsageError if answer["usage"] else MlirstackError
            raise kind(answer["error"], hint=answer["hint"])
        return answer


# --------------------------------------------------------------------------------------------------------- in the process


def main() -> None:
    """Serve candidates of the task on the command line."""
    warnings.filterwarnings("ignore")
    task, limit = Task.parse(sys.argv[1]), float(sys.argv[2])
    if task.numbers:  # what every child needs is loaded, and has run once, before the first fork
        import torch

        torch.set_num_threads(1)
        attempt(parse_module(_WARM_UP, new_context()), Task(EMPTY_PIPELINE, numbers=True))
    held: dict[str, Any] = {}
    seen: set[str] = set()  # hashes of modules that were tried

    def module_of(file: str) -> Any:
        if held.get("file") != file:
            level = LEVELS[task.input_level] if task.input_level else None
            payload = read_payload(level, Path(file)) if level else read_module(Path(file), new_context())
            held.update(file=file, module=payload)
        return held["module"]

    def answer(question: dict[str, Any], tell: Any) -> Any:
        try:
            module = module_of(question["module"])
            if question["do"] == "list":
                return inventory(module)
            return as_json(_forked(module, question, task, limit, seen))
        except MlirstackError as error:
            return {"error": error.message, "hint": error.hint, "usage": isinstance(error, UsageError)}

    serve(answer)


def _forked(module: Any, question: dict[str, Any], task: Task, limit: float, seen: set[str]) -> Outcome:
    """Edit and try in a child; its last words are the outcome, or the pass it was in."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what dying native code prints is for nobody
        status = 1
        try:
            _work(module, question, task, writing, seen)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    said, in_time = _read(reading, limit)
    if not in_time:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    lines = [json.loads(line) for line in said.decode().splitlines() if line.endswith(("}", '"'))]
    seen.update(line["tried"] for line in lines if isinstance(line, dict) and "tried" in line)
    final = next((line for line in lines if isinstance(line, dict) and "tried" not in line), None)
    if final is not None:
        if "refused" in final:
            raise UsageError(final["refused"], hint=final["hint"])
        return Outcome(**final)
    doing = next((line for line in reversed(lines) if isinstance(line, str)), None)
    if not in_time:
        return Outcome("timeout", f"no end within {limit:g} s", doing or None)
    if os.WIFSIGNALED(status) and doing is not None:
        return Outcome("crash", signal.Signals(os.WTERMSIG(status)).name, doing or None)
    return Outcome("invalid", "the edit itself failed")


def _read(descriptor: int, limit: float) -> tuple[bytes, bool]:
    """All that the child says, and whether it was done in time."""
    said, end = b"", time.monotonic() + limit
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return said, False
            data = pipe.read(65536)
            if not data:
                return said, True
            said += data


def _work(module: Any, question: dict[str, Any], task: Task, writing: int, seen: set[str]) -> None:
    def say(what: Any) -> None:
        os.write(writing, (json.dumps(what) + "\n").encode())

    if question["edit"] is not None:
        apply(module, question["edit"])
        valid = module.operation.verify()
        if not valid:
            say(as_json(Outcome("invalid", "the edited module is invalid")))
            return
        data = module_bytecode(module)
        digest = sha256(data)
        if digest in seen:
            say(as_json(Outcome("invalid", "tried before")))
            return
        say({"tried": digest})
        if question["output"]:
            Path(question["output"]).write_bytes(data)
    try:
        say(as_json(attempt(module, task, say)))
    except UsageError as error:  # no such pass: no candidate can be tried
        say({"refused": error.message, "hint": error.hint})


if __name__ == "__main__":
    main()
