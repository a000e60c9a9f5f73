"""``mlirstack pipelines``: the stage tables, with the pass pipeline of each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from mlirstack.cli.common import console, run_command, write_json
from mlirstack.pipeline.stage import Pipeline
from mlirstack.targets.registry import create_target, target_names


def pipelines(
    name: Annotated[str | None, typer.Argument(help="a target: cpu, iree-cpu, …; without it, all of them in short")] = None,
    route: Annotated[str, typer.Option("--route", help="tosa or linalg")] = "tosa",
    json_file: Annotated[Path | None, typer.Option("--json", help="write the tables as JSON ('-': stdout)")] = None,
) -> None:
    """Print the stage tables; with a name, the pass pipeline of each stage as mlirstack-opt accepts it."""

    def body() -> int:
        tables = [create_target(target).pipeline(route, "fx") for target in ([name] if name else target_names())]
        if str(json_file) != "-":
            for pipeline in tables:
                console.print(_details(pipeline) if name else _summary(pipeline))
        write_json(json_file, [_as_json(pipeline) for pipeline in tables])
        return 0

    run_command(body)


def _summary(pipeline: Pipeline) -> str:
    return f"[bold]{pipeline.name}[/]: " + " → ".join(pipeline.names())


def _details(pipeline: Pipeline) -> Table:
    table = Table(title=f"{pipeline.name}: {pipeline.doc}", title_justify="left", show_lines=True)
    for column in ("#", "stage", "level"):
        table.add_column(column, no_wrap=True)
    table.add_column("what and how", overflow="fold")
    for index, stage in enumerate(pipeline.stages):
        table.add_row(f"{index:02d}", stage.name, stage.level.name, f"{escape(stage.doc)}\n[dim]{escape(stage.text())}[/]")
    return table


def _as_json(pipeline: Pipeline) -> dict[str, object]:
    stages = [
        {"index": i, "name": s.name, "level": s.level.name, "doc": s.doc, "pipeline": s.text()}
        for i, s in enumerate(pipeline.stages)
    ]
    return {"name": pipeline.name, "doc": pipeline.doc, "stages": stages}
