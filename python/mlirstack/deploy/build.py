"""``ms.build``: a model becomes one bundle for several targets, with golden answers, or nothing at all.

Every target is compiled into a bundle of its own first, by a function that the caller gives (in this process, or in a worker
that may crash); then these parts are merged into one that holds the parameters once.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mlirstack.bundle.files import check_place, stamp
from mlirstack.bundle.manifest import ArtifactEntry, Manifest, Origin, read_manifest
from mlirstack.bundle.store import BundleInfo, merge_bundles, write_bundle
from mlirstack.deploy.tune import Tried, tune
from mlirstack.errors import UsageError
from mlirstack.frontend.program import Program
from mlirstack.lowering import Lowering, LowerOptions, build_program
from mlirstack.targets.registry import create_target, settings_of
from mlirstack.versions import versions

if TYPE_CHECKING:
    from mlirstack.bundle.golden import Golden
    from mlirstack.frontend.export import Inputs
    from mlirstack.frontend.references import Model
    from mlirstack.pipeline.runner import Observer

PREPACK_FROM = 4 << 20  # bytes; as much is packed in 3 ms when a bundle is loaded, which no second file is worth
_UNLIKE_RUNTIME = ("eager", "inductor")  # targets of compare that leave nothing to deploy


@dataclass(frozen=True)
class BuiltTarget:
    """One target of a build: seconds of compilation, bytes of code and of parameters that are packed for it, and what tuning
    tried, fastest first."""

    spec: str
    seconds: float
    size: int
    packed: int
    route: str
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class BuildReport:
    """A finished build; ``size`` is that of all files of the bundle in bytes."""

    path: Path
    manifest: Manifest
    targets: tuple[BuiltTarget, ...]
    seconds: float

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.manifest.files.values())


class CompilePart(Protocol):
    """Compiles for one target and writes a bundle of it to ``part``, with parameters and golden answers where ``shared``."""

    def __call__(self, spec: str, settings: Mapping[str, str], part: Path, *, shared: bool) -> None: ...


def build(
    model: Model,
    inputs: Inputs = (),
    *,
    targets: Sequence[str] = ("iree-cpu",),
    path: str | Path,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    route: str = "auto",
    threads: int = 1,
    settings: Mapping[str, str] | None = None,
    tune_sets: int = 0,
    seed: int = 0,
) -> BuildReport:
    """Build a bundle of ``model`` (also a model reference), called with example ``inputs``, for ``targets``, at ``path``.

    ``settings`` are options of the targets' compilers (``{"opt-level": "O2"}``), given to those targets that know them;
    ``tune_sets`` tries so many sets of them and keeps the fastest.  ``seed`` draws large golden inputs.  An error leaves
    nothing at ``path``, or the bundle that was there.

    >>> build(model, (x,), targets=["iree-cpu", "cuda:sm_90a"], path="net.bundle"); y = load("net.bundle")(x)
    """
    from mlirstack.deploy.answers import golden_of
    from mlirstack.frontend.references import source_of

    source = source_of(model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, name=name)
    if isinstance(source, Program):
        program, golden = source, None
    else:
        program = source.program()
        golden = golden_of(source.eager, source.inputs, source.kwargs, program.signature, seed=seed)

    def compile_part(spec: str, settings: Mapping[str, str], part: Path, *, shared: bool) -> None:
        options = LowerOptions(spec, route, threads, settings=settings)
        write_part(program, options, part, golden=golden if shared else None, shared=shared)

    return build_bundle(Path(path), targets, compile_part, settings=settings or {}, tune_sets=tune_sets, threads=threads)


def write_part(
    program: Program,
    options: LowerOptions,
    part: Path,
    *,
    golden: Golden | None = None,
    origin: Origin | None = None,
    shared: bool = True,
    observers: Sequence[Observer] = (),
) -> tuple[Lowering, float]:
    """Compile ``program`` for one target and write a bundle of it, without parameters unless ``shared``.

    Returns the lowering and the seconds of compilation.
    """
    options = _with_packing(program, options)
    lowering, artifact, seconds = build_program(program, options, observers)
    settings = {"settings": dict(options.settings), "compile_seconds": round(seconds, 3)}
    artifact = replace(artifact, metadata={**artifact.metadata, **settings})
    info = BundleInfo(program.name, lowering.route, lowering.route_reason, versions())
    write_bundle(
        part,
        artifact,
        program.signature,
        program.parameters,
        info,
        rebuilt=() if shared else program.parameters.keys(),
        spec=options.target,
        target=lowering.target,
        golden=golden,
        origin=origin,
    )
    return lowering, seconds


def _with_packing(program: Program, options: LowerOptions) -> LowerOptions:
    """With setting ``prepack``, where the target has it and nobody else has decided: large parameters are packed ahead."""
    is_large = sum(tensor.nbytes for tensor in program.parameters.values()) >= PREPACK_FROM
    if not is_large or "prepack" in options.settings or "prepack" not in create_target(options.target).settings:
        return options
    return replace(options, settings={**options.settings, "prepack": "true"})


def build_bundle(
    path: Path,
    targets: Sequence[str],
    compile_part: CompilePart,
    *,
    settings: Mapping[str, str],
    tune_sets: int = 0,
    threads: int = 1,
    progress: Callable[[str], None] = lambda doing: None,
) -> BuildReport:
    """Compile every target with ``compile_part`` and write one bundle of all to ``path``."""
    started = time.perf_counter()
    given = _settings_of(targets, settings)
    check_place(path)
    built = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{path.name}-parts-", dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot write to {path.parent}: {error.strerror}") from error
    with scratch as folder:
        parts: list[Path] = []
        for number, spec in enumerate(targets):
            progress(spec)
            part = Path(folder) / f"{number}"
            compile_part(spec, given[spec], part, shared=number == 0)
            tried: tuple[Tried, ...] = ()
            if tune_sets:
                shared = parts[0] if parts else part
                part, tried = tune(spec, given[spec], part, shared, compile_part, tune_sets, threads, progress)
            parts.append(part)
            built.append(_built(read_manifest(part).artifacts[0], part, tried))
        progress("bundle")
        manifest = merge_bundles(parts, path)
    stamp(path, manifest)
    return BuildReport(path, manifest, tuple(built), time.perf_counter() - started)


def _settings_of(targets: Sequence[str], settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings that each target knows; :class:`UsageError` where a target is none, or nobody knows a setting."""
    if not targets:
        raise UsageError("no target given", hint="for example --target iree-cpu")
    if len(set(targets)) != len(targets):
        raise UsageError(f"a target is given twice: {', '.join(targets)}")
    for spec in targets:
        if spec in _UNLIKE_RUNTIME:
            raise UsageError(f"'{spec}' leaves nothing to deploy", hint="'mlirstack compare' and 'bench' run it")
    return settings_of(targets, settings)


def _built(entry: ArtifactEntry, part: Path, tried: tuple[Tried, ...]) -> BuiltTarget:
    size = sum((part / file).stat().st_size for file in entry.files.values())
    packed = (part / entry.packed).stat().st_size if entry.packed else 0
    return BuiltTarget(entry.spec, entry.metadata["compile_seconds"], size, packed, entry.route, tried)
