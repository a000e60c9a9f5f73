"""Target names to target objects.  Third parties add a target by an entry point of the group ``mlirstack.targets``."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlirstack.errors import MissingDependencyError, UsageError
from mlirstack.pipeline.registry import nearest
from mlirstack.targets.base import Target

_OWN = {
    "cpu": "mlirstack.targets.cpu.target:CpuTarget",
    "cuda": "mlirstack.targets.cuda.target:CudaTarget",
    "iree-cpu": "mlirstack.targets.iree.target:IreeCpuTarget",
    "iree-cuda": "mlirstack.targets.iree.target:IreeCudaTarget",
    "iree-rocm": "mlirstack.targets.iree.target:IreeRocmTarget",
    "iree-vulkan": "mlirstack.targets.iree.target:IreeVulkanTarget",
}
ENTRY_POINT_GROUP = "mlirstack.targets"


@dataclass(frozen=True)
class TargetOptions:
    """What a user can set: ``arch`` is the part after the colon of ``cuda:sm_90a`` (None: the default of the target).

    ``schedule`` names another way to write kernels than the default, for targets that have one.  ``settings`` are options of
    the target's compiler by name, such as ``{"opt-level": "O2"}``.
    """

    arch: str | None = None
    threads: int = 1
    schedule: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def target_names() -> list[str]:
    """Names of all targets, own ones first; loads none of them."""
    others = [point.name for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)]
    return [*_OWN, *(name for name in others if name not in _OWN)]


def settings_of(specs: Sequence[str], settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings that each target knows; :class:`UsageError` where nobody knows one."""
    found = {}
    for spec in specs:
        known = create_target(spec).settings
        found[spec] = {key: value for key, value in settings.items() if key in known}
    for key in settings:
        if not any(key in given for given in found.values()):
            raise UsageError(f"none of the targets has a setting '{key}'", hint=f"targets: {', '.join(specs)}")
    return found


def truth(target: str, key: str, text: str) -> bool:
    """The value of a target's setting ``key``, true or false; :class:`UsageError` where it is neither."""
    if text not in ("true", "false"):
        raise UsageError(f"target '{target}': {key} is true or false, not '{text}'")
    return text == "true"


def create_target(
    spec: str, *, threads: int = 1, schedule: str | None = None, settings: Mapping[str, str] | None = None
) -> Target:
    """The target for ``name`` or ``name:arch``; :class:`UsageError` with the nearest names if there is none."""
    name, _, arch = spec.partition(":")
    options = TargetOptions(arch or None, threads, schedule, settings or {})
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        cls = getattr(importlib.import_module(module), attribute)
    else:
        points = [p for p in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if p.name == name]
        if not points:
            names = target_names()
            raise UsageError(f"unknown target '{name}'{nearest(name, names)}", hint=f"targets: {', '.join(names)}")
        try:
            cls = points[0].load()
        except ImportError as error:
            raise MissingDependencyError(f"target '{name}' ({points[0].value}) cannot be loaded: {error}") from error
    if schedule is not None and schedule not in cls.schedules:
        known = ", ".join(cls.schedules)
        raise UsageError(
            f"target '{name}' has no schedule '{schedule}'", hint=f"schedules: {known}" if known else "leave out --schedule"
        )
    unknown = [key for key in options.settings if key not in cls.settings]
    if unknown:
        known = ", ".join(cls.settings)
        raise UsageError(
            f"target '{name}' has no setting '{unknown[0]}'{nearest(unknown[0], cls.settings)}",
            hint=f"settings: {known}" if known else "it has none",
        )
    target: Target = cls(options)
    return target
