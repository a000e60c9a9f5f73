"""The artifact on disk: one directory with a manifest, checksums, the artifacts' files, the parameters, golden answers.

Nothing is handed to native code before its checksum is verified, because damaged code crashes the process.  Parameters that
the reader can get elsewhere, from a model that a seed rebuilds, may be left out.  Bundles of single targets are merged into
one that holds their parameters once.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mlirstack.bundle.files import entries, file_problems, written_aside
from mlirstack.bundle.golden import Golden, read_golden, write_golden
from mlirstack.bundle.manifest import (
    GOLDEN,
    MANIFEST,
    PACKED,
    PARAMETERS,
    ArtifactEntry,
    Manifest,
    Origin,
    read_manifest,
    write_manifest,
)
from mlirstack.bundle.parameters import MappedTensor, map_parameters
from mlirstack.errors import BundleError, UsageError
from mlirstack.frontend.parameters import save_parameters
from mlirstack.frontend.program import Signature
from mlirstack.targets.base import Artifact, Target
from mlirstack.targets.requirements import Requirements

if TYPE_CHECKING:
    import torch

__all__ = ["MANIFEST", "PARAMETERS", "Bundle", "BundleInfo", "merge_bundles", "open_bundle", "read_bundle", "write_bundle"]


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle says of itself beside its files: model name, route and why, versions of what built it."""

    model: str
    route: str
    route_reason: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Bundle:
    """The first artifact of a bundle, read back and verified, with everything that loading it takes."""

    info: BundleInfo
    artifact: Artifact
    signature: Signature
    parameters: dict[str, torch.Tensor]


def write_bundle(
    path: Path,
    artifact: Artifact,
    signature: Signature,
    parameters: Mapping[str, torch.Tensor],
    info: BundleInfo,
    *,
    rebuilt: Collection[str] = (),
    spec: str | None = None,
    target: Target | None = None,
    golden: Golden | None = None,
    origin: Origin | None = None,
) -> None:
    """Write a bundle of one target to ``path``, replacing an earlier bundle there; anything else there is refused.

    Parameters named in ``rebuilt`` are not stored: whoever reads the bundle must bring them.  ``spec`` is the target as it
    was asked for.  ``target`` is what has built the artifact: it says what a machine needs, and packs parameters ahead.
    """
    folder = file_name(spec or artifact.target)
    requirements = target.requirements(artifact) if target else Requirements()
    with written_aside(path) as work:
        (work / folder).mkdir()
        if target:
            artifact = target.pack(artifact, signature, parameters, work / folder / PACKED)
        for name, data in artifact.files.items():
            (work / folder / name).write_bytes(data)
        is_packed = (work / folder / PACKED).is_file()
        if not artifact.files:
            (work / folder).rmdir()
        save_parameters({name: t for name, t in parameters.items() if name not in rebuilt}, work / PARAMETERS)
        description = write_golden(golden, work / GOLDEN) if golden else None
        entry = ArtifactEntry(
            spec or artifact.target,
            artifact.target,
            {name: f"{folder}/{name}" for name in artifact.files},
            requirements,
            artifact.metadata,
            info.route,
            info.route_reason,
            f"{folder}/{PACKED}" if is_packed else None,
        )
        manifest = Manifest(
            info.model,
            info.versions,
            signature,
            tuple(parameters),
            tuple(name for name in parameters if name in rebuilt),
            (entry,),
            entries(work),
            description,
            origin,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        write_manifest(manifest, work)


def merge_bundles(parts: Sequence[Path], path: Path) -> Manifest:
    """Move bundles of the same model, each of one target, into one at ``path``; the first one brings what they share.

    The others need no parameters and no golden answers.  Raises :class:`UsageError` where two are for the same target,
    :class:`BundleError` where they are not of the same model.
    """
    manifests = [read_manifest(part) for part in parts]
    first = manifests[0]
    for other in manifests[1:]:
        if (other.signature, other.parameters) != (first.signature, first.parameters):
            raise BundleError(f"'{other.artifacts[0].spec}' and '{first.artifacts[0].spec}' are not of the same model")
    specs = [entry.spec for manifest in manifests for entry in manifest.artifacts]
    if len(set(specs)) != len(specs):
        raise UsageError(f"a target is given twice: {', '.join(specs)}")
    with written_aside(path) as work:
        for part, manifest in zip(parts, manifests, strict=True):
            for name in manifest.files:
                if manifest is first or name not in (PARAMETERS, GOLDEN):
                    (work / name).parent.mkdir(exist_ok=True)
                    shutil.move(part / name, work / name)
        files = {
            name: entry
            for manifest in manifests
            for name, entry in manifest.files.items()
            if manifest is first or name not in (PARAMETERS, GOLDEN)
        }
        merged = replace(first, artifacts=tuple(e for m in manifests for e in m.artifacts), files=files)
        write_manifest(merged, work)
    return merged


def open_bundle(path: Path, *, trust_parameters: bool = False) -> Manifest:
    """The manifest of a bundle all of whose files are what it says; :class:`BundleError` names the first that is not.

    ``trust_parameters`` skips the contents of the parameters (their size is checked): they are data, which is not executed,
    and reading them all takes longer than mapping them.
    """
    manifest = read_manifest(path)
    unread = manifest.data - {GOLDEN} if trust_parameters else frozenset()
    for problem in file_problems(path, manifest, unread=unread):
        raise problem.error(path)
    return manifest


def artifact_of(path: Path, entry: ArtifactEntry) -> Artifact:
    """The artifact of a bundle that has been opened; what was packed ahead is mapped."""
    files = {name: (path / file).read_bytes() for name, file in entry.files.items()}
    packed = map_parameters(path / entry.packed) if entry.packed else {}
    return Artifact(entry.target, files, entry.metadata, {name: mapped.contents for name, mapped in packed.items()})


def stored_golden(path: Path, manifest: Manifest) -> Golden:
    """The golden answers of a bundle that has been opened; :class:`BundleError` with the reason where it holds none."""
    hint = "build it from a torch model"
    if manifest.golden is None:
        raise BundleError(f"bundle {path} holds no golden answers", hint=hint)
    golden = read_golden(path / GOLDEN, manifest.golden)
    if not golden.cases:
        raise BundleError(f"bundle {path} holds no golden answers: {golden.problem}", hint=hint)
    return golden


def mapped_parameters(path: Path, manifest: Manifest) -> dict[str, MappedTensor]:
    """The stored parameters of a bundle that has been opened; :class:`BundleError` where one is missing."""
    stored = map_parameters(path / PARAMETERS) if PARAMETERS in manifest.files else {}
    wanted = [name for name in manifest.parameters if name not in manifest.rebuilt]
    absent = [name for name in wanted if name not in stored]
    if absent:
        raise BundleError(f"bundle {path}: {PARAMETERS} lacks {', '.join(absent[:3])}", hint="build the bundle again")
    return {name: stored[name] for name in wanted}


def read_bundle(path: Path, rebuilt: Mapping[str, torch.Tensor] | None = None) -> Bundle:
    """Read and verify the bundle at ``path``; :class:`BundleError` names the file that is missing or damaged.

    ``rebuilt`` are the parameters of the model, for a bundle that was written without them.
    """
    manifest = open_bundle(path)
    absent = [name for name in manifest.rebuilt if name not in (rebuilt or {})]
    if absent:
        raise BundleError(
            f"bundle {path} stores no parameters ({', '.join(absent[:3])}, …): they come from the model it was built of",
            hint=f"read it together with that model: mlirstack compare zoo:{manifest.model} --artifacts DIR",
        )
    stored = {name: mapped.tensor() for name, mapped in mapped_parameters(path, manifest).items()}
    given = {name: (rebuilt or {})[name].detach() for name in manifest.rebuilt}
    parameters = {name: given[name] if name in given else stored[name] for name in manifest.parameters}
    entry = manifest.artifacts[0]
    info = BundleInfo(manifest.model, entry.route, entry.route_reason, dict(manifest.versions))
    return Bundle(info, artifact_of(path, entry), manifest.signature, parameters)


def file_name(text: str) -> str:
    """``iree-cpu:x86-64-v3`` as the name of a folder."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)
