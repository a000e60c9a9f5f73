"""Each target against eager: is the answer right, how long did compilation take, how fast is it.

Comes in: a model, its inputs, target names, and a function that compiles for a target.  Goes out: a :class:`Report`.  A
target that is missing, fails or is wrong does not keep the others from being compared.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from mlirstack.compare.accuracy import Reference, call, compare_answers, moved, reference
from mlirstack.compare.inductor import compile_inductor
from mlirstack.compare.results import Report, TargetResult, judged, timed
from mlirstack.compare.timing import Effort, Timing, measure, torch_threads
from mlirstack.errors import MissingDependencyError, MlirstackError, TargetUnavailableError, UsageError

EAGER, INDUCTOR = "eager", "inductor"
CPU = "cpu"


@dataclass(frozen=True)
class Candidate:
    """A model compiled for a target: a callable with the model's own signature.

    ``route`` is the route that ran; ``compile_s`` the seconds of compilation, None to have the compile call timed;
    ``device`` is torch's name of the device that inputs must be on; ``tf32``: f32 is multiplied as TF32.
    """

    function: Callable[..., Any]
    route: str | None = None
    compile_s: float | None = None
    device: str = CPU
    tf32: bool = False


class CompileFunction(Protocol):
    """Compiles for one of mlirstack's targets.

    Raises :class:`TargetUnavailableError` or :class:`MissingDependencyError` where this machine cannot run the target,
    another :class:`MlirstackError` where compilation fails.  ``module`` and ``inputs`` are copies and may be kept.
    """

    def __call__(
        self, module: nn.Module, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any
    ) -> Candidate: ...


def compare(
    model: nn.Module,
    inputs: Sequence[Any],
    targets: Sequence[str],
    *,
    compile_function: CompileFunction,
    name: str | None = None,
    route: str = "auto",
    dynamic_shapes: Any = None,
    bench: bool = False,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    threads: int = 1,
    progress: Callable[[str], None] = lambda doing: None,
) -> Report:
    """Compare ``targets`` with eager on ``model(*inputs)``.

    Eager is always the first result: its error is that of its own rounding, on the CPU.  ``bench`` also times every target
    that ran, interleaved, with ``threads`` threads, next to eager on the same device.  Inductor compiles for the GPU where
    another target does.  ``progress`` is told in a word what is being done.  Model and inputs are copied.
    Raises :class:`UsageError` where eager cannot run the model or a target name is unknown.
    """
    with torch_threads(threads):
        progress("eager")
        expected = reference(model, inputs)
        results = {EAGER: judged(EAGER, compare_answers(expected.eager, expected))}
        candidates: dict[str, Candidate] = {}
        for target in dict.fromkeys(targets):
            if target == EAGER:
                continue
            progress(target)
            results[target], candidate = _try(
                target,
                model,
                inputs,
                expected,
                compile_function,
                route=route,
                dynamic_shapes=dynamic_shapes,
                home=_home(targets),
            )
            if candidate:
                candidates[target] = candidate
        if bench:
            progress("timing")
            for target, (timing, eager) in _time(model, candidates, inputs, effort).items():
                results[target] = timed(results[target], timing, eager)
    return Report(name or type(model).__name__, tuple(results.values()), expected.precision, expected.note, threads)


def _try(
    target: str,
    model: nn.Module,
    inputs: Sequence[Any],
    expected: Reference,
    compile_function: CompileFunction,
    *,
    route: str,
    dynamic_shapes: Any,
    home: str,
) -> tuple[TargetResult, Candidate | None]:
    """Compile for a target and run it once; the result, and the candidate if it ran.  Inductor runs on device ``home``."""
    module, given = copy.deepcopy((model, tuple(inputs)))
    started = time.perf_counter()
    try:
        if target == INDUCTOR:
            module, given = module.to(home), moved(given, home)
            candidate = _inductor(module, given, home, dynamic=dynamic_shapes is not None)
        else:
            candidate = compile_function(module, given, target=target, route=route, dynamic_shapes=dynamic_shapes)
    except UsageError:
        raise  # a wrong name or option concerns the whole call
    except (TargetUnavailableError, MissingDependencyError) as error:
        return TargetResult(target, "unavailable", error=str(error)), None
    except MlirstackError as error:
        return TargetResult(target, "error", error=str(error)), None
    compile_s = time.perf_counter() - started if candidate.compile_s is None else candidate.compile_s
    try:
        got = call(candidate.function, moved(inputs, candidate.device))
    except (MlirstackError, RuntimeError) as error:  # RuntimeError: what device runtimes raise
        reason = f"compiled, but running it failed: {error}"
        return TargetResult(target, "error", route=candidate.route, compile_s=compile_s, error=reason), None
    accuracy = compare_answers(got, expected, tf32=candidate.tf32)
    return judged(target, accuracy, route=candidate.route, compile_s=compile_s), candidate


def _home(targets: Sequence[str]) -> str:
    """The device of eager and Inductor: the GPU where a target is for one."""
    on_gpu = any("cuda" in target.partition(":")[0] for target in targets)
    return f"cuda:{torch.cuda.current_device()}" if on_gpu and torch.cuda.is_available() else CPU


def _inductor(module: nn.Module, inputs: tuple[Any, ...], device: str, *, dynamic: bool) -> Candidate:
    # The first call is part of compiling; what it writes into buffers must not count as a call of the model.
    state = copy.deepcopy(dict(module.named_buffers()))
    compiled = compile_inductor(module, inputs, dynamic=dynamic)
    with torch.no_grad():
        for buffer_name, buffer in module.named_buffers():
            buffer.copy_(state[buffer_name])
    return Candidate(compiled, compile_s=compiled.compile_s, device=device)


def _time(
    model: nn.Module, candidates: Mapping[str, Candidate], inputs: Sequence[Any], effort: Effort
) -> dict[str, tuple[Timing, Timing]]:
    """The timing of each candidate, and that of eager on the same device; eager's own entry is for the first device."""
    timings: dict[str, tuple[Timing, Timing]] = {}
    for device in dict.fromkeys([candidate.device for candidate in candidates.values()] or [CPU]):
        eager = copy.deepcopy(model).to(device)
        functions = {target: c.function for target, c in candidates.items() if c.device == device} | {EAGER: eager}
        bound = {target: _bound(function, inputs, device) for target, function in functions.items()}
        with torch.no_grad():
            found = measure(bound, effort, clock=time.perf_counter if device == CPU else _device_clock)
        timings = {target: (timing, found[EAGER]) for target, timing in found.items()} | timings
    return timings


def _bound(function: Callable[..., Any], inputs: Sequence[Any], device: str) -> Callable[[], object]:
    """A call with inputs of its own: a model may write them."""
    given = moved(copy.deepcopy(tuple(inputs)), device)
    return lambda: function(*given)


def _device_clock() -> float:
    """Seconds, when the GPU has done what it was told so far."""
    torch.cuda.synchronize()
    return time.perf_counter()
