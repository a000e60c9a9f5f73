"""``mlirstack explain``: what torch.compile did to a model, and what to do about it.

The work is done in a process of its own, so that a crash of generated code or a hang of a compiler costs the report alone.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mlirstack.cli.common import console, progress, run_command, write_json
from mlirstack.errors import MlirstackError, UsageError, WorkerLostError

EXAMPLES = """
Examples:

  mlirstack explain model.py:Net

  mlirstack explain model.py:Net --after rewritten.py:Net --html report.html

  mlirstack explain zoo:tiny_mlp_small --backward --sources

  mlirstack explain model.py:Net --shapes '8x32 16x32 16x64' --json explain.json
"""
_TIMEOUT = 600.0  # seconds of silence: the C++ compiler may take minutes for a large model


def explain(
    model: Annotated[str, typer.Argument(help="model reference")],
    after: Annotated[str | None, typer.Option("--after", help="FILE.py:ATTR: a rewritten version to compare with")] = None,
    shapes: Annotated[
        str | None,
        typer.Option("--shapes", help="recompile lab: '8x32 16x32' calls with these; '8x32,4' for two inputs"),
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="also the backward graph")] = False,
    triton: Annotated[
        bool, typer.Option("--triton", help="also Triton kernels for sm_90 and their PTX; no GPU needed")
    ] = False,
    sources: Annotated[bool, typer.Option("--sources", help="print the text of the generated kernels")] = False,
    threads: Annotated[int, typer.Option("--threads", min=1, help="torch's threads")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="write the report as one self-contained page")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Show what torch.compile did to a model: graphs, breaks, recompilations, kernels, costs, and what to do about each."""

    def body() -> int:
        from mlirstack.dynamo.explain.request import Request, checked_shapes

        request = Request(
            model,
            after=after,
            backward=backward,
            shapes=checked_shapes(shapes),
            seed=seed,
            dtype=dtype,
            threads=threads,
            triton=triton,
            html=html is not None,
            sources=sources,
            width=console.width,
            colour=sys.stdout.isatty(),
        )
        report = _ask(asdict(request), model)
        if html is not None:
            _write(html, report["html"])
        if str(json_file) != "-":
            sys.stdout.write(report["text"])
            if html is not None:
                console.print(f"page: {html}", highlight=False)
        write_json(json_file, report["json"])
        return 0 if report["compiles"] else 1

    run_command(body)


def _ask(question: dict[str, Any], model: str) -> dict[str, Any]:
    """The child's report; its steps are shown on a terminal."""
    from mlirstack.supervised import Supervised

    command = [sys.executable, "-m", "mlirstack.dynamo.explain.child"]
    with progress(model) as tell, Supervised(command, timeout=_TIMEOUT) as child:
        try:
            report: dict[str, Any] = child.ask(question, lambda doing: tell("before", str(doing), 0.0))
        except WorkerLostError as lost:
            raise MlirstackError(f"the process that compiles is gone ({lost.doing}): {lost.message}") from lost
    failed = report.get("failed")
    if failed:
        error = MlirstackError(failed["message"], hint=failed["hint"])
        error.exit_status = failed["exit_status"]
        raise error
    return report


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
