"""``mlirstack verify``: may this bundle run here, and does it give the answers that it gave when it was built?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from mlirstack.cli.common import console, progress, run_command, write_json

if TYPE_CHECKING:
    from mlirstack.bundle.verify import VerifyReport

EXAMPLES = """
Examples:

  mlirstack verify net.bundle

  mlirstack verify net.bundle --device cuda --json verify.json
"""


def verify(
    bundle: Annotated[Path, typer.Argument(help="directory of the bundle")],
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, a target, or a target:arch; default: all that run here")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of the processor")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Check manifest, checksums, versions and architecture before anything is loaded; then run the golden inputs."""

    def body() -> int:
        from mlirstack.bundle.verify import verify as run

        with progress(f"verifying {bundle}") as tell:
            report = run(bundle, device=device, threads=threads, progress=lambda doing: tell("before", doing, 0.0))
        if str(json_file) != "-":
            console.print(_table(report))
            for check in report.checks:
                if check.status == "failed" and check.remedy:
                    console.print(f"{check.step}, {check.subject}: {check.remedy}", markup=False, highlight=False)
        write_json(json_file, as_json(bundle, report))
        return 0 if report.ok else 1

    run_command(body)


def as_json(bundle: Path, report: VerifyReport) -> dict[str, object]:
    """The report as plain data."""
    return {
        "bundle": str(bundle),
        "ok": report.ok,
        "checks": [asdict(check) for check in report.checks],
        "outputs": [{"target": spec, **asdict(comparison)} for spec, comparison in report.comparisons],
    }


def _table(report: VerifyReport) -> Table:
    colours = {"ok": "green", "skipped": "yellow", "failed": "bold red"}
    table = Table(show_header=False, box=None)
    for check in report.checks:
        table.add_row(f"[{colours[check.status]}]{check.status}[/]", check.step, escape(check.subject), escape(check.detail))
    return table
