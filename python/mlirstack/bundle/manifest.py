"""``manifest.json``: everything that decides whether a bundle may run, as frozen data, written and read back.

The manifest names every other file with its size and SHA-256, and carries a checksum of itself: a flipped bit in a shape or
in a tolerance is found like one in the code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mlirstack.errors import BundleError
from mlirstack.frontend.program import ArgumentSpec, Mutation, OutputSpec, ResultSpec, Signature
from mlirstack.targets.requirements import Requirements

FORMAT_VERSION = 3
_READ_VERSIONS = (2, 3)  # 3 came with parameters that are packed ahead
MANIFEST = "manifest.json"
PARAMETERS = "parameters.safetensors"
GOLDEN = "golden.npz"
PACKED = "packed.safetensors"  # in the folder of a target
CHUNK = 32 << 20


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and SHA-256 of a file; of one larger than ``CHUNK`` bytes also those of its ``chunks`` of that size.

    Chunks are checked by several threads at once, which one checksum of everything could not be.
    """

    size: int
    sha256: str
    chunks: tuple[str, ...] = ()

    def parts(self) -> list[tuple[int, int, str]]:
        """What is to be checked: first byte, size, SHA-256."""
        if not self.chunks:
            return [(0, self.size, self.sha256)]
        firsts = range(0, self.size, CHUNK)
        return [(first, min(CHUNK, self.size - first), digest) for first, digest in zip(firsts, self.chunks, strict=True)]


@dataclass(frozen=True)
class ArtifactEntry:
    """One target of a bundle.

    ``spec`` is what was asked for ("iree-cpu:x86-64-v3"), ``target`` the name of the target.  ``files`` maps the artifact's
    names of its files to paths in the bundle; ``packed`` is the path of what was made of the parameters for it, None where
    that is left to loading.  ``metadata`` is the target's own: compiler, flags, architecture.
    """

    spec: str
    target: str
    files: Mapping[str, str]
    requirements: Requirements
    metadata: dict[str, Any] = field(default_factory=dict)
    route: str = ""
    route_reason: str = ""
    packed: str | None = None

    @property
    def paths(self) -> list[str]:
        """All of its own files in the bundle."""
        return [*self.files.values(), *([self.packed] if self.packed else [])]


@dataclass(frozen=True)
class Origin:
    """The model reference that a bundle was built from, with what completes it: ``bench`` runs eager beside the bundle."""

    reference: str
    seed: int = 0
    dtype: str | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest.  ``parameters`` are the names in order; those in ``rebuilt`` are not stored.

    ``golden`` describes the golden answers (:mod:`mlirstack.bundle.golden`), None where there are none.
    """

    model: str
    versions: Mapping[str, str]
    signature: Signature
    parameters: tuple[str, ...]
    rebuilt: tuple[str, ...]
    artifacts: tuple[ArtifactEntry, ...]
    files: Mapping[str, FileEntry]
    golden: dict[str, Any] | None = None
    origin: Origin | None = None
    built: str = ""

    @property
    def data(self) -> frozenset[str]:
        """The files that hold numbers, and nothing that is executed."""
        return frozenset((PARAMETERS, GOLDEN, *(entry.packed for entry in self.artifacts if entry.packed)))

    def __getitem__(self, spec: str) -> ArtifactEntry:
        """An artifact by what was asked for; KeyError if there is none."""
        for entry in self.artifacts:
            if entry.spec == spec:
                return entry
        raise KeyError(spec)


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Write ``manifest.json``; may raise OSError."""
    data = {"format_version": FORMAT_VERSION, **dataclasses.asdict(manifest)}
    (directory / MANIFEST).write_text(json.dumps({**data, "sha256": _digest(data)}, indent=1) + "\n")


def read_manifest(path: Path) -> Manifest:
    """The manifest of the bundle at ``path``; :class:`BundleError` says what is wrong with it."""
    try:
        data: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        version = data["format_version"]
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{path} is not a bundle: no {MANIFEST}", hint="mlirstack build MODEL --target T -o DIR writes one"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"bundle {path}: {MANIFEST} cannot be read: {error}", hint="copy the bundle again") from error
    if version not in _READ_VERSIONS:
        raise BundleError(
            f"bundle {path} has format {version}; this mlirstack reads format {FORMAT_VERSION} and {_READ_VERSIONS[0]}",
            hint="build it again with this mlirstack, or use the mlirstack that built it",
        )
    found = data.pop("sha256", None)
    if found != _digest(data):
        raise BundleError(f"bundle {path}: {MANIFEST} is damaged (checksum differs)", hint="copy or build the bundle again")
    try:
        return _manifest(data)
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"bundle {path}: {MANIFEST} cannot be read: {error!r}") from error


def _manifest(data: dict[str, Any]) -> Manifest:
    for name in data["files"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"file {name!r} lies outside of the bundle")
    artifacts = tuple(_artifact(entry) for entry in data["artifacts"])
    for name in (path for entry in artifacts for path in entry.paths):
        if name not in data["files"]:
            raise ValueError(f"file {name!r} has no checksum")
    origin = data["origin"]
    return Manifest(
        model=data["model"],
        versions=data["versions"],
        signature=_signature(data["signature"]),
        parameters=tuple(data["parameters"]),
        rebuilt=tuple(data["rebuilt"]),
        artifacts=artifacts,
        files={name: _file(entry) for name, entry in data["files"].items()},
        golden=data["golden"],
        origin=Origin(**origin) if origin else None,
        built=data["built"],
    )


def _file(data: dict[str, Any]) -> FileEntry:
    entry = FileEntry(data["size"], data["sha256"], tuple(data.get("chunks", ())))
    entry.parts()  # ValueError where there are not as many as the size says
    return entry


def _artifact(data: dict[str, Any]) -> ArtifactEntry:
    wanted = data["requirements"]
    pairs = {key: tuple(wanted[key]) if wanted[key] else None for key in ("cuda", "bytecode")}
    requirements = Requirements(**{**wanted, **pairs, "features": tuple(wanted["features"])})
    return ArtifactEntry(**{**data, "requirements": requirements})


def _signature(data: dict[str, Any]) -> Signature:
    def shaped(entry: dict[str, Any]) -> dict[str, Any]:
        lists = {key: tuple(entry[key]) for key in ("shape", "order") if entry.get(key) is not None}
        return {"shape": None, **entry, **lists}

    return Signature(
        arguments=tuple(ArgumentSpec(**shaped(a)) for a in data["arguments"]),
        results=tuple(ResultSpec(**shaped(r)) for r in data["results"]),
        outputs=tuple(OutputSpec(**shaped(o)) for o in data["outputs"]),
        in_spec=data["in_spec"],
        out_spec=data["out_spec"],
        mutations=tuple(Mutation(**m) for m in data["mutations"]),
        dynamic={name: (low, high) for name, (low, high) in data["dynamic"].items()},
        specialized=tuple((leaf, value) for leaf, value in data["specialized"]),
    )


def _digest(data: dict[str, Any]) -> str:
    """The checksum of the contents, however they are spaced and ordered."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
