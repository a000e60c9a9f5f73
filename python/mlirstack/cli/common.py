"""What all commands share: error blocks, exit statuses, JSON output, progress."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.status import Status

from mlirstack.errors import MlirstackError, StorageError, UsageError

# A pipe or a file has no width: wide enough for every table, instead of rich's 80 columns.
console = Console(width=None if sys.stdout.isatty() else 160)
error_console = Console(stderr=True, soft_wrap=True, highlight=False)


def fail(error: MlirstackError) -> NoReturn:
    """Print one short error block to stderr and exit with the error's status."""
    message, hint = str(error), error.hint
    if hint and message.endswith(f"\nhint: {hint}"):
        message = message[: -len(f"\nhint: {hint}")]
    error_console.print(f"[bold red]error:[/] {_plain(message)}")
    if hint:
        error_console.print(f"[bold]hint:[/] {_plain(hint)}")
    sys.exit(error.exit_status)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def run_command(body: Callable[[], int]) -> NoReturn:
    """Run a command's body and exit with its status; mlirstack's errors become error blocks, Ctrl-C exits with 130."""
    warnings.filterwarnings("ignore")  # torch.export warns about its own internals
    try:
        status = body()
    except MlirstackError as error:
        fail(error)
    except KeyboardInterrupt:
        error_console.print("interrupted")
        status = 130
    except BrokenPipeError:  # the reader of a pipe (head, less) has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    except OSError as error:
        storage = StorageError.of(error)
        if storage is None:
            raise
        fail(storage)
    sys.exit(status)


def write_json(path: Path | None, data: Any) -> None:
    """Write ``data`` to ``path`` ("-": stdout) as JSON; None writes nothing."""
    if path is None:
        return
    text = json.dumps(data, indent=1) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def progress(title: str) -> Iterator[Callable[[str, str, float], None]]:
    """A spinner with the running stage on a terminal; silent in a pipe."""
    if not error_console.is_terminal:
        yield lambda event, stage, seconds: None
        return
    with Status(title, console=error_console) as status:
        yield lambda event, stage, seconds: status.update(f"{title}: {stage}") if event == "before" else None


KERNELS = typer.Option("--kernels", help="of iree-* targets: own (ours inside IREE's module) or iree (IREE's code alone)")


def key_values(items: list[str], what: str) -> dict[str, str]:
    """``["a=b"]`` to ``{"a": "b"}``; :class:`UsageError` for anything else."""
    found: dict[str, str] = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key or not value:
            raise UsageError(f"'{item}' is not of the form {what}")
        found[key] = value
    return found
