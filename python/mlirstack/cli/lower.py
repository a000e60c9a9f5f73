"""``mlirstack lower``: run a stage table over a model and leave the dump."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mlirstack.cli.common import KERNELS, console, key_values, progress, run_command, write_json
from mlirstack.lowering import LowerOptions
from mlirstack.pipeline.dump import check_directory
from mlirstack.targets.registry import settings_of
from mlirstack.worker import Done, Job, Worker

EXAMPLES = """
Examples:

  mlirstack lower zoo:tiny_mlp --target cpu --out dump/

  mlirstack lower model.py:Net --target cpu --to linalg --out dump/

  mlirstack lower zoo:tiny_mlp --target cpu --out dump/ --from fused

  mlirstack lower zoo:tiny_mlp --target cpu --passes --out dump/ && mlirstack report dump/ --open

  mlirstack lower zoo:tiny_mlp --dtype float16 --target iree-cuda:sm_90 --out dump/

  mlirstack lower zoo:tiny_mlp --dtype float16 --target cuda:sm_80 --schedule transform --out dump/
"""


def lower(
    model: Annotated[str, typer.Argument(help="model reference: zoo:NAME, file.py:ATTR, pkg.mod:ATTR, .pt2, .mlir")],
    out: Annotated[Path, typer.Option("--out", help="directory of the dump")],
    target: Annotated[str, typer.Option("--target", help="cpu, iree-cpu, …")] = "cpu",
    route: Annotated[str, typer.Option("--route", help="auto, tosa or linalg")] = "auto",
    to: Annotated[str | None, typer.Option("--to", help="stop after this stage or level (also stablehlo, torch)")] = None,
    start: Annotated[str | None, typer.Option("--from", help="resume from what this stage left in the dump")] = None,
    override: Annotated[list[str] | None, typer.Option("--override", help="STAGE=FILE: replace a stage's result")] = None,
    dynamic: Annotated[list[str] | None, typer.Option("--dynamic", help="x:0=1..64: a dynamic dimension")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of the generated code")] = 1,
    schedule: Annotated[
        str | None, typer.Option("--schedule", help="another way to write kernels (cuda: transform)")
    ] = None,
    kernels: Annotated[str | None, KERNELS] = None,
    passes: Annotated[bool, typer.Option("--passes", help="dump the IR after each pass as well")] = False,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Lower a model stage by stage; write one numbered file per stage and trace.json."""

    def body() -> int:
        overrides = {stage: Path(file) for stage, file in key_values(override or [], "STAGE=FILE").items()}
        dump = check_directory(out)
        settings = settings_of([target], {"kernels": kernels} if kernels else {})[target]
        options = LowerOptions(
            target, route, threads, to, start, overrides, dump, crash_safe=True, schedule=schedule, passes=passes,
            settings=settings,
        )  # fmt: skip
        job = Job(model, options, seed=seed, dtype=dtype, dynamic=key_values(dynamic or [], "NAME:DIM=LOW..HIGH"))
        with Worker() as worker, progress(f"lowering {model}") as tell:
            done = worker.run(job, tell)
        if str(json_file) != "-":
            console.print(_table(model, target, done))
            console.print(f"dump: {out}")
        write_json(json_file, _as_json(model, target, out, done))
        return 0

    run_command(body)


def _table(model: str, target: str, done: Done) -> Table:
    table = Table(title=f"{model} → {target} (route {done.route}: {done.route_reason})", title_justify="left")
    for column in ("#", "stage", "level"):
        table.add_column(column)
    table.add_column("ms", justify="right")
    table.add_column("most frequent ops", overflow="fold")
    for s in done.stages:
        ops = ", ".join(f"{count} {op}" for op, count in list(s.ops.items())[:4])
        table.add_row(f"{s.index:02d}", s.name, s.level, f"{s.seconds * 1e3:.1f}", ops)
    return table


def _as_json(model: str, target: str, out: Path, done: Done) -> dict[str, object]:
    stages = [{"index": s.index, "name": s.name, "level": s.level, "seconds": s.seconds, "ops": s.ops} for s in done.stages]
    return {
        "model": model,
        "target": target,
        "route": done.route,
        "route_reason": done.route_reason,
        "seconds": done.seconds,
        "dump": str(out),
        "stages": stages,
    }
