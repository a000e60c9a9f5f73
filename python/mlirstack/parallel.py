"""The same work on many items, in as many processes as one asks for.

What comes in is a function that can be pickled and its items; what goes out are results, as they are finished.  A process
that dies costs the item it was at, and no other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from mlirstack.errors import MlirstackError, WorkerLostError

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int = 1
) -> Iterator[tuple[int, Result | MlirstackError]]:
    """``(number, work(items[number]))`` for all items, the first to be finished first; items are begun in their order.

    An error of mlirstack's is the result of its item.  Any other exception is a defect, and raised.  With ``jobs`` 1 the
    work is done in this process; else in processes that have one thread each, so that they share the processors evenly.
    """
    if jobs == 1 or len(items) <= 1:
        for number, item in enumerate(items):
            yield number, _outcome(work, item)
        return
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)
    finished: SimpleQueue[tuple[int, Result | BaseException]] = SimpleQueue()
    for _ in range(min(jobs, len(items))):
        Thread(target=_serve, args=(work, items, waiting, finished), daemon=True).start()
    try:
        for _ in items:
            number, result = finished.get()
            if isinstance(result, BaseException) and not isinstance(result, MlirstackError):
                raise result
            yield number, result
    finally:  # whoever stops listening wants no more of it
        while not waiting.empty():
            waiting.get()


def _outcome(work: Callable[[Item], Result], item: Item) -> Result | MlirstackError:
    try:
        return work(item)
    except MlirstackError as error:
        return error


def _serve(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    waiting: SimpleQueue[int],
    finished: SimpleQueue[tuple[int, Result | BaseException]],
) -> None:
    """Work on what is waiting, in one process, and in another after that has died."""
    process: ProcessPoolExecutor | None = None
    while True:
        try:
            number = waiting.get_nowait()
        except Empty:
            break
        if process is None:
            process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin)
        try:
            finished.put((number, process.submit(_outcome, work, items[number]).result()))
        except BrokenProcessPool:
            finished.put((number, WorkerLostError("the process died", None)))
            process.shutdown()
            process = None
        except Exception as error:  # a defect, raised where the results are read
            finished.put((number, error))
    if process is not None:
        process.shutdown()


def _begin() -> None:
    """In the process: Ctrl-C ends it without a traceback; it and all that it starts have one thread each."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
