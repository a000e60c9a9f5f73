"""What a schedule must know of a GPU: architecture, limits of a multiprocessor, and the speeds that bound a kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.errors import UsageError


@dataclass(frozen=True)
class Device:
    """One architecture.  Limits from the CUDA C++ Programming Guide, "Technical Specifications per Compute
    Capability".

    Speeds are those of the board named in ``board`` (data sheets; dense, without sparsity): ``bandwidth`` in bytes/s,
    ``tensor_flops`` for f16/bf16, ``flops`` for f32 FMA, both in FLOP/s.
    """

    arch: str  # "sm_90a"
    board: str
    multiprocessors: int
    bandwidth: float
    tensor_flops: float
    flops: float
    shared_per_block: int = 99 * 1024  # bytes, opt-in maximum
    shared_per_multiprocessor: int = 100 * 1024
    threads_per_multiprocessor: int = 1536
    registers_per_multiprocessor: int = 65536
    blocks_per_multiprocessor: int = 24
    image_maps: bool = True  # can launches be given tensor maps over the pixels of images?
    clusters: bool = True  # can launches be of clusters of blocks, where the hardware has them?

    @property
    def capability(self) -> int:
        """80 for sm_80, 90 for sm_90 and sm_90a."""
        return int(re.sub(r"\D", "", self.arch))

    def blocks_at_once(self, cluster: int) -> int:
        """Blocks that can run at once, one on a multiprocessor, in clusters of a size.

        The multiprocessors of a cluster are of one graphics processing cluster, of which the H200 has some with 18 and some
        with 16: what is left over there stays idle.
        """
        return self.multiprocessors if cluster <= 2 else self.multiprocessors // 16 * 16

    @property
    def has_wgmma(self) -> bool:
        """Has it Hopper's warpgroup matrix instructions (sm_90a only, not sm_90)?"""
        return self.arch == "sm_90a"

    @property
    def has_tma(self) -> bool:
        """Has it the bulk tensor copy engine?"""
        return self.capability >= 90

    @property
    def has_clusters(self) -> bool:
        """Can kernels be launched in clusters of blocks that share their shared memory?"""
        return self.clusters and self.capability >= 90

    @property
    def has_fp8_mma(self) -> bool:
        """Has ``mma.sync`` e4m3 and e5m2 operands?"""
        return self.capability >= 89


_H200: dict[str, Any] = {
    "multiprocessors": 132,
    "shared_per_block": 227 * 1024,
    "shared_per_multiprocessor": 228 * 1024,
    "threads_per_multiprocessor": 2048,
    "blocks_per_multiprocessor": 32,
}

DEVICES: dict[str, Device] = {
    device.arch: device
    for device in (
        Device(
            "sm_80", "A100 SXM 80 GB", 108, 2.04e12, 312e12, 19.5e12,
            shared_per_block=163 * 1024, shared_per_multiprocessor=164 * 1024, threads_per_multiprocessor=2048,
            blocks_per_multiprocessor=32,
        ),
        Device("sm_86", "RTX A6000", 84, 0.768e12, 155e12, 38.7e12, blocks_per_multiprocessor=16),
        Device("sm_89", "L40S", 142, 0.864e12, 362e12, 91.6e12),
        Device("sm_90", "H200 SXM", bandwidth=4.8e12, tensor_flops=989e12, flops=67e12, **_H200),
        Device("sm_90a", "H200 SXM", bandwidth=4.8e12, tensor_flops=989e12, flops=67e12, **_H200),
    )
}  # fmt: skip
DEFAULT_ARCH = "sm_90a"
_LIMITS = (
    "shared_per_block", "shared_per_multiprocessor", "threads_per_multiprocessor", "registers_per_multiprocessor",
    "blocks_per_multiprocessor",
)  # fmt: skip


def device_of(arch: str | None) -> Device:
    """The device of an architecture (None: the default); :class:`UsageError` with the known ones otherwise.

    Of several (``sm_80+sm_89``) it is the first, with the limits of the narrowest: what fits there fits everywhere.
    """
    first, *others = (_known(name) for name in (arch or DEFAULT_ARCH).split("+"))
    limits = [{name: getattr(device, name) for name in _LIMITS} for device in (first, *others)]
    return replace(first, **{name: min(limit[name] for limit in limits) for name in _LIMITS}) if others else first


def _known(arch: str) -> Device:
    if arch not in DEVICES:
        raise UsageError(f"unknown GPU architecture '{arch}'", hint=f"architectures: {', '.join(DEVICES)}")
    return DEVICES[arch]
