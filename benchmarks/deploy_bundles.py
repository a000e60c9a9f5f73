"""Bundles built on one machine, verified and timed on another, next to eager and torch.compile there.

    python benchmarks/deploy_bundles.py build BUNDLES --targets iree-cuda:sm_90,cuda:sm_90a     # needs no GPU
    python benchmarks/deploy_bundles.py run BUNDLES --device cuda --json benchmarks/results/h200-bundles.json

Running needs torch, the runtimes of the targets, and neither torch-mlir nor a compiler of ours.  Most of it is torch.compile
at work; on a machine that is paid by the second, a first run with ``--cached --seconds 0.01`` does that while the machine is
busy with other things, and a second one with ``--cached`` takes a few seconds a bundle.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy_models import CASES, case
from result_file import write_results

from mlirstack.bundle.verify import verify
from mlirstack.compare.inductor import DEFAULT_MODE
from mlirstack.deploy.bench import Benched, BenchReport, bench
from mlirstack.errors import MlirstackError


def build_all(directory: Path, targets: list[str], names: list[str]) -> None:
    """Build the bundles that are not there yet."""
    from mlirstack.deploy.build import build

    for name in names:
        if (directory / name).is_dir():
            continue
        made = case(name)
        try:
            report = build(
                made.module,
                made.inputs,
                targets=targets,
                path=directory / name,
                dynamic_shapes=made.dynamic_shapes,
                name=name,
            )
        except MlirstackError as error:
            print(f"{name}: {error}", flush=True)
            continue
        code = ", ".join(f"{t.spec} {t.seconds:.1f} s, {t.size} bytes" for t in report.targets)
        print(f"{name}: {report.size} bytes in {report.seconds:.1f} s ({code})", flush=True)


def run_all(
    directory: Path, names: list[str], device: str | None, seconds: float, modes: Sequence[str], cached: bool
) -> Iterator[dict[str, Any]]:
    """Verify and time each bundle; a row of the table as soon as it is known."""
    for name in (n for n in names if (directory / n).is_dir()):
        started = time.perf_counter()
        report = verify(directory / name, device=device)
        row: dict[str, Any] = {"model": name, "verified": report.ok}
        row["checks"] = [f"{c.subject}: {c.detail}" for c in report.checks if c.step == "golden" or c.status == "failed"]
        try:
            model = case(name).module
            timed = bench(directory / name, model=model, device=device, seconds=seconds, modes=modes, cached=cached)
            row["device"] = timed.device
            row["contenders"] = {r.contender: _plain(timed, r) for r in timed.results}
        except MlirstackError as error:
            row["error"] = error.message
        row["seconds"] = round(time.perf_counter() - started, 1)
        print(json.dumps(row), flush=True)
        yield row


def _plain(report: BenchReport, result: Benched) -> dict[str, Any]:
    latency = result.latency
    if latency is None:
        return {"error": result.error}
    ratio = report.ratio(result)
    return {
        "median_ms": round(latency.median * 1e3, 4),
        "p90_ms": round(latency.quantile(0.9) * 1e3, 4),
        "p99_ms": round(latency.quantile(0.99) * 1e3, 4),
        "calls_per_s": round(latency.calls_per_s, 1),
        "device_ms": None if result.device_s is None else round(result.device_s * 1e3, 4),
        "prepare_s": None if result.prepare_s is None else round(result.prepare_s, 3),
        "rel_l2": result.rel_l2,
        "eager_over_this": None if ratio is None else round(ratio, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--targets", default="iree-cuda:sm_90,cuda:sm_90a")
    parser.add_argument("--only", default=",".join(CASES), help="names of cases, comma-separated")
    parser.add_argument("--device", help="run only what is for this device")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each contender")
    parser.add_argument("--modes", default=DEFAULT_MODE, help="of torch.compile, comma-separated; empty: leave it out")
    parser.add_argument("--cached", action="store_true", help="let torch.compile use its caches")
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if arguments.what == "build":
        build_all(arguments.directory, arguments.targets.split(","), names)
        return
    rows = []
    modes = [mode for mode in arguments.modes.split(",") if mode]
    for row in run_all(arguments.directory, names, arguments.device, arguments.seconds, modes, arguments.cached):
        rows.append(row)
        if arguments.json:  # at once: a run that is cut short keeps what it has
            write_results(arguments.json, rows)
    sys.exit(0 if all(row["verified"] and "error" not in row for row in rows) else 1)


if __name__ == "__main__":
    main()
