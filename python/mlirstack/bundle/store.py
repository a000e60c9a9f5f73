"""The artifact on disk: one directory with a manifest, checksums, the artifact's files, and the parameters.

``manifest.json`` names every other file with its size and SHA-256; nothing is handed to native code before its checksum is
verified, because damaged code crashes the process.  A bundle is written beside its place and moved there when complete.
Parameters that the reader can get elsewhere, from a model that a seed rebuilds, may be left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlirstack.errors import BundleError, UsageError
from mlirstack.frontend.parameters import save_parameters
from mlirstack.frontend.program import ArgumentSpec, Mutation, OutputSpec, ResultSpec, Signature
from mlirstack.targets.base import Artifact

if TYPE_CHECKING:
    import torch

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PARAMETERS = "parameters.safetensors"


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle says of itself beside its files: model name, route and why, versions of what built it."""

    model: str
    route: str
    route_reason: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Bundle:
    """A bundle read back and verified."""

    info: BundleInfo
    artifact: Artifact
    signature: Signature
    parameters: dict[str, torch.Tensor]


def write_bundle(
    path: Path,
    artifact: Artifact,
    signature: Signature,
    parameters: dict[str, torch.Tensor],
    info: BundleInfo,
    *,
    rebuilt: Collection[str] = (),
) -> None:
    """Write a bundle to ``path``, replacing an earlier bundle there; anything else there is refused.

    Parameters named in ``rebuilt`` are not stored: whoever reads the bundle must bring them.
    """
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists and is not a bundle", hint="name a new directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise UsageError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        for name, data in artifact.files.items():
            (work / name).write_bytes(data)
        save_parameters({name: t for name, t in parameters.items() if name not in rebuilt}, work / PARAMETERS)
        manifest = {
            "format_version": FORMAT_VERSION,
            **dataclasses.asdict(info),
            "target": artifact.target,
            "metadata": artifact.metadata,
            "signature": dataclasses.asdict(signature),
            "parameters": list(parameters),
            "rebuilt": [name for name in parameters if name in rebuilt],
            "files": {f.name: {"size": f.stat().st_size, "sha256": _sha256(f)} for f in sorted(work.iterdir())},
        }
        (work / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        if path.exists():
            shutil.rmtree(path)
        work.rename(path)
    except OSError as error:
        raise BundleError(
            f"cannot write bundle {path}: {error.strerror}", hint="free space, or name another place"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read_bundle(path: Path, rebuilt: Mapping[str, torch.Tensor] | None = None) -> Bundle:
    """Read and verify the bundle at ``path``; :class:`BundleError` names the file that is missing or damaged.

    ``rebuilt`` are the parameters of the model, for a bundle that was written without them.
    """
    from safetensors.torch import load_file

    manifest = _manifest(path)
    for name, entry in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise BundleError(f"bundle {path}: {name} is missing", hint="build the bundle again")
        if file.stat().st_size != entry["size"] or _sha256(file) != entry["sha256"]:
            raise BundleError(f"bundle {path}: {name} is damaged (checksum differs)", hint="copy or build the bundle again")
    own = [name for name in manifest["files"] if name != PARAMETERS]
    artifact = Artifact(manifest["target"], {name: (path / name).read_bytes() for name in own}, manifest["metadata"])
    stored = load_file(path / PARAMETERS) if PARAMETERS in manifest["files"] else {}
    absent = [name for name in manifest.get("rebuilt", ()) if name not in (rebuilt or {})]
    if absent:
        raise BundleError(
            f"bundle {path} stores no parameters ({', '.join(absent[:3])}, …): they come from the model it was built of",
            hint=f"read it together with that model: mlirstack compare zoo:{manifest['model']} --artifacts DIR",
        )
    given = {name: (rebuilt or {})[name].detach() for name in manifest.get("rebuilt", ())}
    parameters = {name: given[name] if name in given else stored[name] for name in manifest["parameters"]}
    info = BundleInfo(*(manifest[f.name] for f in dataclasses.fields(BundleInfo)))
    return Bundle(info, artifact, _signature(manifest["signature"]), parameters)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        version = manifest["format_version"]
    except FileNotFoundError:
        raise BundleError(f"{path} is not a bundle: no {MANIFEST}") from None
    except (OSError, ValueError, KeyError) as error:
        raise BundleError(f"bundle {path}: {MANIFEST} cannot be read: {error}") from error
    if version != FORMAT_VERSION:
        raise BundleError(f"bundle {path} has format {version}; this mlirstack reads format {FORMAT_VERSION}")
    return manifest


def _signature(data: dict[str, Any]) -> Signature:
    def shaped(entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "shape": None if entry.get("shape") is None else tuple(entry["shape"])}

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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
