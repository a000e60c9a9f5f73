"""``mlirstack report``: a dump as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from mlirstack.cli.common import console, progress, run_command, write_json
from mlirstack.errors import UsageError

EXAMPLES = """
Examples:

  mlirstack lower zoo:tiny_mlp --target cuda:sm_90a --passes --out dump/

  mlirstack report dump/ --open

  mlirstack compare zoo:tiny_mlp --targets cpu --json dump/compare.json && mlirstack report dump/ -o tiny_mlp.html
"""


def report(
    directory: Annotated[Path, typer.Argument(help="a dump: what 'mlirstack lower … --out DIR' wrote")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="the HTML file (default: DIR/report.html)")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write shares and kernels as JSON ('-': stdout)")] = None,
) -> None:
    """Write a dump as one self-contained HTML file: levels side by side, every line linked to where it comes from."""

    def body() -> int:
        from mlirstack.report.dump_files import read_dump
        from mlirstack.report.page import render
        from mlirstack.report.provenance import provenance_of
        from mlirstack.report.summary import as_json

        dump = read_dump(directory)
        file = output or directory / "report.html"
        with progress(f"reading {directory}"):
            provenance = provenance_of(dump)
            page = render(dump, provenance)
        try:
            file.write_text(page)
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror}") from error
        if str(json_file) != "-":
            console.print(f"{file} ({len(page.encode()) / 1e6:.1f} MB)", highlight=False)
        write_json(json_file, as_json(dump, provenance, file))
        if open_page:
            webbrowser.open(file.resolve().as_uri())
        return 0

    run_command(body)
