"""``mlirstack build``: a model becomes a bundle, each target compiled in a worker process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from mlirstack.cli.common import KERNELS, console, key_values, progress, run_command, write_json
from mlirstack.targets.requirements import require
from mlirstack.worker import Job, Worker

if TYPE_CHECKING:
    from mlirstack.bundle.verify import Check
    from mlirstack.deploy.build import BuildReport

EXAMPLES = """
Examples:

  mlirstack build zoo:tiny_mlp --target iree-cpu:x86-64-v3 -o tiny_mlp.bundle

  mlirstack build model.py:Net --target cpu,iree-cpu:generic,iree-cpu:aarch64,cuda:sm_90a -o net.bundle

  mlirstack build model.pt2 --target iree-cpu -O 2 --tune 4 -o net.bundle

  mlirstack build model.py:Net --target iree-cuda:sm_90 --kernels iree -o plain.bundle

  mlirstack build model.py:Net --target iree-cuda:sm_90 --dynamic 'x:0=1..64' -o net.bundle
"""


def build(
    model: Annotated[str, typer.Argument(help="model reference: zoo:NAME, file.py:ATTR, pkg.mod:ATTR, .pt2, .mlir")],
    target: Annotated[str, typer.Option("--target", help="comma-separated: cpu,iree-cpu:x86-64-v3,cuda:sm_90a")],
    out: Annotated[Path, typer.Option("-o", "--out", help="directory of the bundle")],
    optimize: Annotated[int | None, typer.Option("-O", min=0, max=3, help="IREE's optimization level (default: 3)")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE for the target's compiler: data-tiling=false, prepack=false, image=ptx"),
    ] = None,
    kernels: Annotated[str | None, KERNELS] = None,
    tune: Annotated[int, typer.Option("--tune", min=0, help="try this many sets of settings, keep the fastest")] = 0,
    route: Annotated[str, typer.Option("--route", help="auto, tosa or linalg")] = "auto",
    dynamic: Annotated[list[str] | None, typer.Option("--dynamic", help="x:0=1..64: a dynamic dimension")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of the code that target cpu generates")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Build a bundle for one or several targets: code, parameters, golden answers, and a manifest with checksums.

    What runs on this machine is run at once, and compared with the golden answers: exit status 1 where it differs.
    """

    def body() -> int:
        require("torch", "building")
        from mlirstack.bundle.verify import verify
        from mlirstack.deploy.build import build_bundle
        from mlirstack.lowering import LowerOptions

        targets = [name.strip() for name in target.split(",") if name.strip()]
        given = key_values(settings or [], "NAME=VALUE")
        if kernels is not None:
            given["kernels"] = kernels
        if optimize is not None:
            given["opt-level"] = f"O{optimize}"
        job = Job(model, None, seed=seed, dtype=dtype, dynamic=key_values(dynamic or [], "NAME:DIM=LOW..HIGH"))
        reproducers = Path(tempfile.gettempdir()) / "mlirstack-reproducers" / out.name
        with Worker() as worker, progress(f"building {model}") as tell:

            def compile_part(spec: str, settings: Mapping[str, str], part: Path, *, shared: bool) -> None:
                options = LowerOptions(
                    spec, route, threads, reproducers=reproducers, crash_safe=True, settings=dict(settings)
                )
                whole = Job(
                    job.reference,
                    options,
                    part,
                    job.seed,
                    job.dtype,
                    job.dynamic,
                    deploy="shared" if shared else "code",
                )
                worker.run(whole, lambda event, stage, seconds: tell(event, f"{spec}: {stage}", seconds))

            report = build_bundle(
                out,
                targets,
                compile_part,
                settings=given,
                tune_sets=tune,
                threads=threads,
                progress=lambda doing: tell("before", doing, 0.0),
            )
            problem = (report.manifest.golden or {}).get("problem")
            checks = (
                () if problem else verify(out, threads=threads, progress=lambda doing: tell("before", doing, 0.0)).checks
            )
        compared = [check for check in checks if check.step == "golden"]
        if str(json_file) != "-":
            console.print(_table(report))
            console.print(f"bundle: {out}, {_size(report.size)}", highlight=False)
            lines = [f"golden answers of {check.subject}: {check.status}, {check.detail}" for check in compared]
            if problem:
                lines = [f"it holds no golden answers, and 'verify' will say so: {problem}"]
            for line in lines or ["golden answers: nothing of it runs here; 'mlirstack verify' compares them where it does"]:
                console.print(line, markup=False, highlight=False)
        write_json(json_file, _as_json(report, compared))
        return 1 if any(check.status == "failed" for check in compared) else 0

    run_command(body)


def _table(report: BuildReport) -> Table:
    table = Table(title=f"{report.manifest.model}, built in {report.seconds:.1f} s", title_justify="left")
    for column in ("target", "route"):
        table.add_column(column)
    for column in ("code", "compiled in"):
        table.add_column(column, justify="right")
    packed, tuned = (any(found) for found in zip(*((t.packed, t.tried) for t in report.targets), strict=True))
    if packed:
        table.add_column("packed ahead", justify="right")
    if tuned:
        table.add_column("settings tried, fastest first", overflow="fold")
    for target in report.targets:
        row = [target.spec, target.route, _size(target.size), f"{target.seconds:.1f} s"]
        lines = []
        for tried in target.tried:
            settings = " ".join(f"{key}={value}" for key, value in tried.settings.items()) or "defaults"
            lines.append(f"{settings}: {tried.median_s * 1e3:.3f} ms" if tried.median_s else f"{settings}: {tried.problem}")
        sizes = [_size(target.packed) if target.packed else ""] if packed else []
        table.add_row(*row, *sizes, *(["\n".join(lines)] if tuned else []))
    return table


def _as_json(report: BuildReport, compared: Sequence[Check]) -> dict[str, object]:
    return {
        "bundle": str(report.path),
        "model": report.manifest.model,
        "bytes": report.size,
        "seconds": report.seconds,
        "targets": [asdict(target) for target in report.targets],
        "golden": [asdict(check) for check in compared],
    }


def _size(count: int) -> str:
    """Bytes with a fitting unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"
