"""NVIDIA's programs and libraries (ptxas, nvdisasm, fatbinary, libdevice): where they are, and which versions fit.

They are those that pip installs, else those of a CUDA toolkit: the one that CUDA_HOME or CUDA_PATH names, the one whose
programs are on PATH, or the one in its usual place.

Three versions must agree before anything is compiled: the PTX ISA that is emitted, the toolkit that assembles it, and the
driver that loads it.  The tables here say so; nothing here needs a GPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mlirstack.errors import MissingDependencyError, StageError
from mlirstack.pipeline.tool import run_tool

PACKAGES = {"ptxas": "nvidia-cuda-nvcc", "fatbinary": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}
LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"

# The PTX ISA that each CUDA release brought, for its ptxas and its driver alike: "PTX ISA release history" in NVIDIA's
# "Parallel Thread Execution ISA".
PTX_OF_CUDA = {
    (12, 0): 80, (12, 1): 81, (12, 2): 82, (12, 3): 83, (12, 4): 84, (12, 5): 85, (12, 6): 85, (12, 7): 86, (12, 8): 87,
    (12, 9): 88, (13, 0): 90,
}  # fmt: skip
# The oldest PTX ISA that knows each architecture, from the same document.
_FIRST_PTX = {
    "sm_75": 63, "sm_80": 70, "sm_86": 71, "sm_87": 74, "sm_89": 78, "sm_90": 78, "sm_90a": 80,
    "sm_100": 86, "sm_100a": 86, "sm_103": 88, "sm_103a": 88, "sm_120": 87, "sm_120a": 87,
}  # fmt: skip
_FP8_MMA_PTX = 84  # mma.sync on 8-bit floats
_EMITTED_PTX = 83  # what kernels are written in: bulk tensor copies, warpgroup matrix instructions, st.async


def ptx_of_cuda(version: tuple[int, int]) -> int:
    """The newest PTX ISA (83 for 8.3) that CUDA ``version`` reads; a release after the table reads at least the last."""
    known = [isa for release, isa in PTX_OF_CUDA.items() if release <= version]
    if not known:
        raise StageError(f"CUDA {version[0]}.{version[1]} is older than 12.0", stage="ptx", hint="install CUDA 12 or 13")
    return max(known)


def ptx_for(arch: str) -> int:
    """The PTX ISA to emit for ``arch``: as old as it can be, so that as many drivers as possible read it."""
    if arch not in _FIRST_PTX:
        raise StageError(f"unknown GPU architecture '{arch}'", stage="ptx", hint=f"architectures: {', '.join(_FIRST_PTX)}")
    return max(_FIRST_PTX[arch], _EMITTED_PTX)


def ptx_needed_by(text: str) -> int:
    """The PTX ISA that LLVM IR needs for an instruction younger than the rest; 0 where there is none.

    LLVM ends the process over an intrinsic that the ISA does not have.
    """
    return _FP8_MMA_PTX if re.search(r"@llvm\.nvvm\.mma\.m16n8k32\.\S*\.e[45]m[23]", text) else 0


def isa_text(isa: int) -> str:
    """``8.3`` for 83."""
    return f"{isa // 10}.{isa % 10}"


@cache
def _wheels() -> tuple[Path, ...]:
    """The folders in which NVIDIA's CUDA 13 wheels share their files."""
    try:
        spec = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        spec = None
    return tuple(Path(folder) for folder in spec.submodule_search_locations or ()) if spec else ()


_USUAL_PLACES = ("/usr/local/cuda", "/opt/cuda")  # NVIDIA's own installers, Arch


def _folders() -> Iterator[Path]:
    """The folders of installed wheels and CUDA toolkits, the one that is meant first."""
    yield from _wheels()
    yield from (Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))
    on_path = shutil.which("ptxas") or shutil.which("nvcc")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    yield from map(Path, _USUAL_PLACES)


def find_program(name: str) -> Path | None:
    """The program of a wheel or a toolkit, else the one on PATH, else None."""
    for folder in _folders():
        program = folder / "bin" / name
        if program.is_file():
            return program
    found = shutil.which(name)
    return Path(found) if found else None


def program(name: str) -> Path:
    """:func:`find_program`; :class:`MissingDependencyError` with the wheel to install."""
    found = find_program(name)
    if found is None:
        raise MissingDependencyError(
            f"{name} is not installed", hint=f"pip install '{PACKAGES[name]}==13.0.*', or set CUDA_HOME to a CUDA toolkit"
        )
    return found


def find_libdevice() -> Path | None:
    """NVIDIA's library of math functions as LLVM bitcode, or None."""
    return next((f / LIBDEVICE for f in _folders() if (f / LIBDEVICE).is_file()), None)


def libdevice() -> Path:
    """:func:`find_libdevice`; :class:`MissingDependencyError` with the wheel to install."""
    found = find_libdevice()
    if found is None:
        raise MissingDependencyError(
            "libdevice is not installed", hint="pip install 'nvidia-nvvm==13.0.*', or set CUDA_HOME to a CUDA toolkit"
        )
    return found


@cache
def version_of(path: Path) -> tuple[int, int]:
    """CUDA release of one of NVIDIA's programs, (13, 0); :class:`StageError` where it does not say."""
    tool = run_tool([str(path), "--version"], directory=Path(tempfile.gettempdir()), timeout=30)
    found = re.search(r"release (\d+)\.(\d+)", tool.stdout)
    if tool.failure or not found:
        raise StageError(f"{path} --version {tool.failure or 'names no release'}", stage="cubin")
    return int(found[1]), int(found[2])


def check_ptxas(isa: int) -> Path:
    """The ptxas that assembles PTX ``isa``; :class:`StageError` where the installed one is older than that."""
    path = program("ptxas")
    release = version_of(path)
    newest = ptx_of_cuda(release)
    if isa > newest:
        raise StageError(
            f"ptxas of CUDA {release[0]}.{release[1]} accepts PTX up to {isa_text(newest)}, this is PTX {isa_text(isa)}",
            stage="cubin",
            hint=f"pip install '{PACKAGES['ptxas']}==13.0.*'",
        )
    return path
