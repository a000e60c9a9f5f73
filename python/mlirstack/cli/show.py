"""``mlirstack show``: a dump in the terminal, its stages or the text of one of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mlirstack.cli.common import console, run_command, write_json

EXAMPLES = """
Examples:

  mlirstack show dump/

  mlirstack show dump/ linalg

  mlirstack show dump/ ptx --plain | grep mma
"""


def show(
    directory: Annotated[Path, typer.Argument(help="a dump: what 'mlirstack lower … --out DIR' wrote")],
    stage: Annotated[str | None, typer.Argument(help="a stage, by name, number or level (default: list all)")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="no colours, no pager")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the stages as JSON ('-': stdout)")] = None,
) -> None:
    """List the stages of a dump, or print what one stage left, with syntax colours and a pager on a terminal."""

    def body() -> int:
        from mlirstack.report.dump_files import read_dump
        from mlirstack.report.summary import coloured_text, stage_table

        dump = read_dump(directory)
        write_json(json_file, dump.trace)
        if str(json_file) == "-":
            return 0
        if stage is None:
            console.print(stage_table(dump))
            return 0
        chosen = dump[stage]
        if plain or not console.is_terminal:
            sys.stdout.write(chosen.text)
            return 0
        with console.pager(styles=True):
            console.print(coloured_text(chosen), soft_wrap=True)
        return 0

    run_command(body)
