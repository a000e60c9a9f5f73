"""KernelBench's problems on target cpu at small sizes, held against the committed table of what became of each.

CHECKOUT is a work tree of ScalingIntelligence/KernelBench; none of its code is here.  Each problem is compared with eager by
the suite's own rule in a process that may die, each result is a line of JSON at once, and a run that was ended goes on where
it was.

    python benchmarks/kernelbench_suite.py CHECKOUT                     # right? compared with the table
    python benchmarks/kernelbench_suite.py CHECKOUT --bench --levels 1  # and quick? eager and ours in turns
    python benchmarks/kernelbench_suite.py CHECKOUT --bench --update    # write the table

Exit status 1 where a problem does better, worse or otherwise than the table says; with --bench also where one takes more
than 5 times as long as eager, or half of them more than 1.5 times.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite_runs import Judge, Row, differences, exit_status, json_lines, judged, options_parser, shown

from mlirstack.errors import UsageError
from mlirstack.versions import versions

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "kernelbench-cpu.json"
SLOWEST, MEDIAN = 5.0, 1.5  # times eager's time

_PROBLEMS_PER_PROCESS = 60


@dataclass(frozen=True)
class Settings:
    """How problems are run: ``timeout`` in seconds for a step (eager, compile, run), ``bench``: time them as well."""

    bench: bool = False
    threads: int = 1
    timeout: float = 600.0


def judge_of(settings: Settings) -> Judge:
    """A judge of problems."""
    command = [sys.executable, str(HERE / "kernelbench_worker.py"), str(settings.threads)]
    return Judge(command, threads=settings.threads, timeout=settings.timeout, lifetime=_PROBLEMS_PER_PROCESS)


def problems(checkout: Path, levels: Sequence[str], only: str) -> dict[str, Path]:
    """Name (``level1/19_ReLU``) → file, in the suite's order."""
    found: dict[str, Path] = {}
    for level in levels:
        files = [
            f for f in (checkout / "KernelBench" / f"level{level}").glob("*_*.py") if f.name.partition("_")[0].isdigit()
        ]
        if not files:
            raise UsageError(f"{checkout} is no work tree of KernelBench: no problems of level {level}")
        for file in sorted(files, key=lambda f: int(f.name.partition("_")[0])):
            found[f"level{level}/{file.stem}"] = file
    return {name: file for name, file in found.items() if re.search(only, name)}


# ----------------------------------------------------------------------------------------------------------------- table


def slowness(found: Mapping[str, Row]) -> list[str]:
    """What is slower than it may be, a line each."""
    ratios = {name: row["ratio"] for name, row in found.items() if "ratio" in row}
    lines = [f"{name}: {ratio:.1f} times eager's time" for name, ratio in ratios.items() if ratio > SLOWEST]
    if ratios and statistics.median(ratios.values()) > MEDIAN:
        lines.append(f"the median is {statistics.median(ratios.values()):.2f} times eager's time")
    return lines


def summary(found: Mapping[str, Row]) -> Row:
    """Counts by verdict, and how the times compare with eager's."""
    ratios = {name: row["ratio"] for name, row in found.items() if "ratio" in row}
    counts = dict(Counter(row["verdict"] for row in found.values()).most_common())
    if not ratios:
        return {"counts": counts}
    slow = [name for name, ratio in ratios.items() if ratio > SLOWEST]
    median, slowest = statistics.median(ratios.values()), max(ratios.values())
    return {"counts": counts, "median_ratio_to_eager": round(median, 2), "slowest": slowest, "slower_than_5x": slow}


def table_text(meta: Mapping[str, Any], found: Mapping[str, Row]) -> str:
    """JSON, one line a problem."""
    kept = {name: {k: v for k, v in row.items() if k not in ("eager_s", "cpu_s")} for name, row in found.items()}
    return f'{{\n{json_lines({**meta, **summary(found)}, 1)},\n "problems": {{\n{json_lines(kept)}\n }}\n}}\n'


# --------------------------------------------------------------------------------------------------------------- command


def main() -> int:
    """Run, print counts and what differs, compare with the table or write it."""
    parser = options_parser(__doc__, timeout=600.0, out=Path("build/kernelbench.jsonl"), table=TABLE)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="a work tree of ScalingIntelligence/KernelBench")
    parser.add_argument("--levels", default="1,2,3", help="default 1,2,3")
    parser.add_argument("--bench", action="store_true", help="time eager and ours in turns")
    parser.add_argument("--threads", type=int, default=1, help="of eager and of ours (default 1)")
    return exit_status(_main, parser.parse_args())


def _main(options: argparse.Namespace) -> int:
    settings = Settings(options.bench, options.threads, options.timeout)
    wanted = problems(options.checkout, options.levels.split(","), options.only)
    known = json.loads(options.table.read_text())["problems"] if options.table.exists() else {}
    questions = {name: {"path": str(path), "bench": settings.bench} for name, path in wanted.items()}
    header = {"bench": settings.bench, "threads": settings.threads}
    judge = functools.partial(judge_of, settings)
    found = judged(questions, judge, options.out, header, options.jobs, budget=options.budget)
    print(json.dumps(summary(found)))
    lines = slowness(found)
    if options.update:
        meta = {"suite": "KernelBench", "sizes": "small", "target": "cpu", "threads": settings.threads}
        packages = {name: versions()[name] for name in ("torch", "torch-mlir")}
        options.table.write_text(table_text({**meta, "versions": packages}, {**known, **found}))
    else:
        lines += differences(known, found)
    return shown(lines)


if __name__ == "__main__":
    sys.exit(main())
