"""PTX to a cubin by ptxas, with what ptxas says about each kernel: registers, shared memory, spills, stack."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from mlirstack.errors import Diagnostic, StageError
from mlirstack.passes.cuda.device_code import PTX_COMMENT, DeviceCode
from mlirstack.passes.cuda.plan import KernelInfo, LaunchPlan
from mlirstack.passes.cuda.toolkit import check_ptxas
from mlirstack.pipeline.step import Translation
from mlirstack.pipeline.tool import ToolRun, run_tool

TIMEOUT = 600  # seconds for all kernels of a module
_TRAILER = b"\n// PTX that this cubin was made from\n"


@dataclass(frozen=True)
class KernelResources:
    """What ptxas allots to one kernel.  Sizes in bytes; ``spill_bytes`` are the stores and loads of spilled registers.

    ``warning`` is what ptxas found to cost speed, such as wgmmas that it runs one after the other.
    """

    registers: int
    static_shared_bytes: int
    spill_bytes: int
    stack_bytes: int
    warning: str | None = None


@dataclass(frozen=True)
class CubinCode:
    """A cubin, the PTX it was made from (empty if unknown) and the plan, its kernel table completed."""

    cubin: bytes = field(repr=False)
    ptx: DeviceCode = field(repr=False)

    @property
    def data(self) -> bytes:
        """The file of a dump: the cubin, and behind its end, where ELF readers do not look, the PTX with the plan."""
        return self.cubin + _TRAILER + self.ptx.text.encode()

    @property
    def plan(self) -> LaunchPlan | None:
        """The launch plan."""
        return self.ptx.plan

    @staticmethod
    def read(payload: CubinCode | bytes) -> CubinCode:
        """Inverse of :attr:`data`; takes a plain cubin too."""
        if isinstance(payload, CubinCode):
            return payload
        cubin, _, text = payload.partition(_TRAILER)
        return CubinCode(cubin, DeviceCode.read(text.decode(), PTX_COMMENT))


@dataclass(frozen=True)
class AssembleCubin(Translation):
    """Before: PTX.  After: a :class:`CubinCode` for ``arch`` (``sm_90a``); ``opt_level`` is that of ptxas, 0 to 3."""

    name = "mlirstack-assemble-cubin"
    arch: str = "sm_90a"
    opt_level: int = 3

    def translate(self, payload: DeviceCode | str) -> CubinCode:
        code = DeviceCode.read(payload, PTX_COMMENT)
        cubin, resources = assemble(code.body, self.arch, self.opt_level)
        plan = _completed(code.plan, resources, self.arch) if code.plan else None
        return CubinCode(cubin, dataclasses.replace(code, plan=plan))

    def command(self, source: str) -> str:
        return shlex.join(_command("ptxas", self.arch, source, "output.cubin", self.opt_level))


def assemble(ptx: str, arch: str, opt_level: int = 3) -> tuple[bytes, dict[str, KernelResources]]:
    """Cubin of ``ptx`` for ``arch``, and the resources of each kernel by name.

    Raises :class:`StageError` with ptxas's messages, the lines of PTX they are about and the command to repeat.
    """
    version = re.search(r"^\.version (\d+)\.(\d+)", ptx, re.MULTILINE)
    ptxas = check_ptxas(int(version[1]) * 10 + int(version[2]) if version else 0)
    with tempfile.TemporaryDirectory(prefix="mlirstack-ptxas-") as folder:
        directory = Path(folder)
        (directory / "input.ptx").write_text(ptx)
        command = _command(str(ptxas), arch, "input.ptx", "output.cubin", opt_level)
        tool = run_tool(command, directory=directory, timeout=TIMEOUT)
        if tool.failure is not None:
            raise _error(tool, ptx, ["ptxas", *command[1:]])
        return (directory / "output.cubin").read_bytes(), parse_resources(tool.stderr)


def _command(ptxas: str, arch: str, source: str, output: str, opt_level: int) -> list[str]:
    level = [] if opt_level == 3 else [f"-O{opt_level}"]  # ptxas' own default is 3
    return [ptxas, "-v", "-lineinfo", *level, f"-arch={arch}", source, "-o", output]


_KERNEL = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_LOSS = re.compile(r"\((C\d+)\) Potential Performance Loss: (.*?)\s+in the function '([^']+)'")


def parse_resources(output: str) -> dict[str, KernelResources]:
    """``{kernel: resources}`` of what ``ptxas -v`` prints."""
    found: dict[str, KernelResources] = {}
    kernel, frame = "", (0, 0, 0)
    losses = {match[3]: f"{match[1]}: {' '.join(match[2].split())}" for match in _LOSS.finditer(output)}
    for line in output.splitlines():
        if match := _KERNEL.search(line):
            kernel, frame = match[1], (0, 0, 0)
        elif match := _FRAME.search(line):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and kernel:
            shared = _SHARED.search(line)
            static = int(shared[1]) if shared else 0
            found[kernel] = KernelResources(int(match[1]), static, frame[1] + frame[2], frame[0], losses.get(kernel))
            kernel = ""
    return found


def _completed(plan: LaunchPlan, resources: dict[str, KernelResources], arch: str) -> LaunchPlan:
    absent = [kernel.name for kernel in plan.kernels if kernel.name not in resources]
    if absent:
        raise StageError(f"the launch plan names kernels that the PTX does not hold: {', '.join(absent)}", stage="cubin")
    kernels: tuple[KernelInfo, ...] = tuple(
        dataclasses.replace(kernel, **dataclasses.asdict(resources[kernel.name])) for kernel in plan.kernels
    )
    return dataclasses.replace(plan, arch=arch, kernels=kernels)


_MESSAGE = re.compile(r"^ptxas (?:\S+, line (?P<line>\d+); )?(?P<severity>error|fatal)\s*: (?P<message>.*)$")


def _error(tool: ToolRun, ptx: str, command: list[str]) -> StageError:
    message = f"ptxas took longer than {TIMEOUT} s and was ended" if tool.timed_out else f"ptxas {tool.failure}"
    lines, diagnostics = ptx.splitlines(), []
    for match in filter(None, map(_MESSAGE.match, tool.stderr.splitlines())):
        number = int(match["line"] or 0)
        quoted = f": {lines[number - 1].strip()}" if 0 < number <= len(lines) else ""
        diagnostics.append(Diagnostic("error", match["message"] + quoted, f"PTX line {number}" if number else "PTX"))
    if diagnostics:
        message = f"ptxas: {diagnostics[0].location}: {diagnostics[0].message}"
    elif tool.stderr.strip():
        message += ": " + " / ".join(tool.stderr.split("\n")[:3])
    return StageError(
        message,
        stage="cubin",
        diagnostics=tuple(diagnostics),
        hint=f"to repeat it on the stage's complete input: {shlex.join(command)}",
    )
