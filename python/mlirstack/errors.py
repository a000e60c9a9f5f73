"""Every error a user can meet, one class per kind of mistake.

Each holds one short message that names the thing and the place, and a hint that says what to do.  The command line prints
``error: message`` and ``hint: hint`` and exits with ``exit_status``; a traceback is a defect of mlirstack.
"""

from __future__ import annotations

import errno
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class MlirstackError(Exception):
    """Base of all mlirstack errors: ``message``, optional ``hint``, and the exit status of the command line."""

    exit_status = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (the command line compiles in a worker), keyword-only arguments included.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[MlirstackError], args: tuple[Any, ...], state: dict[str, Any]) -> MlirstackError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class UsageError(MlirstackError):
    """The call itself is wrong: a missing file, an unknown name, a bad option.  Exit status 2."""

    exit_status = 2


class PipelineError(UsageError):
    """A pass pipeline that cannot be built: syntax, unknown pass, unknown option, wrong nesting."""


class MissingDependencyError(MlirstackError):
    """A package or an external tool is not installed."""


class TargetUnavailableError(MlirstackError):
    """The target exists but cannot be used on this machine (no GPU, no tool)."""


class SignatureError(MlirstackError):
    """An executable was called with arguments of the wrong number, shape or dtype."""

    exit_status = 2


class RuntimeCheckError(MlirstackError):
    """A condition that the model itself checks while it runs (an index in range, matching sizes) does not hold."""


class BundleError(MlirstackError):
    """A bundle on disk is damaged, incomplete, or of a version this mlirstack does not read."""


class StorageError(MlirstackError):
    """A disk is full, or may not be written to."""

    @staticmethod
    def of(error: BaseException) -> StorageError | None:
        """``error`` as one of these; None where it is anything else."""
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return None
        where = f"{error.filename}: " if error.filename else ""
        hint = f"free space; temporary files go to {_temporary()}, TMPDIR names another place"
        return StorageError(f"{where}{error.strerror}", hint=hint)


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # no place at all can be written to
        return "/tmp"


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program, taken from an MLIR location."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """One MLIR diagnostic: severity ('error', 'warning', 'remark', 'note'), message, location as text, notes."""

    severity: str
    message: str
    location: str
    source: SourceLine | None = None
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        place = f"{self.source}: " if self.source else ""
        return f"{place}{self.severity}: {self.message}"


@dataclass(frozen=True)
class UnsupportedOp:
    """One operation that no route can express, with the user's line that it comes from."""

    op: str
    reason: str
    source: SourceLine | None = None

    def __str__(self) -> str:
        return f"{self.source or 'unknown line'}: {self.op}: {self.reason}"


class UnsupportedError(MlirstackError):
    """The model holds operations that cannot be compiled; ``ops`` lists all of them."""

    def __init__(self, message: str, ops: tuple[UnsupportedOp, ...] = (), *, hint: str | None = None) -> None:
        self.ops = ops
        listing = "".join(f"\n  {op}" for op in ops)
        super().__init__(message + listing, hint=hint)


class StageError(MlirstackError):
    """A stage failed.

    ``stage`` and ``pass_name`` say where, ``op`` and ``location`` at what, ``diagnostics`` what MLIR or the external tool
    said, ``reproducer`` is a directory with the complete input and the command that fails in the same way.  ``before``: the
    bytecode of the module as the pass found it, until it is in the reproducer.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: str,
        pass_name: str | None = None,
        op: str | None = None,
        location: SourceLine | None = None,
        diagnostics: tuple[Diagnostic, ...] = (),
        reproducer: Path | None = None,
        hint: str | None = None,
        before: bytes | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.stage = stage
        self.pass_name = pass_name
        self.op = op
        self.location = location
        self.diagnostics = diagnostics
        self.reproducer = reproducer
        self.before = before

    def __str__(self) -> str:
        lines = [f"stage '{self.stage}'" + (f", pass '{self.pass_name}'" if self.pass_name else "") + f": {self.message}"]
        if self.op:
            lines.append(f"  op: {self.op}")
        if self.location:
            lines.append(f"  from: {self.location}")
        lines += [f"  {d}" for d in self.diagnostics[:5]]
        if self.reproducer:
            lines.append(f"  reproducer: {self.reproducer}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class DeviceError(MlirstackError):
    """A call of a device's driver failed; the message names the call and the driver's own name of the error."""


class DeviceMemoryError(DeviceError):
    """A device has not enough free memory; the message says how many bytes were asked for."""


class WorkerLostError(MlirstackError):
    """A supervised process died, said nothing in time, or failed; ``doing`` is the last step that it told of."""

    def __init__(self, message: str, doing: Any = None) -> None:
        super().__init__(message)
        self.doing = doing
