"""``bench``: how long a bundle takes on this machine, next to eager and torch.compile on the same inputs, call by call.

Contenders take turns, so that what disturbs the machine disturbs all of them.  Latency is that of one call that is waited
for; throughput that of calls made back to back; device time, on a GPU, that of the kernels alone.
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mlirstack.bundle.golden import Golden
from mlirstack.bundle.load import load_entry
from mlirstack.bundle.manifest import Manifest
from mlirstack.bundle.select import candidates, matches, reasons
from mlirstack.bundle.store import open_bundle, stored_golden
from mlirstack.bundle.torch_arrays import tensor_of
from mlirstack.bundle.verify import run_case, structure_inputs
from mlirstack.compare.inductor import DEFAULT_MODE, check_modes, compile_inductor
from mlirstack.compare.timing import torch_threads
from mlirstack.deploy.gpu_time import gpu_time
from mlirstack.errors import BundleError, MlirstackError, UsageError

EAGER, INDUCTOR = "eager", "torch.compile"
WARM_UP_CALLS = 3
MOST_SAMPLES = 2000


@dataclass(frozen=True)
class Latency:
    """Seconds a call, from ``samples`` calls; ``calls_per_s`` when made back to back."""

    samples: tuple[float, ...]
    calls_per_s: float

    def quantile(self, part: float) -> float:
        """The latency that ``part`` of the calls stay below: 0.5 is the median."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    @property
    def median(self) -> float:
        """Half of the calls take longer."""
        return statistics.median(self.samples)


@dataclass(frozen=True)
class Benched:
    """One contender: its latency, or why there is none.

    ``device_s`` are the seconds of a call in which the GPU runs kernels.  ``rel_l2`` is the error of the golden answers
    (bundles only); ``prepare_s`` the seconds until it could be called: loading a bundle, compiling.
    """

    contender: str
    latency: Latency | None = None
    device_s: float | None = None
    prepare_s: float | None = None
    rel_l2: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class BenchReport:
    """All contenders on one bundle; ``device`` is torch's name of where they ran, ``threads`` those of the processor."""

    model: str
    device: str
    threads: int
    results: tuple[Benched, ...]

    def ratio(self, result: Benched) -> float | None:
        """Eager's median latency over that of ``result``: above 1 is faster than eager."""
        eager = next((r.latency for r in self.results if r.contender == EAGER), None)
        return eager.median / result.latency.median if eager and result.latency else None


@dataclass
class _Contender:
    call: Callable[[], object]
    prepare_s: float | None = None
    rel_l2: float | None = None


def bench(
    path: Path,
    *,
    model: nn.Module | None = None,
    device: str | None = None,
    threads: int = 1,
    seconds: float = 1.0,
    modes: Sequence[str] = (DEFAULT_MODE,),
    cached: bool = False,
    progress: Callable[[str], None] = lambda doing: None,
) -> BenchReport:
    """Time every artifact of the bundle at ``path`` that runs here and that ``device`` names, on the golden inputs.

    ``model`` is the same model for eager and for torch.compile in each of ``modes``; without it the bundle is timed alone.
    ``cached``: torch.compile may take from its caches what it compiled and tuned before, and its ``prepare_s`` is left out.
    About ``seconds`` are spent on each contender.  Where artifacts run on a GPU, only those do.  Raises :class:`UsageError`
    where nothing runs here, :class:`BundleError` for a bundle without golden inputs.
    """
    check_modes(modes)
    manifest = open_bundle(path)
    golden = stored_golden(path, manifest)
    found = [c for c in candidates(manifest) if device is None or matches(c.entry, device)]
    runnable = [c.entry for c in found if not c.lacks]
    if not runnable:
        why = reasons(found) if found else f"it holds nothing for '{device}'"
        raise UsageError(f"nothing of bundle {path} runs here: {why}")
    kind = runnable[0].requirements.device
    contenders: dict[str, _Contender] = {}
    failed: list[Benched] = []
    place = "cpu"
    with torch_threads(threads):
        for entry in (e for e in runnable if e.requirements.device == kind):
            progress(entry.spec)
            try:
                loaded = load_entry(path, manifest, entry, "to time", threads=threads)
                comparisons = run_case(loaded, golden, 0)
                wrong = [f"{c.name}: {c.reason}" for c in comparisons if c.reason]
                if wrong:
                    raise BundleError(wrong[0])
            except MlirstackError as error:
                failed.append(Benched(entry.spec, error=error.message))
                continue
            place = loaded.device
            rel_l2 = max((c.rel_l2 for c in comparisons), default=0.0)
            contenders[entry.spec] = _Contender(
                golden_call(loaded.function, manifest, golden, place), loaded.load_seconds, rel_l2
            )
        if model is not None:
            progress(EAGER)
            eager = copy.deepcopy(model).to(place)
            contenders[EAGER] = _Contender(golden_call(eager, manifest, golden, place))
            more, problems = _compiled(model, modes, manifest, golden, place, cached, progress)
            contenders |= more
            failed += problems
        progress("timing")
        timed = _measure(contenders, place, seconds)
    results = [replace(r, prepare_s=contenders[r.contender].prepare_s, rel_l2=contenders[r.contender].rel_l2) for r in timed]
    return BenchReport(manifest.model, place, threads, (*results, *failed))


def golden_call(function: Callable[..., Any], manifest: Manifest, golden: Golden, place: str) -> Callable[[], object]:
    args, kwargs = _golden_inputs(manifest, golden, place)

    def call() -> object:
        return function(*args, **kwargs)

    return call


def compiled_name(mode: str) -> str:
    """The contender that is torch.compile in ``mode``."""
    return INDUCTOR if mode == DEFAULT_MODE else f"{INDUCTOR} {mode}"


def _golden_inputs(manifest: Manifest, golden: Golden, place: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    leaves = [tensor_of(leaf).to(place) if hasattr(leaf, "strides") else leaf for leaf in golden.inputs(0)]
    return structure_inputs(manifest, leaves)


def _compiled(
    model: nn.Module,
    modes: Sequence[str],
    manifest: Manifest,
    golden: Golden,
    place: str,
    cached: bool,
    progress: Callable[[str], None],
) -> tuple[dict[str, _Contender], list[Benched]]:
    """torch.compile in each mode: those that can be called, and those that failed."""
    contenders: dict[str, _Contender] = {}
    failed = []
    for mode in modes:
        name = compiled_name(mode)
        progress(name)
        args, kwargs = _golden_inputs(manifest, golden, place)
        if kwargs:
            failed.append(Benched(name, error="the model takes keyword arguments, which are not timed"))
            continue
        try:
            function = compile_inductor(
                copy.deepcopy(model).to(place),
                args,
                dynamic=bool(manifest.signature.dynamic),
                mode=mode,
                cached=cached,
                keep=bool(contenders),
            )
        except MlirstackError as error:
            failed.append(Benched(name, error=error.message))
            continue
        call = partial(function, *args)
        contenders[name] = _Contender(call, None if cached else function.compile_s)
    return contenders, failed


# --------------------------------------------------------------------------------------------------------------- measuring


def _measure(contenders: Mapping[str, _Contender], place: str, seconds: float) -> list[Benched]:
    wait: Callable[[], None] = torch.cuda.synchronize if place.startswith("cuda") else lambda: None
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.no_grad():
            for contender in contenders.values():
                for _ in range(WARM_UP_CALLS):
                    contender.call()
                wait()
            deadline = time.perf_counter() + seconds * len(contenders)
            while time.perf_counter() < deadline and min(map(len, samples.values()), default=MOST_SAMPLES) < MOST_SAMPLES:
                for name, contender in contenders.items():
                    started = time.perf_counter()
                    contender.call()
                    wait()
                    samples[name].append(time.perf_counter() - started)
            return [
                Benched(
                    name,
                    Latency(tuple(samples[name]), _throughput(contender.call, wait, samples[name])),
                    gpu_time(contender.call).busy if place.startswith("cuda") else None,
                )
                for name, contender in contenders.items()
            ]
    finally:
        if collecting:
            gc.enable()


def _throughput(call: Callable[[], object], wait: Callable[[], None], samples: Sequence[float]) -> float:
    """Calls a second, made back to back for about a fifth of a second."""
    count = max(3, min(1000, int(0.2 / statistics.median(samples))))
    started = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return count / (time.perf_counter() - started)
