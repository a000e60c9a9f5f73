"""What IREE compiles for: one table of back ends and architectures, each with the flags or the attribute that names it.

IREE knows most architectures by name.  For those that it does not, the module itself has to say what the device can do, in
an attribute ``hal.device.targets``; these descriptions are kept here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlirstack.errors import PipelineError
from mlirstack.pipeline.registry import nearest

CPU, CUDA, ROCM, VULKAN = "llvm-cpu", "cuda", "rocm", "vulkan-spirv"  # IREE's names of its back ends


@dataclass(frozen=True)
class IreeBackend:
    """One back end: its ``default`` architecture, and the ``flags`` of every compilation for it.

    ``flag`` takes the name of the architecture.  ``known`` lists the architectures that are accepted.  Of the compiler's own
    names of x86-64 processors none is: it does not tell which instructions a machine must have for one.
    """

    flags: tuple[str, ...]
    flag: str
    default: str
    known: tuple[str, ...]


BACKENDS: Mapping[str, IreeBackend] = {
    CPU: IreeBackend(
        ("--iree-hal-target-device=local", f"--iree-hal-local-target-device-backends={CPU}"),
        "--iree-llvmcpu-target-cpu",
        "host",
        ("host", "generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "riscv64"),
    ),
    CUDA: IreeBackend(
        ("--iree-hal-target-device=cuda",), "--iree-cuda-target", "sm_80", ("sm_80", "sm_86", "sm_89", "sm_90")
    ),
    ROCM: IreeBackend(
        ("--iree-hal-target-device=hip",),
        "--iree-rocm-target",
        "gfx942",
        ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
    ),
    VULKAN: IreeBackend(
        ("--iree-hal-target-device=vulkan",),
        "--iree-vulkan-target",
        "vp_android_baseline_2022",
        ("vp_android_baseline_2022", "ampere", "ada", "rdna2", "rdna3", "valhall"),
    ),
}

# Processors other than x86-64: LLVM's triple, the processor, what else the code generator must be told.
_CROSS: Mapping[str, tuple[str, ...]] = {
    "aarch64": ("--iree-llvmcpu-target-triple=aarch64-linux-gnu", "--iree-llvmcpu-target-cpu=generic"),
    "riscv64": (
        "--iree-llvmcpu-target-triple=riscv64-linux-gnu",
        "--iree-llvmcpu-target-cpu=generic-rv64",
        "--iree-llvmcpu-target-abi=lp64d",
        # Without vectors (V, part of the profile RVA23), LLVM writes every element of a tile out: 13 times the code, and
        # two minutes of compilation for an MLP.
        "--iree-llvmcpu-target-cpu-features=+m,+a,+f,+d,+c,+v",
    ),
}
CROSS_ARCHITECTURES = tuple(_CROSS)

# IREE 3.13 compiles for sm_90 without knowing it: everything that it would look up is said here.  Of Hopper's own
# instructions it uses none; the limit of shared memory leaves room for what the driver reserves of 227 KB.
_SM_90 = """#iree_gpu.target<arch = "sm_90", features = "+ptx80", wgp = <
  compute = fp64|fp32|fp16|int64|int32|int16|int8, storage = b64|b32|b16|b8, subgroup = shuffle|arithmetic,
  dot = dp4xi8toi32,
  mma = [<NV_MMA_SYNC_F32_16x8x16_F16>, <NV_MMA_SYNC_F16_16x8x16_F16>, <NV_MMA_SYNC_F32_16x8x16_BF16>,
         <NV_WMMA_F32_16x16x16_F16>, <NV_WMMA_F16_16x16x16_F16>],
  subgroup_size_choices = [32], max_workgroup_sizes = [1024, 1024, 1024], max_thread_count_per_workgroup = 1024,
  max_workgroup_memory_bytes = 166912, max_workgroup_counts = [2147483647, 65535, 65535]>>"""
_DESCRIPTIONS: Mapping[tuple[str, str], str] = {(CUDA, "sm_90"): _SM_90}
_EXECUTABLE_FORMATS: Mapping[str, str] = {CUDA: "cuda-nvptx-fb"}

# The architecture that our own kernels are compiled for, where it is another one than IREE's name.
KERNEL_ARCHITECTURES: Mapping[str, str] = {"sm_90": "sm_90a"}


def check_architecture(backend: str, arch: str) -> None:
    """:class:`PipelineError` with the nearest names where ``arch`` is not one of ``backend``."""
    known = BACKENDS[backend].known
    if arch not in known:
        raise PipelineError(
            f"IREE's back end {backend} has no architecture '{arch}' here{nearest(arch, [*known])}",
            hint=f"architectures: {', '.join(known)}",
        )


def architecture_flags(backend: str, arch: str) -> tuple[str, ...]:
    """The flags that select ``arch``; none where :func:`device_attribute` describes it in the module."""
    if (backend, arch) in _DESCRIPTIONS:
        return ()
    found = BACKENDS[backend]
    if backend == CPU and arch in _CROSS:
        return (*found.flags, *_CROSS[arch])
    return (*found.flags, f"{found.flag}={arch}")


def device_attribute(backend: str, arch: str) -> str | None:
    """The text of the module's attribute ``hal.device.targets`` for what IREE does not know by name, else None."""
    description = _DESCRIPTIONS.get((backend, arch))
    if description is None:
        return None
    info = f"{{iree_codegen.target_info = {' '.join(description.split())}}}"
    executable = f'#hal.executable.target<"{backend}", "{_EXECUTABLE_FORMATS[backend]}", {info}>'
    return f'[#hal.device.target<"{backend}", [{executable}]> : !hal.device]'
