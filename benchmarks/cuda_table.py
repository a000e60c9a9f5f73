"""Results of `cuda_speed.py run` as Markdown, and the files that collect several runs.

A run says when it was, on which machine and with which versions (``result_file.py``).  A collection is a list of runs in
the order of their dates, in which every case stands once: in the run that measured it last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

OTHERS = ("eager", "compile", "compile_max")  # contenders of ours; the last two are torch.compile's modes
_FLOPS_PER_BYTE = 200  # from here on a case is bounded by arithmetic rather than by memory

Result = dict[str, Any]  # of a case: seconds of each contender, errors; or "case" and "error"
Run = dict[str, Any]  # date, command, versions, machine, results


def read_runs(file: Path) -> list[Run]:
    """The runs of a collection, or the one run of a file of `cuda_speed.py run`."""
    data = json.loads(file.read_text())
    return list(data["runs"]) if "runs" in data else [data]


def merged(runs: Iterable[Run]) -> list[Run]:
    """One collection: of a case's results the latest stays, one that was measured rather than one that failed."""
    ordered = sorted(runs, key=lambda run: str(run["date"]))
    last = {
        result["case"]: number
        for measured in (False, True)
        for number, run in enumerate(ordered)
        for result in run["results"]
        if ("error" not in result) == measured
    }
    kept = [
        {**run, "results": [result for result in run["results"] if last.get(result["case"]) == number]}
        for number, run in enumerate(ordered)
    ]
    return [run for run in kept if run["results"]]


def write_runs(file: Path, runs: Sequence[Run]) -> None:
    """Write a collection."""
    file.write_text(json.dumps({"runs": list(runs)}, indent=1) + "\n")


def line(result: Result) -> str:
    """A result on one line, as a run shows it while it goes on."""
    if "error" in result:
        return f"{result['case']}: ERROR {result['error']}"
    ours = result["ours_s"]
    is_arithmetic = result["flops"] > _FLOPS_PER_BYTE * result["bytes"]
    rate = f"{result['flops'] / ours / 1e12:.0f} TFLOP/s" if is_arithmetic else f"{result['bytes'] / ours / 1e12:.2f} TB/s"
    ratios = "  ".join(f"{name} {result[f'{name}_s'] / ours:.2f}x" for name in OTHERS if f"{name}_s" in result)
    wrong = "" if result["ok"] else "  WRONG"
    errors = f"error {result['error_ours']:.1e} (eager {result['error_eager']:.1e})"
    return f"{result['case']}: {ours * 1e6:.1f} us  {rate}  {ratios}  {errors}{wrong}  {'+'.join(result['kernels'])}"


def markdown(runs: Sequence[Run]) -> str:
    """One table per group, with geometric means of the ratios, and when and where all of it was measured."""
    text = [
        f"{run['date']}, {run['machine']}, torch {run['versions']['torch']}: {len(run['results'])} cases" for run in runs
    ]
    groups: dict[str, list[Result]] = {}
    for run in runs:
        for result in run["results"]:
            groups.setdefault(result.get("group", "failed"), []).append(result)
    for group, results in groups.items():
        text += ["", f"### {group}", ""]
        text += ["| case | µs | against eager | against torch.compile | against max-autotune | error (eager's) |"]
        text += ["| --- | --- | --- | --- | --- | --- |", *map(_row, results)]
        text += _means([result for result in results if "error" not in result])
    return "\n".join(text)


def _row(result: Result) -> str:
    if "error" in result:
        return f"| {result['case']} | - | - | - | - | {result['error'][:80]} |"
    ratios = [f"{result[f'{n}_s'] / result['ours_s']:.2f}" if f"{n}_s" in result else "-" for n in OTHERS]
    error = f"{result['error_ours']:.1e} ({result['error_eager']:.1e})" + ("" if result["ok"] else " wrong")
    return f"| {result['case']} | {result['ours_s'] * 1e6:.1f} | {' | '.join(ratios)} | {error} |"


def _means(results: Sequence[Result]) -> list[str]:
    ratios = {name: [r[f"{name}_s"] / r["ours_s"] for r in results if f"{name}_s" in r] for name in OTHERS}
    modes = OTHERS[1:]
    ratios["torch.compile's better mode"] = [
        min(r[f"{mode}_s"] for mode in modes) / r["ours_s"] for r in results if all(f"{mode}_s" in r for mode in modes)
    ]
    lines = []
    for name, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            lines += ["", f"Geometric mean against {name}: {mean:.2f}, least {min(values):.2f} ({len(values)} cases)"]
    return lines
