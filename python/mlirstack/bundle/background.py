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
        # A program that ends waits for threads of the other kind before it closes its models.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, begin: Begin) -> Future[Any]:
        """The outputs of a call, or the error that it ends with; it can be cancelled until it begins."""
        future: Future[Any] = Future()
        self._waiting.put((begin, future))
        return future

    def close(self) -> None:
        """Wait for what was submitted, and end the thread."""
        self._waiting.put(None)
        if self._thread is not threading.current_thread():  # the last call may be what kept a model alive
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
            begun.extend(_started(*submitted))
            del submitted  # a thread that waits must not keep a model alive
        for finish, future in begun:
            _settle(finish, future)


def _started(begin: Begin, future: Future[Any]) -> list[tuple[Callable[[], Any], Future[Any]]]:
    """What waits for the call, unless it was cancelled or failed."""
    if not future.set_running_or_notify_cancel():
        return []
    try:
        return [(begin(), future)]
    except BaseException as error:  # whoever asks for the result gets it
        future.set_exception(error)
        return []


def _settle(finish: Callable[[], Any], future: Future[Any]) -> None:
    try:
        outputs = finish()
    except BaseException as error:  # as above
        future.set_exception(error)
    else:
        future.set_result(outputs)
