"""From a model to its bisection: eager's answer, the lowering with its dump, then every stage of it.

How the model is compiled is the caller's: in this process, or in a worker that may crash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mlirstack.bundle.store import BundleInfo, write_bundle
from mlirstack.compare.accuracy import reference
from mlirstack.compare.bisect.bisect import Request, bisect_dump, module_subject
from mlirstack.compare.bisect.executor import Executor, Tell
from mlirstack.compare.bisect.processes import execution_process
from mlirstack.compare.bisect.results import Bisection
from mlirstack.compare.bisect.subject import Subject
from mlirstack.compare.keywords import positional
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.frontend.program import Program
from mlirstack.frontend.references import ModelSource
from mlirstack.lowering import LowerOptions, build_program
from mlirstack.pipeline.dump import TRACE
from mlirstack.supervised import Supervised
from mlirstack.versions import versions

Compile = Callable[[LowerOptions, Path], Callable[[], object]]
"""Begin to lower with these options and to write a bundle to the path; what it returns waits for that, and raises what the
lowering raises."""


@dataclass(frozen=True)
class Options:
    """``lower``: target, route, overrides, and the dump (None: a temporary one).  ``ops``: look for the op.  ``seed``: of
    the inputs of programs that are MLIR files.  ``stop``: execute nothing behind the first wrong stage.  ``reproducers``:
    where the reproducer of a wrong stage goes.  ``artifacts``: where what needs a device that is not here is built.
    ``origin``: the command that finds the same again, for reproducers of stages that no file can be executed of."""

    lower: LowerOptions
    ops: bool = False
    seed: int = 0
    stop: bool = False
    reproducers: Path | None = None
    artifacts: Path | None = None
    origin: str = ""


def bisect_model(
    source: ModelSource | Program,
    options: Options,
    compile_: Compile | None = None,
    tell: Tell = lambda doing: None,
    process: Supervised | None = None,
) -> Bisection:
    """Bisect a model, compiling with ``compile_`` (in this process where there is none) and executing in ``process`` (a new
    one where there is none)."""
    if process is None:
        with execution_process() as own:
            return bisect_model(source, options, compile_, tell, own)
    process.start()  # it loads what it needs while eager runs and the model is lowered
    # What fails here leaves the lowering to itself, which may still write its dump.
    with tempfile.TemporaryDirectory(prefix="mlirstack-bisect-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        dump, built = options.lower.dump or scratch / "dump", scratch / "bundle"
        lower = replace(options.lower, dump=dump)
        tell("eager")
        if isinstance(source, Program):
            program = source
            subject = module_subject(source, options.lower.target, scratch, options.seed, process)
            compiled = compile_(lower, built) if compile_ else None
        else:
            expected = reference(positional(source.eager, source.kwargs), source.inputs)
            compiled = compile_(lower, built) if compile_ else None  # exports as well, while this process does
            program = source.program()
            subject = Subject(program.signature, program.parameters, source.inputs, expected, source.kwargs)
        bundle: Path | None = built
        failure = None
        tell("lowering")
        try:
            compiled() if compiled else _compile_here(program, lower, built)
        except UsageError:
            raise
        except MlirstackError as error:
            if not (dump / TRACE).is_file():
                raise
            bundle, failure = None, str(error)
        request = Request(
            program,
            lower.target,
            dump,
            bundle,
            ops=options.ops,
            overridden=frozenset(lower.overrides),
            failure=failure,
            threads=lower.threads,
            stop=options.stop,
            artifacts=options.artifacts,
            origin=options.origin,
        )
        with Executor(subject, scratch, lower.target, process) as executor:
            return bisect_dump(request, subject, executor, options.reproducers, tell)


def _compile_here(program: Program, options: LowerOptions, bundle: Path) -> None:
    lowering, artifact, _ = build_program(program, options)
    info = BundleInfo(program.name, lowering.route, lowering.route_reason, versions())
    write_bundle(bundle, artifact, program.signature, program.parameters, info)
