"""``mlirstack doctor``: versions, devices, tools; which targets are usable and why not."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement
from rich.markup import escape
from rich.table import Table

from mlirstack.cli.common import console, run_command, write_json
from mlirstack.errors import MlirstackError
from mlirstack.passes.cuda.toolkit import find_libdevice, find_program, isa_text, ptx_of_cuda, version_of
from mlirstack.targets.registry import create_target, target_names


@dataclass(frozen=True)
class Check:
    """One line of the report: ``status`` is "ok", "note" (usable without it) or "bad"."""

    what: str
    status: str
    detail: str


def doctor(
    json_file: Annotated[Path | None, typer.Option("--json", help="write the report as JSON ('-': stdout)")] = None,
) -> None:
    """Check this machine: versions against the pins, tools, devices, and which targets are usable."""

    def body() -> int:
        checks = [*_dependencies(), *_machine(), *_tools(), *_cuda_toolkit(), *_targets()]
        if str(json_file) != "-":
            console.print(_table(checks))
        write_json(json_file, [asdict(check) for check in checks])
        return 1 if any(check.status == "bad" for check in checks) else 0

    run_command(body)


def _dependencies() -> list[Check]:
    """Installed versions against what mlirstack's own metadata asks for."""
    try:
        required = importlib.metadata.requires("mlirstack") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        return [Check("mlirstack", "note", "not installed, so that versions are not checked; pip install -e .")]
    checks = []
    for text in required:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(requirement.name, "bad", f"not installed; wanted {requirement.specifier}"))
            continue
        fits = requirement.specifier.contains(version, prereleases=True)
        detail = version if fits else f"{version}, but mlirstack is tested with {requirement.specifier}"
        checks.append(Check(requirement.name, "ok" if fits else "bad", detail))
    return checks


def _machine() -> list[Check]:
    cpuinfo = Path("/proc/cpuinfo")
    flags: set[str] = set()
    if cpuinfo.is_file():
        flags = set(next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split())
    found = [name for name in ("avx2", "fma", "avx512f", "f16c", "amx_bf16") if name in flags]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    supported = platform.system() == "Linux" and platform.machine() == "x86_64"
    detail = f"{platform.system()} {platform.machine()}, {cores} cores, {' '.join(found) or 'no AVX2'}"
    note = "" if supported else "; x86-64 Linux is supported"
    return [Check("machine", "ok" if supported else "bad", detail + note), _cuda()]


def _cuda() -> Check:
    """The CUDA driver: its version, the PTX that it compiles, its devices."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Check("CUDA driver", "note", "not found (libcuda.so.1)")
    number, count = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDriverGetVersion(ctypes.byref(number)) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return Check("CUDA driver", "note", "found, but it does not start")
    version = number.value // 1000, number.value % 1000 // 10
    devices = ", ".join(_device_name(driver, index) for index in range(count.value)) or "no device"
    try:
        isa = f"accepts PTX up to {isa_text(ptx_of_cuda(version))}"
    except MlirstackError as error:
        return Check("CUDA driver", "bad", error.message)
    return Check("CUDA driver", "ok", f"CUDA {version[0]}.{version[1]}, {isa}; {devices}")


def _device_name(driver: ctypes.CDLL, index: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetName(name, len(name), device):
        return "unnamed device"
    return name.value.decode(errors="replace")


def _cuda_toolkit() -> list[Check]:
    """What lowering to machine code of GPUs takes: the assembler, the disassembler, libdevice, LLVM's back end."""
    checks = []
    for name, purpose in (("ptxas", "stage cubin"), ("nvdisasm", "stage sass"), ("fatbinary", "bundles for several GPUs")):
        path = find_program(name)
        if path is None:
            checks.append(Check(name, "note", f"not found; needed for {purpose} of target cuda"))
            continue
        try:
            version = version_of(path)
            reads = f", assembles PTX up to {isa_text(ptx_of_cuda(version))}" if name == "ptxas" else ""
            checks.append(Check(name, "ok", f"CUDA {version[0]}.{version[1]}{reads}; {path}"))
        except (MlirstackError, OSError) as error:
            checks.append(Check(name, "bad", f"{path} does not start: {error}"))
    library = find_libdevice()
    checks.append(Check("libdevice", "ok" if library else "note", str(library or "not found; needed for stage ptx")))
    return [*checks, _nvptx()]


def _nvptx() -> Check:
    """LLVM's back end for PTX, in llvmlite."""
    what = "llvmlite NVPTX"
    try:
        import llvmlite.binding as llvm
    except ModuleNotFoundError:
        return Check(what, "note", "llvmlite is not installed; needed for stage ptx of target cuda")
    llvm.initialize_all_targets()
    try:
        target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    except RuntimeError as error:
        return Check(what, "note", f"this llvmlite has no back end for PTX: {error}")
    return Check(what, "ok", f"{target.name} of LLVM {'.'.join(map(str, llvm.llvm_version_info))}")


def _tools() -> list[Check]:
    checks = []
    for tool, purpose in (
        ("iree-compile", "targets iree-*"),
        ("g++", "comparison with torch.compile"),
        ("FileCheck", "lit tests"),
    ):
        path = shutil.which(tool, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
        checks.append(Check(tool, "ok" if path else "note", path or f"not found; needed for {purpose}"))
    return checks


def _targets() -> list[Check]:
    checks = []
    for name in target_names():
        try:
            reason = create_target(name).available()
        except MlirstackError as error:
            reason = error.message
        checks.append(Check(f"target {name}", "note" if reason else "ok", reason or "usable"))
    return checks


def _table(checks: list[Check]) -> Table:
    colours = {"ok": "green", "note": "yellow", "bad": "red"}
    table = Table(show_header=False, box=None)
    for check in checks:
        table.add_row(f"[{colours[check.status]}]{check.status}[/]", check.what, escape(check.detail))
    return table
