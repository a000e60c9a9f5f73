"""A process for work that may hang or crash, asked over pipes, one question at a time, each step with a time limit.

The parent holds a :class:`Supervised`, the child calls :func:`serve`.  Both speak lines of JSON: ``["ready", null]`` once,
then for each question any number of ``["doing", what]`` and one ``["done", answer]`` or ``["error", text]``.  A process that
says nothing in time, dies, or answers with anything else is ended, and the next question starts another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlirstack.errors import WorkerLostError

Tell = Callable[[Any], None]
"""Called by the child with what it does next; the time limit starts again."""

_START_SECONDS = 180.0  # to import torch and to wake a GPU
_END_SECONDS = 10.0  # for the system to take down a process that was killed


class Supervised:
    """The process of ``command``, started at the first question, or ahead of it by :meth:`start`.

    ``timeout``: seconds of silence that are allowed while it answers.  ``environment`` is added to that of this process.
    """

    def __init__(
        self, command: Sequence[str], *, timeout: float, environment: Mapping[str, str] | None = None
    ) -> None:  # fmt: skip
        self._command = list(command)
        self._timeout = timeout
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._is_ready = False
        self._lines: queue.Queue[str | None] = queue.Queue()  # None: the process has closed its end

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process, if there is none, and do not wait until it can be asked."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        self._is_ready, self._lines = False, queue.Queue()
        threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()

    def ask(self, question: Any, tell: Tell | None = None) -> Any:
        """The answer to a question, both JSON; :class:`WorkerLostError` says why there is none, and in which step.

        ``tell`` hears of each step as it begins.
        """
        process = self._ready()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # whatever it died of is told below
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        doing: Any = None
        while True:
            kind, value = self._next(self._timeout, doing)
            if kind == "doing":
                doing = value
                if tell is not None:
                    tell(value)
            elif kind == "done":
                return value
            else:
                raise self._lost(str(value) if kind == "error" else f"it answered {json.dumps([kind, value])[:80]}", doing)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold on to it for longer
            process.wait(_END_SECONDS)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _ready(self) -> subprocess.Popen[str]:
        self.start()
        assert self._process is not None
        if not self._is_ready:
            kind, value = self._next(_START_SECONDS, "start")
            if kind != "ready":
                raise self._lost(f"it answered {json.dumps([kind, value])[:80]}", "start")
            self._is_ready = True
        return self._process

    def _next(self, timeout: float, doing: Any) -> tuple[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise self._lost(f"no answer within {timeout:g} s", doing) from None
        if line is None:
            raise self._lost(self._death(), doing)
        try:
            kind, value = json.loads(line)
        except (ValueError, TypeError):
            raise self._lost(f"it answered {line.strip()[:80]!r}", doing) from None
        return str(kind), value

    def _death(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        return f"it died ({signal.Signals(-code).name})" if code < 0 else f"it ended with exit status {code}"

    def _lost(self, reason: str, doing: Any) -> WorkerLostError:
        self.close()
        return WorkerLostError(reason, doing)


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError):  # closed while it was read
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def serve(answer: Callable[[Any, Tell], Any]) -> None:
    """Be the child: answer questions from standard input with ``answer(question, tell)``, until there are no more.

    What anything prints meanwhile goes to standard error.  An exception is reported, and ends the process: who asks decides
    whether to go on with a fresh one.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process

    def send(kind: str, value: Any) -> None:
        answers.write(json.dumps([kind, value]) + "\n")
        answers.flush()

    send("ready", None)
    for line in sys.stdin:
        try:
            send("done", answer(json.loads(line), lambda doing: send("doing", doing)))
        except Exception as error:  # whatever goes wrong in here is what the parent must know
            text = " ".join(f"{type(error).__name__}: {error}".split())
            send("error", text[:500])
            return
