"""Calls in the background: one thread begins them in the order they came, another waits for those that the device computes.

So the device has the next call before it is done with the last one, where a target can begin calls without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Begin = Callable[[], Callable[[], Any]]
"""Begins a call, and returns what waits for it and gives its outputs."""


class Background:
    """Begins what is submitted, in order; :meth:`close` waits for all of it."""

    def __init__(self, name: str) -> None:
        self._beginning = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-results")

    def submit(self, begin: Begin) -> Future[Any]:
        """The outputs of a call, or the error that it ends with; it can be cancelled until it begins."""
        future: Future[Any] = Future()
        self._beginning.submit(self._begin, begin, future)
        return future

    def close(self) -> None:
        """Wait for what was submitted."""
        self._beginning.shutdown()
        self._waiting.shutdown()

    def _begin(self, begin: Begin, future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            finish = begin()
        except BaseException as error:  # as futures do: whoever asks for the result gets it
            future.set_exception(error)
            return
        self._waiting.submit(_finish, finish, future)


def _finish(finish: Callable[[], Any], future: Future[Any]) -> None:
    try:
        outputs = finish()
    except BaseException as error:  # as above
        future.set_exception(error)
    else:
        future.set_result(outputs)
