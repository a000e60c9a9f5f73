"""``build --tune N``: compiles with the few sets of settings that matter, runs each on the golden inputs, keeps the fastest.

A set whose answers are not eager's is out, however fast it is.  What was tried, with its times, goes into the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlirstack.bundle.golden import Golden
from mlirstack.bundle.load import LoadedModel, load_entry
from mlirstack.bundle.manifest import read_manifest, write_manifest
from mlirstack.bundle.store import mapped_parameters, stored_golden
from mlirstack.bundle.verify import run_case, structure_inputs
from mlirstack.compare.timing import Effort, measure
from mlirstack.errors import BundleError, MlirstackError, UsageError
from mlirstack.targets.registry import create_target

if TYPE_CHECKING:
    from mlirstack.deploy.build import CompilePart

# In the order in which they pay most often; the first one, the defaults, is what was compiled already.
_SETS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "iree-cpu": (
        {},
        {"data-tiling": "false"},
        {"ukernels": "all"},
        {"opt-level": "O2"},
        {"ukernels": "none"},
        {"data-tiling": "false", "opt-level": "O2"},
    ),
    "iree-cuda": ({}, {"opt-level": "O2"}, {"opt-level": "O1"}),
}


@dataclass(frozen=True)
class Tried:
    """One set: its median seconds a call, or why it is out."""

    settings: Mapping[str, str]
    median_s: float | None = None
    problem: str | None = None


def tune(
    spec: str,
    given: Mapping[str, str],
    part: Path,
    shared: Path,
    compile_part: CompilePart,
    count: int,
    threads: int,
    progress: Callable[[str], None],
) -> tuple[Path, tuple[Tried, ...]]:
    """The fastest of ``count`` parts for ``spec``, and what was tried, fastest first; ``part`` is the one with ``given``.

    ``shared`` is the part that holds parameters and golden answers.  Raises :class:`UsageError` where the target has no sets
    of settings, or does not run on this machine.
    """
    target = create_target(spec, threads=threads)
    if target.name not in _SETS:
        return part, ()
    reason = target.available()
    if reason:
        raise UsageError(f"'{spec}' cannot be tuned on this machine: {reason}", hint="build it without --tune")
    golden = _golden(shared)
    parts, models = {0: part}, {}
    tried: dict[int, Tried] = {}
    sets = ({**given, **settings} for settings in _SETS[target.name])
    different = {tuple(sorted(merged.items())): merged for merged in sets}  # one of them may be what is given
    for number, merged in enumerate([*different.values()][:count]):
        progress(f"{spec}: set {number + 1}")
        try:
            if number:
                parts[number] = part.with_name(f"{part.name}-{number}")
                compile_part(spec, merged, parts[number], shared=False)
            models[number] = _right(parts[number], shared, golden, threads)
            tried[number] = Tried(merged)
        except MlirstackError as error:
            tried[number] = Tried(merged, problem=error.message)
    if not models:
        raise BundleError(f"no set of settings for '{spec}' gives eager's answers", hint=tried[0].problem)
    progress(f"{spec}: timing")
    calls = {str(number): _call(model, golden) for number, model in models.items()}
    for name, timing in measure(calls, Effort(seconds=0.5)).items():
        tried[int(name)] = replace(tried[int(name)], median_s=timing.median_s)
    best = min(models, key=lambda number: tried[number].median_s or 0.0)
    ordered = tuple(sorted(tried.values(), key=lambda t: t.median_s or float("inf")))
    return _keep(parts[best], part, ordered), ordered


def _golden(shared: Path) -> Golden:
    manifest = read_manifest(shared)
    try:
        return stored_golden(shared, manifest)
    except BundleError as error:
        raise UsageError(f"tuning needs golden inputs: {error.message}", hint="build it without --tune") from None


def _right(part: Path, shared: Path, golden: Golden, threads: int) -> LoadedModel:
    """The part, loaded; :class:`BundleError` where its answers are not eager's."""
    manifest, whole = read_manifest(part), read_manifest(shared)
    parameters = mapped_parameters(shared, whole)
    model = load_entry(part, manifest, manifest.artifacts[0], "to tune", threads=threads, parameters=parameters)
    wrong = [c.reason for c in run_case(model, golden, 0) if c.reason]
    if wrong:
        raise BundleError(wrong[0])
    return model


def _call(model: LoadedModel, golden: Golden) -> Callable[[], object]:
    from mlirstack.bundle.torch_arrays import tensor_of

    leaves = [tensor_of(leaf).to(model.device) if hasattr(leaf, "strides") else leaf for leaf in golden.inputs(0)]
    args, kwargs = structure_inputs(model.manifest, leaves)
    return lambda: model(*args, **kwargs)


def _keep(best: Path, part: Path, tried: tuple[Tried, ...]) -> Path:
    """The first part with the files of the best one, and the table of all in its manifest: it may hold what others share."""
    manifest, other = read_manifest(part), read_manifest(best)
    (entry,), (chosen,) = manifest.artifacts, other.artifacts
    files = {name: file for name, file in manifest.files.items() if name not in entry.paths}
    if best != part:
        for name in entry.paths:
            (part / name).unlink()
        for name in chosen.paths:
            (best / name).replace(part / name)
    files |= {name: other.files[name] for name in chosen.paths}
    metadata = {**chosen.metadata, "tuning": [asdict(one) for one in tried]}
    write_manifest(replace(manifest, artifacts=(replace(chosen, metadata=metadata),), files=files), part)
    return part
