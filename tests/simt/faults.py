"""What the emulator reports: wrong kernels (:class:`Fault`) and ops that it does not know (:class:`Unsupported`)."""

from __future__ import annotations

from typing import Any


class Unsupported(NotImplementedError):
    """The emulator has no meaning for an op, a type or an instruction."""


class Fault(Exception):
    """A kernel did what no kernel may do; says what, where in the IR, and which thread."""

    kind = "fault"

    def __init__(self, message: str, threads: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.threads = threads  # positions in the frame that failed
        self.thread_names: list[str] = []
        self.operation: str | None = None

    def locate(self, operation: Any, thread_names: list[str]) -> None:
        """Add the innermost op and the names of some threads; later calls are ignored."""
        if self.operation is None:
            self.operation = describe(operation)
            self.thread_names = thread_names

    def __str__(self) -> str:
        parts = [self.message]
        if self.thread_names:
            parts.append("threads: " + ", ".join(self.thread_names))
        if self.operation:
            parts.append("at: " + self.operation)
        return "\n  ".join(parts)


class OutOfBounds(Fault):
    """An access outside every buffer, or across the end of one."""


class Misaligned(Fault):
    """An address that is not a multiple of the access size."""


class Uninitialised(Fault):
    """A read of bytes that nothing wrote."""


class Race(Fault):
    """Two threads touch the same bytes, one writes, and nothing orders them."""


class Divergence(Fault):
    """A collective op that not all of its threads reach."""


class Deadlock(Fault):
    """No thread can go on."""


def describe(operation: Any) -> str:
    """One line: the op and, where it has one, its location."""
    text = str(operation).split("\n")[0].strip()
    text = text if len(text) <= 300 else text[:300] + " …"
    location = str(operation.location)
    return text if "unknown" in location else f"{text} {location}"
