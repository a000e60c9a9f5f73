"""IREE modules with our own kernels inside, next to plain IREE, our own target, eager and torch.compile.

    python benchmarks/iree_kernels.py build BUNDLES                                    # needs no GPU
    python benchmarks/iree_kernels.py run BUNDLES --json benchmarks/results/h200-iree-kernels.json
    python benchmarks/iree_kernels.py table benchmarks/results/h200-iree-kernels.json
    python benchmarks/iree_kernels.py build BUNDLES --on cpu                           # and run, on one thread

Every case has two bundles: one for ``iree-cuda`` with our kernels and for ``cuda`` (or ``iree-cpu`` and ``cpu``), one for
``iree-cuda`` (``iree-cpu``) without.  Both are verified (golden answers of eager) before they are timed.  Kernel time is the
time of a call in which the GPU runs at least one kernel: target ``cuda`` launches kernels that wait inside while the one
before still runs, and a sum over kernels would count that twice.  End to end is the median of calls that are waited for, and
all there is on a processor.

On a machine that is paid by the second, a first run of each case with ``--cached --seconds 0.01``, all at a time, leaves
what torch.compile and the driver compile in their caches; the second, alone and with ``--cached``, takes seconds a case.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from iree_kernels_cases import CASES, CUDA, case
from result_file import write_results

from mlirstack.bundle.verify import verify
from mlirstack.compare.inductor import DEFAULT_MODE
from mlirstack.deploy.bench import EAGER, INDUCTOR, Benched, bench
from mlirstack.errors import MlirstackError

OWN, PLAIN, TARGET = "ours in IREE", "plain IREE", "our target"
CONTENDERS = (PLAIN, OWN, TARGET, EAGER, INDUCTOR)


def build_all(directory: Path, names: Sequence[str], on: str, arch: str, settings: Mapping[str, str]) -> None:
    """Build the bundles that are not there yet."""
    from mlirstack.deploy.build import build

    for name in names:
        made = case(name, on)
        in_iree, alone = (f"iree-cuda:{arch}", f"cuda:{arch}a") if on == CUDA else ("iree-cpu", "cpu")
        parts = {"own": [in_iree, alone], "plain": [in_iree]}
        for part, targets in parts.items():
            path = directory / f"{name}-{part}"
            if path.is_dir():
                continue
            kernels = {"kernels": "own" if part == "own" else "iree", **settings}
            try:
                report = build(made.module, made.inputs, targets=targets, path=path, name=name, settings=kernels)
            except MlirstackError as error:
                print(f"{path.name}: {error}", flush=True)
                continue
            code = ", ".join(f"{t.spec} {t.seconds:.1f} s, {t.size} bytes" for t in report.targets)
            print(f"{path.name}: {report.size} bytes ({code})", flush=True)


def run_all(
    directory: Path, names: Sequence[str], on: str, seconds: float, modes: Sequence[str], cached: bool
) -> Iterator[dict[str, Any]]:
    """Verify and time each case: a row as soon as it is known."""
    for name in (n for n in names if (directory / f"{n}-own").is_dir()):
        started = time.perf_counter()
        row: dict[str, Any] = {"case": name, "verified": {}, "contenders": {}}
        for part, model in (("own", case(name, on).module), ("plain", None)):
            path = directory / f"{name}-{part}"
            if not path.is_dir():
                continue
            try:
                row["verified"][part] = verify(path).ok
                report = bench(path, model=model, seconds=seconds, modes=modes, cached=cached)
            except MlirstackError as error:
                row["contenders"][OWN if part == "own" else PLAIN] = {"error": error.message}
                continue
            for result in report.results:
                row["contenders"][_contender(result.contender, part)] = _plain(result)
        row["seconds"] = round(time.perf_counter() - started, 1)
        yield row


def _contender(spec: str, part: str) -> str:
    if spec.startswith("iree-"):
        return OWN if part == "own" else PLAIN
    return spec if spec in (EAGER, INDUCTOR) else TARGET


def _plain(result: Benched) -> dict[str, Any]:
    if result.latency is None:
        return {"error": result.error}
    return {
        "kernel_ms": None if result.device_s is None else round(result.device_s * 1e3, 5),
        "median_ms": round(result.latency.median * 1e3, 5),
        "p90_ms": round(result.latency.quantile(0.9) * 1e3, 5),
        "calls_per_s": round(result.latency.calls_per_s, 1),
        "prepare_s": None if result.prepare_s is None else round(result.prepare_s, 3),
        "rel_l2": result.rel_l2,
    }


# ------------------------------------------------------------------------------------------------------------------- table


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: kernel time (end to end) in microseconds of each contender, and the two ratios that matter: of kernel times
    where there are any."""
    lines = [
        "| case | " + " | ".join(CONTENDERS) + " | over plain IREE | of our target |",
        "| --- | " + " | ".join("---" for _ in CONTENDERS) + " | --- | --- |",
    ]
    gains, shares = [], []
    for row in rows:
        found = row["contenders"]
        gain, share = _ratio(found, PLAIN, OWN), _ratio(found, TARGET, OWN)
        gains += [gain] if gain else []
        shares += [share] if share else []
        cells = [_cell(found.get(name)) for name in CONTENDERS]
        lines.append(f"| {row['case']} | " + " | ".join([*cells, _times(gain), _times(share)]) + " |")
    empty = " | ".join("" for _ in CONTENDERS)
    lines.append(f"| geometric mean | {empty} | {_times(_mean(gains))} | {_times(_mean(shares))} |")
    return "\n".join(lines)


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None or "error" in result:
        return "-" if result is None else "failed"
    kernels = "" if result["kernel_ms"] is None else f"{result['kernel_ms'] * 1e3:.1f} "
    return f"{kernels}({result['median_ms'] * 1e3:.0f})"


def _ratio(found: Mapping[str, Any], slow: str, fast: str) -> float | None:
    """Kernel time of ``slow`` over that of ``fast``; of whole calls where there is none."""
    for kind in ("kernel_ms", "median_ms"):
        times = [found.get(name, {}).get(kind) for name in (slow, fast)]
        if all(times):
            return float(times[0] / times[1])
    return None


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _mean(ratios: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run", "table"])
    parser.add_argument("path", type=Path, help="the directory of the bundles; for 'table' the results")
    parser.add_argument("--on", choices=[*CASES], default=CUDA, help="what is built for, and timed")
    parser.add_argument("--only", help="names of cases, comma-separated (default: all)")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="NAME=VALUE", help="of the targets")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing for each contender")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--cached", action="store_true", help="let torch.compile use its caches")
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else [*CASES[arguments.on]]
    if arguments.what == "build":
        build_all(
            arguments.path,
            names,
            arguments.on,
            arguments.arch,
            dict(setting.split("=", 1) for setting in arguments.settings),
        )
        return
    if arguments.what == "table":
        print(table(json.loads(arguments.path.read_text())["results"]))
        return
    rows = []
    modes = () if arguments.no_compile else (DEFAULT_MODE,)
    for row in run_all(arguments.path, names, arguments.on, arguments.seconds, modes, arguments.cached):
        rows.append(row)
        print(json.dumps(row), flush=True)
        if arguments.json:  # at once: a run that is cut short keeps what it has
            write_results(arguments.json, rows)
    print(table(rows))
    failed = [
        row for row in rows if not all(row["verified"].values()) or any("error" in c for c in row["contenders"].values())
    ]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
