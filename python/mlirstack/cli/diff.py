"""``mlirstack diff``: what changed between two stages of a dump, or between two dumps."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlirstack.cli.common import console, run_command, write_json
from mlirstack.errors import UsageError

if TYPE_CHECKING:
    from mlirstack.report.dump_files import DumpFiles, StageFiles

EXAMPLES = """
Examples:

  mlirstack diff dump/ linalg fused

  mlirstack diff dump/ linalg fused --stat

  mlirstack diff before/ after/             which stage first differs

  mlirstack diff before/ after/ vectorized  the same stage in two dumps
"""


def diff(
    directory: Annotated[Path, typer.Argument(help="a dump: what 'mlirstack lower … --out DIR' wrote")],
    first: Annotated[str, typer.Argument(help="a stage, or a second dump")],
    second: Annotated[str | None, typer.Argument(help="a stage")] = None,
    only_stat: Annotated[bool, typer.Option("--stat", help="numbers of lines and operations only")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Compare two stages of a dump, or two dumps, whatever numbers their values have.

    Exit status 0: no difference, 1: there is one.
    """

    def body() -> int:
        from mlirstack.report.dump_files import read_dump

        dump = read_dump(directory)
        if Path(first).is_dir() and first not in [stage.name for stage in dump.stages]:
            other = read_dump(Path(first))
            if second is None:
                return _dumps(dump, other, json_file)
            return _stages(dump[second], other[second], str(directory), first, only_stat, json_file)
        if second is None:
            raise UsageError(f"what is '{first}' to be compared with?", hint="name two stages, or a second dump")
        return _stages(dump[first], dump[second], first, second, only_stat, json_file)

    run_command(body)


def _dumps(a: DumpFiles, b: DumpFiles, json_file: Path | None) -> int:
    from mlirstack.report.summary import compare_dumps, dump_table

    difference = compare_dumps(a, b)
    write_json(json_file, difference.to_json())
    if str(json_file) != "-":
        console.print(dump_table(difference, str(a.path), str(b.path)))
        for key, (before, after) in difference.options.items():
            console.print(f"{key}: {before} → {after}", highlight=False)
        first = difference.first
        console.print(f"first difference: stage '{first}'" if first else "no stage differs", highlight=False)
    return 0 if difference.first is None else 1


def _stages(a: StageFiles, b: StageFiles, name_a: str, name_b: str, only_stat: bool, json_file: Path | None) -> int:
    from mlirstack.report.summary import coloured_diff, op_changes, op_table, stage_diff, stage_stat

    found, changes = stage_stat(a, b), op_changes(a.ops, b.ops)
    write_json(json_file, {"a": name_a, "b": name_b, "removed": found.removed, "added": found.added, "ops": changes})
    differs = bool(found.removed or found.added)
    if str(json_file) == "-":
        return int(differs)
    if only_stat:
        if changes:
            console.print(op_table(changes, name_a, name_b))
        console.print(f"{name_a} → {name_b}: {found.removed} line(s) removed, {found.added} added", highlight=False)
        return int(differs)
    with console.pager(styles=True) if console.is_terminal else contextlib.nullcontext():
        for line in coloured_diff(stage_diff(a, b, name_a, name_b)):
            console.print(line, soft_wrap=True)
    return int(differs)
