"""``mlirstack reduce``: shrink a module that fails, with the failure staying."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlirstack.cli.common import console, progress, run_command, write_json
from mlirstack.errors import UsageError

EXAMPLES = """
Examples:

  mlirstack reduce dump/reproducer-05-fused

  mlirstack reduce big.mlir --pipeline 'builtin.module(one-shot-bufferize)' --expect 'op was not bufferized'

  mlirstack reduce dump/replay/05-fused.mlirbc --pipeline 'builtin.module(my-pass)' --numbers --out small.mlir

Exit status: 0 reduced, 1 out of time (in all, or for a candidate) with something still to try, 3 nothing fails.
"""


def reduce(
    source: Annotated[Path, typer.Argument(help="a module (.mlir, .mlirbc), or the directory of a reproducer")],
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", help="passes that fail, builtin.module(…); a reproducer has its own")
    ] = None,
    expect: Annotated[
        str | None, typer.Option("--expect", help="what the message must contain (default: the message of the first try)")
    ] = None,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="the failure is a wrong number: the module is run before and after the passes")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="the reduced module (default: reduced.mlir)")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="time in all")] = 120.0,
    limit: Annotated[float, typer.Option("--limit", min=0.1, help="seconds for one candidate")] = 20.0,
    seed: Annotated[int, typer.Option("--seed", help="seed of the inputs that numbers are compared on")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Drop functions, ops, results and regions, shrink shapes and constants, as long as the module fails in the same way."""

    def body() -> int:
        from mlirstack.reduce.case import case_of, write_reduced
        from mlirstack.reduce.reducer import reduce_module

        case = case_of(source, pipeline, numbers=numbers, seed=seed)
        target = out or Path("reduced.mlir")
        if target.is_dir():
            raise UsageError(f"{target} is a directory", hint="--out names a file")
        with progress(f"reducing {source}") as tell:
            found = reduce_module(
                case.module,
                case.task,
                text=expect,
                expectation=case.expectation if expect is None else None,
                seconds=seconds,
                limit=limit,
                tell=lambda doing: tell("before", doing, 0.0),
            )
        write_reduced(target, found, case.task)
        if str(json_file) != "-":
            console.print(
                f"{found.ops_before} → {found.ops} ops, {found.seconds:.1f} s, {found.tries} tries: {found.outcome.text()}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            console.print(f"reduced module: {target}", markup=False, highlight=False, soft_wrap=True)
            if found.unjudged:
                judged = found.tries - found.unjudged
                could = f"{judged or 'none'} of {found.tries} candidates could be judged"
                console.print(f"{could}: the others did not end within {limit:g} s (--limit)")
            elif not found.finished:
                console.print("time ran out: more can be taken away with a larger --seconds")
        write_json(
            json_file,
            {
                "ops_before": found.ops_before,
                "ops": found.ops,
                "tries": found.tries,
                "unjudged": found.unjudged,
                "seconds": found.seconds,
                "finished": found.finished,
                "failure": found.outcome.text(),
                "file": str(target),
            },
        )
        return 0 if found.finished else 1

    run_command(body)
