"""``mlirstack checks``: write the CHECK lines of a FileCheck test, and lint tests for directives that check nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlirstack.cli.common import run_command, write_json
from mlirstack.errors import UsageError
from mlirstack.filecheck.directives import test_files
from mlirstack.filecheck.generate import with_directives
from mlirstack.filecheck.lint import lint

EXAMPLES = "Example: mlirstack checks lit_tests/passes/mine.mlir --update; mlirstack checks --lint lit_tests dialect_samples"


def checks(
    paths: Annotated[list[Path], typer.Argument(help="tests; with --lint also folders of tests")],
    update: Annotated[bool, typer.Option("--update", help="write the files instead of printing them")] = False,
    only_lint: Annotated[bool, typer.Option("--lint", help="report misspelt and unused directives; writes nothing")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the findings as JSON ('-': stdout)")] = None,
) -> None:
    """Write CHECK lines from what the RUN lines of a test print, or lint tests."""

    def body() -> int:
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            raise UsageError(f"no such file: {', '.join(missing)}")
        files = test_files(paths)
        if only_lint:
            findings = [finding for file in files for finding in lint(file)]
            for finding in findings:
                print(finding)
            write_json(
                json_file,
                {
                    "files": len(files),
                    "findings": [
                        {"file": str(f.path), "line": f.line, "column": f.column, "message": f.message} for f in findings
                    ],
                },
            )
            return 1 if findings else 0
        texts = {file: with_directives(file) for file in files}
        for file, text in texts.items():
            if update:
                file.write_text(text)
            else:
                print(text, end="")
        write_json(json_file, {"files": [str(file) for file in files]})
        return 0

    run_command(body)
