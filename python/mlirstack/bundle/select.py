"""Which artifact of a bundle is run on this machine: the best one that can run, or the one that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.bundle.manifest import ArtifactEntry, Manifest
from mlirstack.errors import MlirstackError, TargetUnavailableError, UsageError
from mlirstack.pipeline.registry import nearest
from mlirstack.targets.iree.bytecode import bytecode_read_here
from mlirstack.targets.registry import create_target
from mlirstack.targets.requirements import Unmet, unmet

# Best first, by what benchmarks show: GPUs before processors, own kernels before IREE's.
_ORDER = ("cuda", "iree-cuda", "cpu", "iree-cpu")


@dataclass(frozen=True)
class Candidate:
    """An artifact, and what this machine lacks to run it."""

    entry: ArtifactEntry
    lacks: tuple[Unmet, ...]

    @property
    def reason(self) -> str:
        """Why it does not run here, in a line; empty where it does."""
        return "; ".join(lack.reason for lack in self.lacks)


@dataclass(frozen=True)
class Choice:
    """The artifact to run, and in one line why this one."""

    entry: ArtifactEntry
    reason: str


def candidates(manifest: Manifest) -> list[Candidate]:
    """All artifacts, best first: the order of targets, and within one the more specific code first."""
    ranked = sorted(manifest.artifacts, key=_rank)
    return [Candidate(entry, tuple(_lacks(entry))) for entry in ranked]


def choose(manifest: Manifest, device: str | None = None) -> Choice:
    """The best artifact that runs here.

    ``device`` restricts it: "cpu", "cuda" (any target for that device), a target ("iree-cpu"), or one with its architecture
    ("iree-cpu:x86-64-v3").  Raises :class:`UsageError` where the bundle holds none such, :class:`TargetUnavailableError`
    with all reasons where none can run.
    """
    found = candidates(manifest)
    wanted = [c for c in found if device is None or matches(c.entry, device)]
    if not wanted:
        names = [c.entry.spec for c in found]
        raise UsageError(
            f"the bundle holds nothing for '{device}'{nearest(device or '', names)}", hint=f"it holds: {', '.join(names)}"
        )
    for candidate in wanted:
        if not candidate.lacks:
            return Choice(candidate.entry, _explain(candidate, wanted, device))
    why = "".join(f"\n  {c.entry.spec}: {c.reason}" for c in wanted)
    raise TargetUnavailableError(
        f"no artifact of the bundle runs on this machine:{why}", hint="; ".join(c.lacks[0].remedy for c in wanted[:1])
    )


def matches(entry: ArtifactEntry, device: str) -> bool:
    """Is ``entry`` what ``device`` asks for?"""
    return device in (entry.spec, entry.target, entry.requirements.device)


def reasons(refused: Sequence[Candidate]) -> str:
    """Why none of these runs here, in a line that says each reason once: "a, b: no GPU; a: no driver"."""
    found: dict[str, list[str]] = {}
    for candidate in refused:
        for lack in candidate.lacks:
            found.setdefault(lack.reason, []).append(candidate.entry.spec)
    return "; ".join(f"{', '.join(specs)}: {reason}" for reason, specs in found.items())


def _explain(chosen: Candidate, wanted: list[Candidate], device: str | None) -> str:
    better = wanted[: wanted.index(chosen)]
    if better:
        return f"the best that runs here ({reasons(better)})"
    return f"asked for ({device})" if device else "the only one" if len(wanted) == 1 else "the best one, and it runs here"


def _rank(entry: ArtifactEntry) -> tuple[int, int, str]:
    place = _ORDER.index(entry.target) if entry.target in _ORDER else len(_ORDER)
    wanted = entry.requirements
    specific = (
        len(wanted.features) if wanted.device == "cpu" else int("".join(c for c in wanted.arch or "" if c.isdigit()) or 0)
    )
    return place, -specific, entry.spec


def _lacks(entry: ArtifactEntry) -> list[Unmet]:
    """What is missing: first what the manifest asks for, then what the target itself says."""
    found = unmet(entry.requirements, bytecode_read_here())
    if found:
        return found
    try:
        reason = create_target(entry.spec).available()
    except MlirstackError as error:
        return [Unmet("versions", error.message, error.hint or "see 'mlirstack doctor'")]
    return [Unmet("versions", reason, "see 'mlirstack doctor'")] if reason else []
