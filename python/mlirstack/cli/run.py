"""``mlirstack run``: calls a bundle on inputs from files, or on made-up ones."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from mlirstack.cli.common import console, error_console, key_values, run_command, write_json
from mlirstack.errors import UsageError

if TYPE_CHECKING:
    from mlirstack.bundle.golden import Golden
    from mlirstack.bundle.load import LoadedModel
    from mlirstack.deploy.run import Call

EXAMPLES = """
Examples:

  mlirstack run net.bundle

  mlirstack run net.bundle --inputs x.npz --outputs y.npz --device iree-cpu

  mlirstack run net.bundle --inputs samples/ --outputs answers/

  mlirstack run net.bundle --size batch=8 --repeat 100
"""


def run(
    bundle: Annotated[Path, typer.Argument(help="directory of the bundle")],
    inputs: Annotated[
        Path | None, typer.Option("--inputs", help=".npz, .npy, .pt, or a folder of them; default: made-up inputs")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option("--outputs", help="write the outputs as .npz; a folder where --inputs is one")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, a target, or a target:arch; default: the best here")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of the processor")] = 1,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="calls for each input; the quickest counts")] = 1,
    size: Annotated[list[str] | None, typer.Option("--size", help="batch=8: size of a dynamic dimension")] = None,
    seed: Annotated[int, typer.Option("--seed", help="seed of made-up inputs")] = 0,
    trust: Annotated[
        bool, typer.Option("--trust-parameters", help="map the parameters without reading them for their checksum")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write times and shapes as JSON ('-': stdout)")] = None,
) -> None:
    """Run a bundle on inputs; a folder of inputs is streamed, one file after the other."""

    def body() -> int:
        from mlirstack.bundle.load import load
        from mlirstack.deploy.inputs import generated_inputs
        from mlirstack.deploy.run import calls, input_files, memory, read_all, write_outputs

        if inputs is not None and not inputs.exists():
            raise UsageError(f"no file {inputs}")
        sizes = _sizes(size or [])
        if inputs is not None and sizes:
            raise UsageError("--size is for made-up inputs; those of a file have their own")
        model = load(bundle, device=device, threads=threads, trust_parameters=trust)
        told = str(json_file) != "-"
        if told:
            console.print(f"{model.entry.spec} on {model.device}: {model.choice}", markup=False, highlight=False)
        is_folder = inputs is not None and inputs.is_dir()
        files = input_files(inputs) if inputs is not None and is_folder else [inputs] if inputs else []
        if files:
            given = read_all(files, model)
        else:
            given = iter([("made-up", generated_inputs(model.manifest, _golden(model), seed=seed, sizes=sizes))])
        done: list[dict[str, object]] = []
        seconds: list[float] = []
        with _bar(len(files) if is_folder else 0) as advance:
            for call in calls(model, given, repeat=repeat):
                if outputs is not None:
                    write_outputs(call, outputs / f"{call.name}.npz" if is_folder else outputs)
                done.append({"inputs": call.name, "seconds": call.seconds, "outputs": _shapes(call)})
                seconds.append(call.seconds)
                advance()
                if told and not is_folder:
                    _print(call)
        used = memory(model)
        if told:
            typical = statistics.median(seconds)
            where = f", {used.device / 1e6:.1f} MB on the device" if used.device is not None else ""
            line = f"{_timed(len(done), repeat)} {typical * 1e3:.3f} ms; loaded in {model.load_seconds * 1e3:.1f} ms; "
            console.print(f"{line}peak memory {used.host / 1e6:.0f} MB{where}", markup=False, highlight=False)
        result = {
            "bundle": str(bundle),
            "target": model.entry.spec,
            "device": model.device,
            "choice": model.choice,
            "load_seconds": model.load_seconds,
            "peak_bytes": {"host": used.host, "device": used.device},
            "calls": done,
        }
        write_json(json_file, result)
        return 0

    run_command(body)


def _golden(model: LoadedModel) -> Golden | None:
    from mlirstack.bundle.store import stored_golden

    found = model.manifest.golden
    return stored_golden(model.path, model.manifest) if found and found["cases"] else None


def _timed(inputs: int, repeat: int) -> str:
    """What the time is that is told."""
    if repeat > 1:
        return f"{inputs} input(s), the quickest of {repeat} calls of each: median"
    return f"{inputs} calls, median" if inputs > 1 else "1 call, the first in this process:"


def _sizes(items: list[str]) -> dict[str, int]:
    found = key_values(items, "DIMENSION=SIZE")
    wrong = [value for value in found.values() if not value.isdigit()]
    if wrong:
        raise UsageError(f"'{wrong[0]}' is no size")
    return {name: int(value) for name, value in found.items()}


def _shapes(call: Call) -> dict[str, str]:
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in call.outputs.items()}


def _print(call: Call) -> None:
    for name, array in call.outputs.items():
        first = array.reshape(-1)[:4]
        values = (first.astype("float64") if array.dtype.kind in "fV" else first).tolist()
        shown = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
        more = ", …" if array.size > 4 else ""
        console.print(f"{name}: {array.dtype}{list(array.shape)}: {shown}{more}", markup=False, highlight=False)


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal, where there is something to stream; silent in a pipe."""
    if not total or not error_console.is_terminal:
        yield lambda: None
        return
    with Progress(console=error_console) as progress:
        task = progress.add_task("running", total=total)
        yield lambda: progress.advance(task)
