"""ONNX's own tests of its operators on target cpu, held against the committed table of what became of each.

They come with the package ``onnx`` (the extra ``onnx``): models of one or a few nodes, with inputs and answers.  Each is
judged in a process that may die, each result is a line of JSON at once, and a run that was ended goes on where it was.

    python benchmarks/onnx_nodes.py                             # all, compared with the table
    python benchmarks/onnx_nodes.py --only '_conv' --jobs 4
    python benchmarks/onnx_nodes.py --update                    # write the table

Exit status 1 where a test does better or worse than the table says.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite_runs import Judge, Row, differences, exit_status, json_lines, judged, options_parser, shown

from mlirstack.versions import versions

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "onnx-nodes.json"

_TESTS_PER_PROCESS = 150


def judge_of(timeout: float) -> Judge:
    """A judge of tests by name; asked None, it tells the names of all and the version of onnx."""
    command = [sys.executable, str(HERE / "onnx_worker.py")]
    return Judge(command, threads=1, timeout=timeout, lifetime=_TESTS_PER_PROCESS)


def operators(rows: Mapping[str, Row]) -> dict[str, str]:
    """For each operator of ONNX that has a test that is not right, how many tests of each verdict it has."""
    found: dict[str, Counter[str]] = {}
    for row in rows.values():
        for operator in row["operators"]:
            found.setdefault(operator, Counter())[row["verdict"]] += 1
    return {
        operator: ", ".join(f"{count} {verdict}" for verdict, count in counter.most_common())
        for operator, counter in sorted(found.items())
        if set(counter) != {"pass"}
    }


def table_text(meta: Mapping[str, Any], rows: Mapping[str, Row]) -> str:
    """JSON: counts, operators with a test that is not right, one line a test."""
    counts = dict(Counter(row["verdict"] for row in rows.values()).most_common())
    lists = {"operators": operators(rows), "tests": {name: rows[name] for name in sorted(rows)}}
    parts = [json_lines({**meta, "counts": counts}, 1), *(f' "{k}": {{\n{json_lines(v)}\n }}' for k, v in lists.items())]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    """Run, print counts and what differs from the table, or write it."""
    parser = options_parser(__doc__, timeout=120.0, out=Path("build/onnx-nodes.jsonl"), table=TABLE)
    return exit_status(_main, parser.parse_args())


def _main(options: argparse.Namespace) -> int:
    naming = judge_of(options.timeout)
    suite = naming.ask(None)
    naming.close()
    tests = {name: name for name in suite["names"] if re.search(options.only, name)}
    known = json.loads(options.table.read_text())["tests"] if options.table.exists() else {}
    judge = functools.partial(judge_of, options.timeout)
    found = judged(tests, judge, options.out, {"onnx": suite["onnx"]}, options.jobs, budget=options.budget)
    for name, row in found.items():  # a process that died cannot tell
        row.setdefault("operators", suite["names"][name])
    print(json.dumps(Counter(row["verdict"] for row in found.values())))
    if options.update:
        packages = {"onnx": suite["onnx"], "torch-mlir": versions()["torch-mlir"]}
        options.table.write_text(table_text({"target": "cpu", "versions": packages}, {**known, **found}))
        return 0
    return shown(differences(known, found))


if __name__ == "__main__":
    sys.exit(main())
