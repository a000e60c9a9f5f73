"""Every operation of ``mlirstack fuzz`` in every dtype that eager takes, on every route and target, held against a table.

Each row (operation, dtype, target, route) is a set of small graphs (``operator_cases``), judged as random graphs are, in a
process that may die; each result is a line of JSON at once, and a run that was ended goes on where it was.

    python benchmarks/operators.py --jobs 16              # all rows, compared with the table
    python benchmarks/operators.py --only '^(add|mul) '   # rows whose name, "add float32 cpu auto", it is found in
    python benchmarks/operators.py --sample 10 --seed 3   # ten rows, the same for a seed
    python benchmarks/operators.py --missing --budget 600 --update   # ten minutes more of what the table has not
    python benchmarks/operators.py --update               # write the table, and docs/operators.md from it

Exit status 1 where a row does better or worse than the table says.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operator_cases import DTYPES, EMPTY, graphs
from operator_page import write_page
from suite_runs import Row, exit_status, json_lines, judged, options_parser, shown

from mlirstack.fuzz.examiner import Examiner
from mlirstack.fuzz.operations import table
from mlirstack.fuzz.results import Result
from mlirstack.versions import versions

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "operators.json"
TARGETS, ROUTES = ("cpu", "iree-cpu"), ("auto", "tosa")

Question = tuple[str, str, str, str]


def rows(only: str = "") -> dict[str, Question]:
    """All rows by name, of which ``only`` is found in; those that eager does not take are among them."""
    every = ((op, dtype, target, route) for op in table() for dtype in DTYPES for target in TARGETS for route in ROUTES)
    return {" ".join(row): row for row in every if re.search(only, " ".join(row))}


class OperatorJudge:
    """Judges rows; whatever kills the process costs one graph.  ``timeout`` in seconds for a step."""

    def __init__(self, timeout: float) -> None:
        self._examiner = Examiner(timeout)

    def row(self, question: Question) -> Row:
        """What became of the graphs of a row: how many there are, and those that are not right by their reason."""
        op, dtype, target, route = question
        cases = {name: graph for name, graph in graphs(op, dtype).items() if route == "auto" or name != EMPTY}
        results: dict[str, Result] = {}
        for names in _groups(list(cases), route):
            found = self._examiner.results([cases[name] for name in names], target, route=route)
            if not results and route != "auto" and found[0].status == "refused":
                # A dtype that a route refuses once, it refuses in every shape.
                results = dict.fromkeys(cases, found[0])
                break
            results |= dict(zip(names, found, strict=True))
        rest: dict[str, list[str]] = {}
        for name, result in results.items():
            if result.status != "ok":
                rest.setdefault(f"{result.status}: {result.reason}", []).append(name)
        return {"graphs": len(cases), "rest": rest} if rest else {"graphs": len(cases)}

    def close(self) -> None:
        """End the process."""
        self._examiner.close()


def _groups(names: list[str], route: str) -> list[list[str]]:
    """Names of graphs that are compiled together: by one route, which is another for tensors without elements; where a route
    may refuse all, the last graph goes first."""
    usual = [name for name in names if name != EMPTY]
    groups = [usual] if route == "auto" or len(usual) < 3 else [usual[-1:], usual[:-1]]
    return [group for group in (*groups, [name for name in names if name == EMPTY]) if group]


# ----------------------------------------------------------------------------------------------------------------- table


def differences(expected: Mapping[str, Row], found: Mapping[str, Row]) -> list[str]:
    """How a run differs from the table, a line for each graph."""
    lines = []
    for name, row in found.items():
        if name not in expected:
            lines.append(f"{name}: not in the table")
            continue
        wanted, given = _statuses(expected[name]), _statuses(row)
        if expected[name]["graphs"] != row["graphs"]:
            lines.append(f"{name}: {row['graphs']} graphs, the table has {expected[name]['graphs']}")
        for case in dict.fromkeys([*wanted, *given]):
            before, now = wanted.get(case, "right"), given.get(case, "right")
            if before.partition(":")[0] != now.partition(":")[0]:
                kind = "unexpected pass" if now == "right" else "unexpected failure"
                lines.append(f"{name}: {case}: {kind}: {now}, the table says {before}")
    return lines


def _statuses(row: Row) -> dict[str, str]:
    return {case: reason for reason, cases in row.get("rest", {}).items() for case in cases}


def taken(found: Mapping[str, Row]) -> dict[str, Row]:
    """The rows that eager takes."""
    return {name: row for name, row in found.items() if row["graphs"]}


def counts(found: Mapping[str, Row]) -> dict[str, dict[str, int]]:
    """For each target and route, how many rows there are, how many are right in all graphs, and graphs by status."""
    sums: dict[str, Counter[str]] = {}
    for name, row in taken(found).items():
        statuses = Counter(reason.partition(":")[0] for reason in _statuses(row).values())
        right = {"right graphs": row["graphs"] - statuses.total(), "rows": 1, "right rows": int(not statuses)}
        sums.setdefault(" ".join(name.split()[2:]), Counter()).update({**right, **statuses})
    return {key: dict(counter) for key, counter in sums.items()}


def table_text(meta: Mapping[str, Any], found: Mapping[str, Row]) -> str:
    """JSON, one line a row."""
    return f'{{\n{json_lines({**meta, "counts": counts(found)}, 1)},\n "rows": {{\n{json_lines(taken(found))}\n }}\n}}\n'


# --------------------------------------------------------------------------------------------------------------- command


def main() -> int:
    """Run, print counts and what differs from the table, or write it."""
    parser = options_parser(__doc__, timeout=120.0, out=Path("build/operators.jsonl"), table=TABLE)
    parser.add_argument("--missing", action="store_true", help="only rows that the table does not have")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="only so many of the table's rows")
    parser.add_argument("--seed", default="0", help="of the sample (default 0)")
    return exit_status(_main, parser.parse_args())


def _main(options: argparse.Namespace) -> int:
    data = json.loads(options.table.read_text()) if options.table.exists() else {"rows": {}, "versions": {}}
    known = data["rows"]
    wanted = {name: row for name, row in rows(options.only).items() if not (options.missing and name in known)}
    if options.sample is not None:
        wanted = sample({name: row for name, row in wanted.items() if name in known}, options.sample, options.seed)
    judge = functools.partial(OperatorJudge, options.timeout)
    found = judged(wanted, judge, options.out, {"versions": _packages()}, options.jobs, budget=options.budget)
    print(json.dumps(counts(found)))
    if options.update:
        every = {**known, **found}
        ordered = {name: every[name] for name in rows() if name in every}
        # Rows of an earlier run stay what they are: all versions are told.
        earlier = {name: data["versions"].get(name, "").split(", ") for name in _packages()}
        told = {name: ", ".join(sorted({*earlier[name], version} - {""})) for name, version in _packages().items()}
        options.table.write_text(table_text({"versions": told}, ordered))
        if options.table == TABLE:
            write_page(taken(ordered))
        return 0
    return shown(differences(known, taken(found)))


def sample(wanted: Mapping[str, Question], count: int, seed: str) -> dict[str, Question]:
    """``count`` of the rows, the same ones for a seed."""
    names = random.Random(seed).sample(list(wanted), min(count, len(wanted)))
    return {name: wanted[name] for name in names}


def _packages() -> dict[str, str]:
    return {name: versions()[name] for name in ("torch", "torch-mlir", "iree-base-compiler")}


if __name__ == "__main__":
    sys.exit(main())
