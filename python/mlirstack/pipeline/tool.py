"""Running external tools (iree-compile, ptxas): the one place that starts a subprocess of a stage.

A command goes in, exit status and output come out.  A tool that runs too long is ended together with its children, and so
is one whose caller is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ToolRun:
    """How a tool ended: exit status (negative: the signal that killed it), what it printed, and whether time ran out."""

    status: int
    stderr: str
    timed_out: bool = False
    stdout: str = ""

    @property
    def failure(self) -> str | None:
        """None for success, else how it ended in a few words (time limits are the caller's to describe)."""
        if self.status == 0 and not self.timed_out:
            return None
        if self.status < 0:
            return f"died with signal {signal.Signals(-self.status).name}"
        return f"ended with exit status {self.status}"


def run_tool(
    command: Sequence[str], *, directory: Path, timeout: float, environment: Mapping[str, str] | None = None
) -> ToolRun:
    """Run ``command`` in ``directory`` for at most ``timeout`` seconds; OSError where it cannot be started.

    ``environment``: its environment variables (default: those of this process).
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # a group of its own, so that its linker can be ended with it
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
        return ToolRun(process.returncode, stderr, stdout=stdout)
    except subprocess.TimeoutExpired:
        _end_group(process)
        stdout, stderr = process.communicate()
        return ToolRun(process.returncode, stderr, timed_out=True, stdout=stdout)
    except BaseException:
        _end_group(process)
        process.communicate()
        raise


def _end_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
