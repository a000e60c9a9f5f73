"""What ``torch.compile(..., options={...})`` may say to the backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirstack.errors import UsageError
from mlirstack.frontend.routes import ROUTES
from mlirstack.pipeline.registry import nearest

PARAMETERS = ("inputs", "watched")
FALLBACKS = ("eager", "inductor", "error")


@dataclass(frozen=True)
class BackendOptions:
    """How graphs are compiled.

    ``target``: None means the device of the graph's inputs.  ``dump``: a directory that gets one numbered dump a graph.
    ``fallback``: what runs a graph that cannot be compiled; "error" raises instead.  ``parameters``: "inputs" prepares what
    depends on parameters alone in every call; "watched" once, and again when a version counter or an address changes, which
    writes through ``.data`` do not do.
    """

    target: str | None = None
    route: str = "auto"
    threads: int = 1
    dump: Path | None = None
    fallback: str = "eager"
    parameters: str = "inputs"


def read_options(given: Mapping[str, Any] | None) -> BackendOptions:
    """Options by name; :class:`UsageError` for an unknown name or value."""
    names = [field.name for field in dataclasses.fields(BackendOptions)]
    for name in given or {}:
        if name not in names:
            raise UsageError(
                f"backend 'mlirstack' has no option '{name}'{nearest(name, names)}", hint=f"options: {', '.join(names)}"
            )
    options = BackendOptions(**dict(given or {}))
    for name, value, known in (
        ("fallback", options.fallback, FALLBACKS),
        ("route", options.route, ROUTES),
        ("parameters", options.parameters, PARAMETERS),
    ):
        if value not in known:
            raise UsageError(f"backend option '{name}' is '{value}'", hint=f"values: {', '.join(known)}")
    return options if options.dump is None else dataclasses.replace(options, dump=Path(options.dump))
