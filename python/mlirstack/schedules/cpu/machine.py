"""What the schedules need to know of the processor: how wide its vector registers are."""

from __future__ import annotations

from functools import cache

from mlirstack.passes.native_code import host_cpu

HOST = 0  # as an option: the widest registers of this machine


@cache
def host_vector_bits() -> int:
    """Width of the widest vector registers of this machine in bits: 512, 256 or 128."""
    features = set(host_cpu().features.split(","))
    if "+avx512f" in features:
        return 512
    return 256 if "+avx2" in features else 128


def vector_bits(option: int) -> int:
    """``option``, or this machine's width where it is :data:`HOST`."""
    return option or host_vector_bits()
