"""``mlirstack bench``: bundles timed on this machine, next to eager and torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mlirstack.cli.common import console, error_console, progress, run_command, write_json
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.targets.requirements import require

if TYPE_CHECKING:
    from torch import nn

    from mlirstack.bundle.manifest import Manifest
    from mlirstack.deploy.bench import BenchReport
    from mlirstack.deploy.gpu_time import Kernel

EXAMPLES = """
Examples:

  mlirstack bench net.bundle

  mlirstack bench net.bundle --model model.py:Net --device cuda --json bench.json --plot bench.svg

  mlirstack bench net.bundle --device iree-cpu --profile

  mlirstack bench net.bundle --modes default,max-autotune

  mlirstack bench bundles/ --seconds 0.5
"""


def bench(
    bundle: Annotated[Path, typer.Argument(help="directory of a bundle, or of several")],
    model: Annotated[
        str | None, typer.Option("--model", help="model reference for eager; default: the one that the bundle was built of")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, a target, or a target:arch; default: the best device here")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of the processor, of eager too")] = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="of timing for each contender")] = 1.0,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="time torch.compile as well")] = True,
    modes: Annotated[str, typer.Option("--modes", help="of torch.compile, comma-separated")] = "default",
    profile: Annotated[bool, typer.Option("--profile", help="also the time of each kernel (IREE's, or on a GPU)")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="write the distribution of latencies as .svg")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Time a bundle on its golden inputs: distribution of latencies, throughput, and the ratio to eager."""

    def body() -> int:
        require("torch", "timing")
        from mlirstack.bundle.manifest import MANIFEST, read_manifest
        from mlirstack.deploy.bench import bench as run
        from mlirstack.deploy.plot import latency_plot
        from mlirstack.deploy.profile import profile as run_profile

        bundles = [bundle] if (bundle / MANIFEST).is_file() else sorted(p.parent for p in bundle.glob(f"*/{MANIFEST}"))
        if not bundles:
            raise UsageError(
                f"{bundle} is no bundle and holds none", hint="mlirstack build MODEL --target T -o DIR writes one"
            )
        if plot is not None and len(bundles) > 1:
            raise UsageError("--plot draws one bundle", hint="name one")
        results = []
        for path in bundles:
            with progress(f"timing {path}") as tell:
                eager = _eager(read_manifest(path), model)
                report = run(
                    path,
                    model=eager,
                    device=device,
                    threads=threads,
                    seconds=seconds,
                    modes=modes.split(",") if compiled else (),
                    progress=partial(_tell, tell),
                )
                kernels = run_profile(path, device=device) if profile else ()
            if str(json_file) != "-":
                console.print(_table(report))
                _print_kernels(kernels)
            if plot is not None:
                _write(plot, latency_plot(report))
            results.append(_as_json(path, report, kernels))
        write_json(json_file, results[0] if (bundle / MANIFEST).is_file() else results)
        return 3 if any(entry.get("error") for result in results for entry in result["contenders"]) else 0

    run_command(body)


def _tell(tell: Callable[[str, str, float], None], doing: str) -> None:
    tell("before", doing, 0.0)


def _eager(manifest: Manifest, reference: str | None) -> nn.Module | None:
    """The model that the bundle was built of; None, and a word about it, where it cannot be had here."""
    from mlirstack.compare.keywords import positional
    from mlirstack.frontend.program import Program
    from mlirstack.frontend.references import load

    origin = manifest.origin
    name = reference or (origin.reference if origin else None)
    if name is None:
        error_console.print("eager is not timed: the bundle does not say what it was built of (--model says it)")
        return None
    try:
        source = load(name, seed=origin.seed if origin else 0, dtype=origin.dtype if origin else None)
    except MlirstackError as error:
        if reference:
            raise
        error_console.print(f"eager is not timed: {error.message} (--model names the model)", markup=False)
        return None
    if isinstance(source, Program):
        return None
    eager: Any = source.eager
    return positional(eager, source.kwargs)


def _table(report: BenchReport) -> Table:
    from mlirstack.compare.table import duration

    table = Table(title=f"{report.model} on {report.device}, {report.threads} thread(s)", title_justify="left")
    table.add_column("contender")
    on_gpu = report.device.startswith("cuda")
    columns = ["median", "p90", "p99", "calls/s", *(["kernels"] if on_gpu else []), "vs eager", "ready in", "rel. L2"]
    for column in columns:
        table.add_column(column, justify="right")
    for result in report.results:
        if result.latency is None:
            table.add_row(result.contender, f"[red]{escape(result.error or '')}[/]")
            continue
        latency, ratio = result.latency, report.ratio(result)
        cells = [duration(latency.quantile(part)) for part in (0.5, 0.9, 0.99)] + [
            f"{latency.calls_per_s:.{0 if latency.calls_per_s >= 100 else 1}f}"
        ]
        cells += [duration(result.device_s)] if on_gpu else []
        cells += ["-" if ratio is None else f"{ratio:.2f}x", duration(result.prepare_s)]
        table.add_row(result.contender, *cells, "-" if result.rel_l2 is None else f"{result.rel_l2:.1e}")
    return table


def _print_kernels(kernels: tuple[Kernel, ...]) -> None:
    if not kernels:
        return
    table = Table(title="kernels of a call", title_justify="left")
    table.add_column("kernel", overflow="fold")
    for column in ("runs", "time", "share"):
        table.add_column(column, justify="right")
    whole = sum(kernel.seconds for kernel in kernels) or 1.0
    for kernel in kernels[:20]:
        share = f"{100 * kernel.seconds / whole:.1f} %"
        table.add_row(kernel.name, f"{kernel.count:g}", f"{kernel.seconds * 1e6:.1f} µs", share)
    console.print(table)


def _as_json(path: Path, report: BenchReport, kernels: tuple[Kernel, ...]) -> dict[str, Any]:
    contenders = []
    for result in report.results:
        entry: dict[str, Any] = {"contender": result.contender, "error": result.error}
        if result.latency:
            latency = result.latency
            entry |= {
                "median_s": latency.median,
                "p90_s": latency.quantile(0.9),
                "p99_s": latency.quantile(0.99),
                "min_s": min(latency.samples),
                "samples": len(latency.samples),
                "calls_per_s": latency.calls_per_s,
                "device_s": result.device_s,
                "prepare_s": result.prepare_s,
                "ratio_vs_eager": report.ratio(result),
                "rel_l2": result.rel_l2,
            }
        contenders.append(entry)
    return {
        "bundle": str(path),
        "model": report.model,
        "device": report.device,
        "threads": report.threads,
        "contenders": contenders,
        "kernels": [asdict(kernel) for kernel in kernels],
    }


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
