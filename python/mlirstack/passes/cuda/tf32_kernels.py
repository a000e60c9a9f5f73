"""Which kernels multiply as TF32, by their PTX; plain text, for machines without MLIR's bindings too."""

from __future__ import annotations

import re

_ENTRY = re.compile(r"^\.visible \.entry (\w+)", re.MULTILINE)


def kernels_with_tf32(ptx: str) -> list[str]:
    """Names of the kernels that multiply as TF32, in the order of the PTX."""
    names, bodies = _ENTRY.findall(ptx), _ENTRY.split(ptx)[2::2]
    return [name for name, body in zip(names, bodies, strict=True) if ".tf32" in body]
