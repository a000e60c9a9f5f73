"""torch-mlir's end-to-end programs on target cpu, held against the committed table of what became of each.

CHECKOUT is a work tree of llvm/torch-mlir; none of its code is here.  Each program is judged by the suite's own comparison
in a process that may die, each result is a line of JSON at once, and a run that was ended goes on where it was.

    python benchmarks/e2e_suite.py CHECKOUT                        # both routes, compared with the table
    python benchmarks/e2e_suite.py CHECKOUT --route auto --only Conv --out build/e2e-conv
    python benchmarks/e2e_suite.py CHECKOUT --update               # write the table

Exit status 1 where a program does better, worse or otherwise than the table says, or one is missing on either side.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite_runs import Judge, Row, exit_status, json_lines, judged, options_parser, shown

from mlirstack.errors import UsageError
from mlirstack.versions import versions

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "e2e.json"
PROGRAMS = Path("projects/pt1/python/torch_mlir_e2e_test")
ROUTES = ("auto", "tosa")
RIGHT = ("pass", "chance", "finer")
BY_CHANCE = {"pass", "chance"}  # which of the two, chance decides

_PROGRAMS_PER_PROCESS = 100


@dataclass(frozen=True)
class Settings:
    """How programs are run: ``timeout`` in seconds for a step (eager, compile, run), ``gigabytes`` of data for a process."""

    checkout: Path
    target: str = "cpu"
    jobs: int = 1
    timeout: float = 300.0
    gigabytes: float = 8.0


def judge_of(settings: Settings, route: str) -> Judge:
    """A judge of programs that take ``route``; asked None, it tells the names of all."""
    arguments = [str(settings.checkout), settings.target, route, str(settings.gigabytes)]
    command = [sys.executable, str(HERE / "e2e_worker.py"), *arguments]
    return Judge(command, threads=1, timeout=settings.timeout, lifetime=_PROGRAMS_PER_PROCESS, beyond=("eager", "export"))


def digest(checkout: Path) -> str:
    """Of the suite's programs, which tells one version of the suite from another."""
    files = sorted((checkout / PROGRAMS / "test_suite").glob("*.py"))
    if not files:
        raise UsageError(f"{checkout} is no work tree of torch-mlir: {PROGRAMS / 'test_suite'} holds no programs")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


# ----------------------------------------------------------------------------------------------------------------- table


def row_of_table(row: Row) -> Row:
    """What the table keeps of a row: what is the same on every machine."""
    return {key: row[key] for key in ("verdict", "reason", "route", "why") if row.get(key)}


def differences(expected: Mapping[str, Row], found: Mapping[str, Row], *, complete: bool) -> list[str]:
    """How a run differs from the table, a line each; ``complete``: the run was of the whole suite."""
    lines = []
    for name, row in found.items():
        wanted = expected.get(name)
        verdict = row["verdict"]
        if wanted is None:
            lines.append(f"{name}: not in the table ({verdict})")
        elif verdict != wanted["verdict"] and {verdict, wanted["verdict"]} != BY_CHANCE:
            kind = "unexpected pass" if verdict in RIGHT else "unexpected failure"
            lines.append(f"{name}: {kind}: {verdict}, the table says {wanted['verdict']}. {row.get('reason', '')}".strip())
        elif row.get("route") != wanted.get("route"):
            lines.append(
                f"{name}: took route {row.get('route')}, the table says {wanted.get('route')}. {row.get('why') or ''}"
            )
    if complete:
        lines += [f"{name}: in the table, not in the suite" for name in expected if name not in found]
    return lines


def table_text(meta: Mapping[str, Any], tables: Mapping[str, Mapping[str, Row]]) -> str:
    """JSON, one line a program and route."""
    parts = [json_lines(meta, 1)]
    for route, rows in tables.items():
        counts = Counter(row["verdict"] for row in rows.values())
        lines = json_lines({name: row_of_table(rows[name]) for name in sorted(rows)}, 3)
        parts.append(
            f' "{route}": {{\n  "counts": {json.dumps(dict(counts.most_common()))},\n  "programs": {{\n{lines}\n  }}\n }}'
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def summary(route: str, rows: Mapping[str, Row]) -> str:
    """Counts by verdict, of the programs that eager and torch.export can do, and by the route taken."""
    counts = Counter(row["verdict"] for row in rows.values())
    able = len(rows) - counts["cannot"]
    taken = Counter(row["route"] for row in rows.values() if row["verdict"] in RIGHT)
    routes = ", ".join(f"{count} by {name}" for name, count in taken.most_common())
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"route {route}: {counts['pass']} of {able} that eager and torch.export can do pass ({routes}); {verdicts}"


# --------------------------------------------------------------------------------------------------------------- command


def main() -> int:
    """Run, print counts and what does not pass, compare with the table or write it."""
    parser = options_parser(__doc__, timeout=300.0, out=Path("build/e2e"), table=TABLE)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="a work tree of llvm/torch-mlir")
    parser.add_argument("--route", action="append", choices=ROUTES, help="default: both, one after the other")
    parser.add_argument("--target", default="cpu", help="cpu; the table is of cpu only")
    parser.add_argument("--memory-gb", type=float, default=8.0, help="data of one process (default 8)")
    parser.add_argument("--json", type=Path, help="write counts and differences there")
    return exit_status(_main, parser.parse_args())


def _main(options: argparse.Namespace) -> int:
    settings = Settings(options.checkout, options.target, options.jobs, options.timeout, options.memory_gb)
    suite = digest(settings.checkout)
    known = json.loads(options.table.read_text()) if options.table.exists() else {}
    if known and known["suite"] != suite and not options.update:
        print(f"note: the table is of another version of the suite ({known['suite']}, this is {suite})")
    naming = judge_of(settings, "auto")
    programs = {name: name for name in naming.ask(None) if re.search(options.only, name)}
    naming.close()
    found: dict[str, dict[str, Row]] = {}
    lines: dict[str, list[str]] = {}
    for route in options.route or ROUTES:
        header = {"suite": suite, "target": settings.target, "route": route}
        judge = functools.partial(judge_of, settings, route)
        found[route] = judged(programs, judge, options.out / f"{route}.jsonl", header, settings.jobs, route, options.budget)
        print(summary(route, found[route]))
        expected = known.get(route, {}).get("programs", {})
        if options.update:
            found[route] = {**(expected if options.only else {}), **found[route]}
        else:
            lines[route] = differences(expected, found[route], complete=not options.only and options.budget is None)
            shown(lines[route])
    if options.update:
        others = {route: known[route]["programs"] for route in ROUTES if route in known and route not in found}
        packages = {name: versions()[name] for name in ("torch", "torch-mlir")}
        meta = {"suite": suite, "target": settings.target, "versions": packages}
        options.table.write_text(table_text(meta, {**found, **others}))
    if options.json:
        counts = {route: Counter(row["verdict"] for row in rows.values()) for route, rows in found.items()}
        options.json.write_text(json.dumps({"suite": suite, "counts": counts, "differences": lines}, indent=1) + "\n")
    return 1 if any(lines.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
