"""The Python interface: lower a model stage by stage, compile it, and look at every stage afterwards.

``lower`` runs a target's stage table, ``compile`` goes on to a callable, both in this process; the command line does the
same in a worker process (:mod:`mlirstack.worker`), so that a native crash costs a stage and not the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlirstack.errors import TargetUnavailableError, UsageError
from mlirstack.frontend.program import Program
from mlirstack.lowering import Lowering, LowerOptions, build_program, lower_program, program_of
from mlirstack.targets.registry import create_target

if TYPE_CHECKING:
    import torch

    from mlirstack.compare.bisect.results import Bisection
    from mlirstack.compare.results import Report
    from mlirstack.frontend.export import Inputs
    from mlirstack.frontend.references import Model
    from mlirstack.targets.callable import CompiledFunction


def lower(
    model: Model,
    inputs: Inputs = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    target: str = "cpu",
    route: str = "auto",
    threads: int = 1,
    to: str | None = None,
    dump: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Lowering:
    """Lower ``model``, called with example ``inputs``, for ``target``; ``settings`` are options of its compiler.

    Here and below a model is a module, a ``torch.export`` program, or a model reference (``"model.onnx"``, ``"zoo:NAME"``),
    which brings inputs of its own; a tensor given as ``inputs`` is one input.

    >>> low = lower(model, (x,), target="cpu")
    >>> print(low["linalg"].text); print(low.diff("linalg", "fused"))
    """
    program = program_of(model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, name=name)
    path = Path(dump) if dump is not None else None
    return lower_program(program, LowerOptions(target, route, threads, to, dump=path, settings=settings or {}))


def compile(
    model: Model,
    inputs: Inputs = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    target: str = "cpu",
    route: str = "auto",
    threads: int = 1,
    dump: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
    allow_random: bool = False,
) -> CompiledFunction:
    """Compile ``model`` for ``target``: a callable with the model's own signature.

    The callable has ``lowering`` (all stages), ``route``, ``fallback_reason`` and ``source(stage)``.  ``settings`` are
    options of the target's compiler (``{"kernels": "iree"}`` of iree-cuda).  A model that draws random numbers is refused,
    since no compiled number can be eager's; with ``allow_random`` the program draws its own, of the same distribution, anew
    in each call, from a seed that ``torch.manual_seed`` sets at compile time.  Raises
    :class:`~mlirstack.errors.TargetUnavailableError` where the target cannot run on this machine.
    """
    from mlirstack.targets.callable import CompiledFunction

    program = program_of(model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, name=name, allow_random=allow_random)
    path = Path(dump) if dump is not None else None
    lowering, artifact, _ = build_program(program, LowerOptions(target, route, threads, dump=path, settings=settings or {}))
    executable = lowering.target.load(artifact, program.signature, program.parameters)
    return CompiledFunction(executable, program.signature, program.parameters, lowering=lowering)


def bisect(
    model: Model,
    inputs: Inputs = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    target: str = "cpu",
    route: str = "auto",
    threads: int = 1,
    overrides: Mapping[str, str | Path] | None = None,
    ops: bool = False,
    dump: str | Path | None = None,
    reproducers: str | Path | None = None,
) -> Bisection:
    """Execute ``model`` as it stands after every stage and compare with eager in higher precision.

    The result names the first wrong stage and the pass in it; with ``ops`` also the first op whose value differs.
    ``overrides``: stage name → file that replaces what the stage leaves.  ``dump`` keeps the lowering; with ``reproducers``
    a wrong stage leaves a directory there that 'mlirstack reproduce' and 'mlirstack reduce' read.  The model is compiled in
    this process; its stages are executed in another, which may crash.
    """
    from mlirstack.compare.bisect.model import Options, bisect_model
    from mlirstack.frontend.references import source_of

    files = {stage: Path(file) for stage, file in (overrides or {}).items()}
    lower_options = LowerOptions(target, route, threads, overrides=files, dump=Path(dump) if dump is not None else None)
    options = Options(lower_options, ops=ops, reproducers=Path(reproducers) if reproducers is not None else None)
    source = source_of(model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, name=name)
    return bisect_model(source, options)


def compare(
    model: Model,
    inputs: Inputs = (),
    *,
    targets: Sequence[str] = ("cpu",),
    route: str = "auto",
    dynamic_shapes: Any = None,
    bench: bool = False,
    threads: int = 1,
    name: str | None = None,
) -> Report:
    """Compare ``targets`` (also ``"inductor"``) with eager on ``model(*inputs)``, compiling in this process.

    ``report.ok`` says whether all are right, ``report["cpu"]`` is one target's result; ``bench`` also times them.
    """
    from mlirstack.compare.compare import Candidate
    from mlirstack.compare.compare import compare as run_comparison
    from mlirstack.compare.keywords import positional
    from mlirstack.frontend.references import source_of

    source = source_of(model, inputs, dynamic_shapes=dynamic_shapes, name=name)
    if isinstance(source, Program):
        raise UsageError(f"{source.name} has no eager answer to compare with", hint="compare needs a torch or an ONNX model")

    def compile_function(
        module: torch.nn.Module, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any
    ) -> Candidate:
        reason = create_target(target, threads=threads).available()
        if reason:
            raise TargetUnavailableError(f"target '{target}': {reason}")
        function = compile(module, inputs, dynamic_shapes=dynamic_shapes, target=target, route=route, threads=threads)
        return Candidate(function, route=function.route, device=function.executable.device, tf32=function.executable.tf32)

    return run_comparison(
        positional(source.eager, source.kwargs),
        source.inputs,
        targets,
        compile_function=compile_function,
        name=source.name,
        route=route,
        dynamic_shapes=source.dynamic_shapes,
        bench=bench,
        threads=threads,
    )
