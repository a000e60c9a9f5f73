"""TF32: where torch's settings allow it."""

from __future__ import annotations

import sys


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
