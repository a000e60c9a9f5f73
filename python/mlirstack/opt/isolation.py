"""Work in a child process, because native code can crash: the parent stays small, waits, and reports.

The child is forked before the bindings are loaded, so that this costs about a millisecond, and it leaves without tearing
the bindings down, which saves more than that.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

from mlirstack.opt.dumps import Filter
from mlirstack.opt.flags import FlagError


class Progress:
    """Memory shared with the child: the chunk it is at and the phase of the work on it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def tell(self, chunk: int, phase: int) -> None:
        """Called by the child."""
        self._memory[:8] = chunk.to_bytes(4, "little") + phase.to_bytes(4, "little")

    def read(self) -> tuple[int, int]:
        """``(chunk, phase)``."""
        return int.from_bytes(self._memory[:4], "little"), int.from_bytes(self._memory[4:8], "little")


class Ended(NamedTuple):
    """How the child ended: its exit status, or the signal that killed it (0: none)."""

    status: int
    signal: int

    @property
    def signal_name(self) -> str:
        """``SIGSEGV`` and the like."""
        return signal.Signals(self.signal).name


def run_isolated(work: Callable[[], int], filter_stderr: Filter | None = None) -> Ended:
    """Run ``work`` in a child; its result is the exit status.  ``filter_stderr`` sees each line that it writes there."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe() if filter_stderr else (-1, -1)
    child = os.fork()
    if child == 0:
        if filter_stderr:
            os.close(reading)
            os.dup2(writing, 2)
        os._exit(_work(work))
    try:
        if filter_stderr:
            os.close(writing)
            with os.fdopen(reading, "rb") as lines:
                for line in lines:
                    os.write(2, filter_stderr.line(line))
        _, status = os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.waitpid(child, 0)
        return Ended(130, 0)
    if os.WIFSIGNALED(status):
        return Ended(1, os.WTERMSIG(status))
    return Ended(os.WEXITSTATUS(status), 0)


def _work(work: Callable[[], int]) -> int:
    """All that a child does, to the end; whatever it raises is printed here, or it would be lost."""
    status = 1
    try:
        status = work()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has left
        status = 0
    except KeyboardInterrupt:
        status = 130
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    return status
