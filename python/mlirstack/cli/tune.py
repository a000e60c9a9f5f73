"""``mlirstack tune``: build kernels in all ways worth trying, time them on a GPU, keep the fastest in a table.

Building needs MLIR and no GPU, measuring a GPU and no MLIR; only the directory of candidates travels.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from mlirstack.cli.common import console, error_console, key_values, run_command, write_json
from mlirstack.errors import TargetUnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlirstack.frontend.program import Program
    from mlirstack.tune.measure import Measured

EXAMPLES = """
Examples:

  mlirstack tune build zoo:tiny_mlp model.py:Net --dtype bf16 --target cuda:sm_90a --out candidates/

  mlirstack tune run candidates/ --table my-h200.json

  MLIRSTACK_TUNED=my-h200.json mlirstack lower model.py:Net --target cuda:sm_90a --out dump/

  mlirstack tune show my-h200.json
"""

tune = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=EXAMPLES,
    help="Build kernels in all ways worth trying, time them on a GPU, keep the fastest in a table.",
)

JsonFile = Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")]


@tune.command(epilog="Example: mlirstack tune build zoo:tiny_mlp --dtype bf16 --target cuda:sm_90a --out candidates/")
def build(
    models: Annotated[list[str], typer.Argument(help="model references")],
    out: Annotated[Path, typer.Option("--out", help="directory of the candidates; an earlier set there is replaced")],
    target: Annotated[str, typer.Option("--target", help="cuda:sm_80, …, cuda:sm_90a")] = "cuda:sm_90a",
    candidates: Annotated[int, typer.Option("--candidates", min=2, help="at most so many for each kernel")] = 10,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds to compile one candidate")] = 120.0,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="processes that compile")] = None,
    dynamic: Annotated[list[str] | None, typer.Option("--dynamic", help="x:0=1..64: a dynamic dimension")] = None,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    json_file: JsonFile = None,
) -> None:
    """Compile each distinct kernel of the models in several ways; needs no GPU."""

    def body() -> int:
        from mlirstack.tune.build import build_set

        quiet = str(json_file) == "-"
        ranges = key_values(dynamic or [], "NAME:DIM=LOW..HIGH")
        found = build_set(
            _programs(models, seed, dtype, ranges), target, out, count=candidates, timeout=timeout, jobs=jobs,
            report=(lambda line: None) if quiet else (lambda line: console.print(line, markup=False, highlight=False)),
        )  # fmt: skip
        built = [c for problem in found.problems for c in problem.candidates if c.skipped is None]
        if not quiet:
            console.print(f"{len(found.problems)} kernels, {len(built)} candidates: {out}", highlight=False)
        write_json(json_file, {"directory": str(out), "kernels": len(found.problems), "candidates": len(built)})
        if not found.problems:
            error_console.print("no kernel of these models can be written in more than one way")
        return 0 if found.problems else 1

    run_command(body)


def _programs(references: list[str], seed: int, dtype: str | None, dynamic: dict[str, str]) -> Iterator[Program]:
    from mlirstack.frontend.references import load_program

    for reference in references:
        yield load_program(reference, seed=seed, dtype=dtype, dynamic=dynamic)


@tune.command(epilog="Example: mlirstack tune run candidates/ --table my-h200.json --budget 150 --json times.json")
def run(
    directory: Annotated[Path, typer.Argument(help="what `mlirstack tune build` wrote")],
    table: Annotated[Path, typer.Option("--table", help="table to add the winners to; made if there is none")],
    budget: Annotated[float, typer.Option("--budget", help="seconds after which no other kernel is begun")] = math.inf,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds of silence that a candidate may cost")] = 20.0,
    seconds: Annotated[float, typer.Option("--seconds", help="seconds of measuring for each candidate")] = 0.15,
    json_file: JsonFile = None,
) -> None:
    """Time all candidates on this machine's GPU and add the winners to a table; needs no MLIR."""

    def body() -> int:
        from mlirstack.schedules.cuda.tuned import read_table
        from mlirstack.targets.registry import create_target
        from mlirstack.tune.candidate_set import CandidateSet
        from mlirstack.tune.measure import gpu_process, measure_set
        from mlirstack.tune.table import merge, write_table

        found = CandidateSet.read(directory)
        before = read_table(table) if table.exists() else {}
        reason = create_target(f"cuda:{found.arch}").available()
        if reason:
            raise TargetUnavailableError(f"candidates for {found.arch} cannot run here: {reason}")
        results: list[Measured] = []
        with gpu_process(timeout) as worker:
            for measured in measure_set(found, directory, worker, budget=budget, seconds=seconds):
                results.append(measured)
                if str(json_file) != "-":
                    console.print(_line(measured), markup=False, highlight=False)
                # After every kernel: whatever ends this process, what was measured is kept.
                after = merge(before, found.arch, results)
                write_table(table, after)
        if str(json_file) != "-":
            entries = len(after.get(found.arch, {})) if results else 0
            console.print(f"{table}: {entries} entries for {found.arch}", highlight=False)
        write_json(json_file, [_as_json(measured) for measured in results])
        return 0 if all(measured.note is None for measured in results) else 1

    run_command(body)


def _line(measured: Measured) -> str:
    """One line: the kernel, its time before and after, the winner, and what was left out."""
    from mlirstack.tune.candidate_set import describe
    from mlirstack.tune.table import FIRST, winner

    problem = measured.problem
    text = f"{problem.directory}: "
    number = winner(measured)
    if number is None:
        text += f"not measured: {measured.note}"
    elif number == FIRST:
        text += f"{measured.seconds[FIRST] * 1e6:.1f} us, the first choice is the best of {len(measured.seconds)}"
    else:
        best, first = measured.seconds[number], measured.seconds.get(FIRST)
        gain = f", {first / best:.3f} times the first choice" if first else ", the first choice does not run"
        text += f"{best * 1e6:.1f} us{gain}: {describe(problem.candidates[number].choice)}"
    return text + "".join(
        f"\n  left out: {describe(problem.candidates[n].choice)}: {why}" for n, why in measured.failed.items()
    )


def _as_json(measured: Measured) -> dict[str, Any]:
    from mlirstack.tune.table import winner

    problem = measured.problem
    candidates = [
        {
            "choice": candidate.choice,
            "seconds": measured.seconds.get(number),
            "error": candidate.skipped or measured.failed.get(number),
        }
        for number, candidate in enumerate(problem.candidates)
    ]
    return {
        "kernel": problem.directory,
        "problem": problem.key,
        "bucket": problem.bucket,
        "model": problem.model,
        "winner": winner(measured),
        "note": measured.note,
        "candidates": candidates,
    }


@tune.command(epilog="Example: mlirstack tune show my-h200.json")
def show(
    file: Annotated[Path | None, typer.Argument(help="a table; without it, all tables that are in use")] = None,
    json_file: JsonFile = None,
) -> None:
    """Print tuning tables: how many entries of which kind, and every entry."""

    def body() -> int:
        from mlirstack.schedules.cuda import tuned
        from mlirstack.tune.candidate_set import describe

        if file is not None and not file.exists():
            raise UsageError(f"no file {file}", hint="make one: mlirstack tune run DIR --table FILE")
        tables = {str(path): tuned.read_table(path) for path in ([file] if file is not None else tuned.files())}
        write_json(json_file, tables)
        if str(json_file) == "-":
            return 0
        for path, entries in tables.items():
            console.print(f"{os.path.relpath(path)}:", markup=False, highlight=False)
            lines = list(tuned.summary(Path(path))) or ["nothing"]
            console.print("\n".join(f"  {line}" for line in lines), markup=False, highlight=False)
            for arch, found in entries.items():
                rows = Table("problem", "schedule", title=arch, title_justify="left")
                for key, entry in found.items():
                    rows.add_row(key, describe(dict(entry)))
                console.print(rows, markup=False)
        return 0

    run_command(body)
