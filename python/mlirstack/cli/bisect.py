"""``mlirstack bisect``: the first stage, pass and op of a lowering whose answer leaves eager's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlirstack.cli.common import console, key_values, progress, run_command, write_json
from mlirstack.errors import UsageError
from mlirstack.worker import Job, Worker

if TYPE_CHECKING:
    from mlirstack.compare.bisect.results import Bisection
    from mlirstack.lowering import LowerOptions

EXAMPLES = """
Examples:

  mlirstack bisect zoo:tiny_mlp_small --target cpu

  mlirstack bisect model.py:Net --target cpu --override fused=edited.mlir --op

  mlirstack bisect zoo:sdpa --target cpu --plot growth.svg --json growth.json

Build what needs a GPU on one machine, execute it on another (without torch-mlir):

  mlirstack bisect zoo:sdpa --target cuda:sm_90a --artifacts stages --build-only

  mlirstack bisect zoo:sdpa --target cuda:sm_90a --artifacts stages

Exit status: 0 all stages are right, 1 one is wrong, 3 the lowering itself fails.
"""


def bisect(
    model: Annotated[str, typer.Argument(help="model reference; an .mlir file is compared with itself before any stage")],
    target: Annotated[str, typer.Option("--target", help="cpu, iree-cpu, cuda:sm_90a")] = "cpu",
    route: Annotated[str, typer.Option("--route", help="auto, tosa or linalg")] = "auto",
    override: Annotated[list[str] | None, typer.Option("--override", help="STAGE=FILE: replace a stage's result")] = None,
    op: Annotated[bool, typer.Option("--op", help="also find the first op whose value differs")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="execute nothing behind the first wrong stage")] = False,
    dump: Annotated[Path | None, typer.Option("--dump", help="keep the dump of the lowering there")] = None,
    reproducers: Annotated[
        Path | None, typer.Option("--reproducers", help="directory for the reproducer of a wrong stage")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="write the growth of the error to this .svg file")] = None,
    dynamic: Annotated[list[str] | None, typer.Option("--dynamic", help="x:0=1..64: a dynamic dimension")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of the generated code")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    artifacts: Annotated[
        Path | None, typer.Option("--artifacts", help="directory of stages to execute instead of lowering")
    ] = None,
    build_only: Annotated[bool, typer.Option("--build-only", help="write what needs a device there")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Execute the module as it stands after every stage, compare with eager, name the first wrong stage and its pass."""

    def body() -> int:
        from mlirstack.compare.bisect.table import as_json, print_bisection, write_plot

        if build_only and artifacts is None:
            raise UsageError("--build-only needs a place for what is built", hint="add --artifacts DIR")
        found = stored() if artifacts and not build_only else lowered()
        if str(json_file) != "-":
            print_bisection(found, console)
        if plot:
            write_plot(found, plot)
        write_json(json_file, as_json(found))
        return found.exit_status

    def stored() -> Bisection:
        from mlirstack.compare.bisect.stored import bisect_stored

        assert artifacts is not None
        with progress(f"bisecting {model}") as tell:
            return bisect_stored(artifacts, target, lambda doing: tell("before", doing, 0.0), stop=stop)

    def lowered() -> Bisection:
        from mlirstack.compare.bisect.processes import execution_process

        overrides = {stage: Path(file) for stage, file in key_values(override or [], "STAGE=FILE").items()}
        kept = reproducers or Path(tempfile.gettempdir()) / "mlirstack-reproducers" / f"bisect-{Path(model).name}-{target}"
        job = Job(model, None, seed=seed, dtype=dtype, dynamic=key_values(dynamic or [], "NAME:DIM=LOW..HIGH"))
        with Worker() as worker, execution_process() as process, progress(f"bisecting {model}") as tell:
            worker.start()  # both load PyTorch and MLIR while this process does
            process.start()
            from mlirstack.compare.bisect.model import Options, bisect_model
            from mlirstack.frontend.references import load
            from mlirstack.lowering import LowerOptions  # needs MLIR, as every machine that compiles has it
            from mlirstack.pipeline.dump import check_directory, prepare_directory

            lower = LowerOptions(target, route, threads, overrides=overrides, dump=check_directory(dump) if dump else None)
            source = load(model, seed=seed, dtype=dtype, dynamic=job.dynamic)

            def compile_(options: LowerOptions, bundle: Path) -> Callable[[], object]:
                options = replace(options, crash_safe=True, reproducers=kept)
                worker.begin(replace(job, options=options, bundle=bundle))
                return lambda: worker.end(tell)

            built = prepare_directory(artifacts) if artifacts else None
            options = Options(lower, ops=op, seed=seed, stop=stop, reproducers=kept, artifacts=built)
            return bisect_model(source, options, compile_, lambda doing: tell("before", doing, 0.0), process)

    run_command(body)
