"""What an artifact needs of a machine, and what this machine has: compared before native code sees a byte of the artifact.

Requirements are plain data, written into the manifest of a bundle by the target that built the artifact.  Nothing here needs
torch, a compiler, or a package of a device: the processor is read from the system, the GPU from its driver.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mlirstack.errors import MissingDependencyError

# LLVM's name of a processor feature → the kernel's in /proc/cpuinfo, where they differ.  Only features that code generators
# use for numbers are listed: one that is missing here would make bundles refuse machines for nothing.
# fmt: off
_SAME_NAME = (
    "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "popcnt", "movbe", "aes", "vaes", "pclmulqdq", "gfni", "vpclmulqdq", "adx",
    "ssse3", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma",
)
# fmt: on
_CPUINFO = {name: name for name in _SAME_NAME} | {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avxvnni": "avx_vnni",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
}
_V2 = ("pni", "ssse3", "sse4_1", "sse4_2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
X86_LEVELS: Mapping[str, tuple[str, ...]] = {
    "generic": (), "x86-64": (), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4
}  # fmt: skip
"""The levels of the x86-64 psABI, as features named in /proc/cpuinfo; "generic" is LLVM's name of the first."""
CROSS_FEATURES: Mapping[str, tuple[str, ...]] = {"aarch64": (), "riscv64": ("v",)}
"""What code for other machines uses beyond their base, by ``platform.machine()``."""


@dataclass(frozen=True)
class Requirements:
    """What must be there to run an artifact; empty fields ask for nothing.

    ``machine`` is that of ``platform.machine()``; ``features`` are processor features by their names in /proc/cpuinfo;
    ``device`` is "cpu", "cuda", "hip" or "vulkan"; ``arch`` an NVIDIA architecture ("sm_90": that or later, "sm_90a": that
    one only); ``cuda`` the least CUDA version that the driver must serve; ``packages`` maps distributions to the least
    version of each (">=3.13"); ``bytecode`` is the version of IREE's VM bytecode.
    """

    machine: str | None = None
    features: tuple[str, ...] = ()
    device: str = "cpu"
    arch: str | None = None
    cuda: tuple[int, int] | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    bytecode: tuple[int, int] | None = None


@dataclass(frozen=True)
class Unmet:
    """One requirement that this machine does not meet: what is wrong with which number, and what would satisfy it."""

    kind: str  # "arch", "versions"
    reason: str
    remedy: str


def is_installed(module: str) -> bool:
    """Can ``module`` be imported?  Only its parent packages are."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def require(module: str, purpose: str) -> None:
    """:class:`MissingDependencyError` where ``module``, which is needed for ``purpose``, cannot be imported."""
    if not is_installed(module):
        raise MissingDependencyError(f"{module} is not installed, and is needed for {purpose}", hint=f"pip install {module}")


def cpuinfo_features(llvm_features: str) -> tuple[str, ...]:
    """LLVM's ``+avx2,-avx512f,+bmi`` as names of /proc/cpuinfo; features that have none there are left out."""
    wanted = (f[1:] for f in llvm_features.split(",") if f.startswith("+"))
    return tuple(sorted({_CPUINFO[name] for name in wanted if name in _CPUINFO}))


@cache
def machine_features() -> frozenset[str]:
    """Features of this machine's processor as /proc/cpuinfo names them."""
    file = Path("/proc/cpuinfo")
    return features_in(file.read_text() if file.is_file() else "")


def features_in(cpuinfo: str) -> frozenset[str]:
    """The features of the first processor: words, or of RISC-V the letters and names of "rv64imafdcv_zba"."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
        if name.strip() == "isa":
            letters, *names = value.strip().removeprefix("rv64").split("_")
            return frozenset((*letters, *names))
    return frozenset()


def known_machine_features() -> tuple[str, ...]:
    """The features of this machine that code generators may use."""
    return tuple(sorted(machine_features() & set(_CPUINFO.values())))


@dataclass(frozen=True)
class CudaDevice:
    """A GPU as its driver describes it; ``cuda`` is the CUDA version that the driver serves."""

    name: str
    capability: tuple[int, int]
    cuda: tuple[int, int]


def cuda_device(ordinal: int = 0) -> CudaDevice | str:
    """The GPU with number ``ordinal``, or in one line why there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) is installed"
    number, count, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDriverGetVersion(ctypes.byref(number)) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return "the CUDA driver does not start"
    if ordinal >= count.value or driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return f"there is no GPU number {ordinal}: the CUDA driver finds {count.value}"
    name, major, minor = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    version = number.value // 1000, number.value % 1000 // 10
    return CudaDevice(name.value.decode(errors="replace"), (major.value, minor.value), version)


def unmet(requirements: Requirements, bytecode_read: tuple[int, int] | None = None) -> list[Unmet]:
    """What this machine lacks; empty where the artifact may be loaded.

    ``bytecode_read`` is the version of VM bytecode that the installed runtime reads, None where it is not known.
    """
    found = [*_processor(requirements), *_packages(requirements)]
    if requirements.device == "cuda":
        found += _gpu(requirements)
    wanted = requirements.bytecode
    if wanted and bytecode_read and (wanted[0] != bytecode_read[0] or wanted[1] > bytecode_read[1]):
        found.append(
            Unmet(
                "versions",
                f"the module is VM bytecode {_dotted(wanted)}; the installed IREE runtime reads {_dotted(bytecode_read)}",
                "install the iree-base-runtime that the manifest names, or build the bundle with this one's compiler",
            )
        )
    return found


def _processor(wanted: Requirements) -> list[Unmet]:
    machine = platform.machine()
    if wanted.machine and wanted.machine != machine:
        remedy = f"run it on {wanted.machine}, or build for this machine"
        return [Unmet("arch", f"the code is for {wanted.machine}, this machine is {machine}", remedy)]
    absent = [name for name in wanted.features if name not in machine_features()]
    if absent:
        text = f"the code uses processor features that this machine lacks: {', '.join(absent)}"
        return [Unmet("arch", text, "build for a processor like this one, or for a generic one (iree-cpu:x86-64-v3)")]
    return []


def _packages(wanted: Requirements) -> list[Unmet]:
    found = []
    for name, specifier in wanted.packages.items():
        version: str | None
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is None or (name == "torch" and not is_installed(name)):
            found.append(Unmet("versions", f"{name} is not installed", f"pip install '{name}{specifier}'"))
            continue
        if not _is_at_least(version, specifier):
            text = f"{name} is {version}, the artifact needs {specifier}"
            found.append(Unmet("versions", text, f"pip install '{name}{specifier}'"))
    return found


def _is_at_least(version: str, specifier: str) -> bool:
    """Is "3.13.1rc2+cpu" ">=3.13"?  Only the release's numbers count; a specifier of another form is met by nothing."""
    least = re.fullmatch(r">=(\d+(?:\.\d+)*)", specifier)
    return least is not None and _release(version) >= _release(least[1])


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()  # 3.13 and 3.13.0 are the same
    return tuple(numbers)


def _gpu(wanted: Requirements) -> list[Unmet]:
    device = cuda_device()
    if isinstance(device, str):
        return [Unmet("arch", device, "run it on a machine with an NVIDIA GPU")]
    found = []
    if wanted.arch and not runs_on(wanted.arch, device.capability):
        capability = _dotted(device.capability)
        text = f"the kernels are for {wanted.arch}, {device.name} has compute capability {capability}"
        found.append(Unmet("arch", text, f"build for this device: sm_{capability.replace('.', '')}"))
    if wanted.cuda and wanted.cuda > device.cuda:
        text = f"the kernels need a driver for CUDA {_dotted(wanted.cuda)}, this one serves CUDA {_dotted(device.cuda)}"
        found.append(Unmet("versions", text, "update the NVIDIA driver"))
    return found


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """PTX of an architecture runs on it and all later ones; features of one architecture ("a") bind it to that one."""
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if match is None:
        return False
    wanted = int(match[1]), int(match[2])
    if match[3] == "a":
        return capability == wanted
    return capability >= wanted and (match[3] != "f" or capability[0] == wanted[0])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
