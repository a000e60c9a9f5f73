"""TF32: where torch's settings allow it, and which kernels use it."""

from __future__ import annotations

import re
import sys

_ENTRY = re.compile(r"^\.visible \.entry (\w+)", re.MULTILINE)


def tf32_of_torch() -> tuple[str, ...]:
    """The kinds of f32 ops that eager computes as TF32 on a GPU by torch's settings: "matmul", "convolution".

    The settings are ``fp32_precision`` of ``torch.backends.cuda.matmul`` and ``torch.backends.cudnn.conv``, which follow
    ``allow_tf32`` and ``torch.set_float32_matmul_precision`` too.  Where torch has not been imported, they are the defaults.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return ("convolution",)
    settings = {"matmul": torch.backends.cuda.matmul, "convolution": torch.backends.cudnn.conv}
    return tuple(kind for kind, setting in settings.items() if setting.fp32_precision == "tf32")


def kernels_with_tf32(ptx: str) -> list[str]:
    """Names of the kernels that multiply as TF32, in the order of the PTX."""
    names, bodies = _ENTRY.findall(ptx), _ENTRY.split(ptx)[2::2]
    return [name for name, body in zip(names, bodies, strict=True) if ".tf32" in body]
