"""Calls in the background, by one thread, in the order they came.

Where a target can begin a call without waiting for it, the device is given the next calls before it is done with the first.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

DEPTH = 4  # calls that are begun before the first of them is waited for

Begin = Callable[[], Callable[[], Any]]
"""Begins a call, and returns what waits for it and gives its outputs."""


class Background:
    """Begins what is submitted, in order; :meth:`close` waits for all of it."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[tuple[Begin, Future[Any]] | None] = queue.SimpleQueue()
        # A program may end without closing its models.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, begin: Begin) -> Future[Any]:
        """The outputs of a call, or the error that it ends with; it can be cancelled until it begins."""
        future: Future[Any] = Future()
        self._waiting.put((begin, future))
        return future

    def close(self) -> None:
        """Wait for what was submitted."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        begun: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        while True:
            if begun and (len(begun) == DEPTH or self._waiting.empty()):
                _settle(*begun.popleft())
                continue
            submitted = self._waiting.get()
            if submitted is None:
                break
            begin, future = submitted
            if future.set_running_or_notify_cancel():
                finish = _attempt(begin, future)
                if finish is not None:
                    begun.append((finish, future))
        for finish, future in begun:
            _settle(finish, future)


def _attempt(begin: Begin, future: Future[Any]) -> Callable[[], Any] | None:
    try:
        return begin()
    except BaseException as error:  # whoever asks for the result gets it
        future.set_exception(error)
        return None


def _settle(finish: Callable[[], Any], future: Future[Any]) -> None:
    try:
        outputs = finish()
    except BaseException as error:  # as above
        future.set_exception(error)
    else:
        future.set_result(outputs)
