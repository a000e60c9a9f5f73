"""``mlirstack reproduce``: replay a failure from the directory that it left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlirstack.cli.common import console, progress, run_command, write_json
from mlirstack.errors import UsageError

EXAMPLES = """
Examples:

  mlirstack reproduce dump/reproducer-05-fused

  mlirstack reproduce dump/reproducer-05-fused --upstream case.mlir

Exit status: 0 the same failure, 1 it does not fail any more, or in another way.
"""


def reproduce(
    directory: Annotated[Path, typer.Argument(help="a directory that an error named as its reproducer")],
    upstream: Annotated[
        Path | None, typer.Option("--upstream", help="also write a file that mlir-opt runs, for a bug report")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Replay a failure in a process of its own: "same failure", "another failure" or "fixed"."""

    def body() -> int:
        from mlirstack.pipeline.reproducer import Record, opt_command
        from mlirstack.reduce.replay import replay, upstream_text

        record = Record.read(directory)
        if upstream:
            text = upstream_text(directory)
            try:
                upstream.write_text(text)
            except OSError as error:
                raise UsageError(f"cannot write {upstream}: {error.strerror}") from error
        with progress(f"replaying {directory}"):
            found = replay(directory)
        if str(json_file) != "-":
            console.print(f"{found.status}: {found.found}", markup=False, highlight=False, soft_wrap=True)
            if found.status != "same failure":
                console.print(f"expected: {found.expected}", markup=False, highlight=False, soft_wrap=True)
            command = record.origin if record.input_level == "fx" else f"cd {directory} && {opt_command(record)}"
            console.print(f"by hand: {command}", markup=False, highlight=False, soft_wrap=True)
        write_json(
            json_file,
            {"status": found.status, "expected": found.expected, "found": found.found, "stage": record.stage},
        )
        return 0 if found.status == "same failure" else 1

    run_command(body)
