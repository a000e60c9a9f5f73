"""A cubin's machine code as text, by nvdisasm."""

from __future__ import annotations

import re
import shlex
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from mlirstack.errors import StageError
from mlirstack.passes.cuda.cubin import CubinCode
from mlirstack.passes.cuda.toolkit import program
from mlirstack.pipeline.step import Translation
from mlirstack.pipeline.tool import run_tool

TIMEOUT = 300  # seconds
_SECTION = re.compile(r"^//-+ \.(?P<name>\S+)\s+-+$", re.MULTILINE)


@dataclass(frozen=True)
class SassCode:
    """The listing of a cubin's kernels, and the cubin."""

    text: str
    code: CubinCode = field(repr=False)


@dataclass(frozen=True)
class DisassembleCubin(Translation):
    """Before: a cubin.  After: its :class:`SassCode`, one section a kernel."""

    name = "mlirstack-disassemble-cubin"

    def translate(self, payload: CubinCode | bytes) -> SassCode:
        code = CubinCode.read(payload)
        return SassCode(sass_text(code.cubin), code)

    def command(self, source: str) -> str:
        return shlex.join(["nvdisasm", "-c", source])


def sass_text(cubin: bytes) -> str:
    """Listing of all kernels of ``cubin``; :class:`StageError` with nvdisasm's words."""
    with tempfile.TemporaryDirectory(prefix="mlirstack-nvdisasm-") as folder:
        directory = Path(folder)
        (directory / "input.cubin").write_bytes(cubin)
        command = [str(program("nvdisasm")), "-c", "input.cubin"]
        tool = run_tool(command, directory=directory, timeout=TIMEOUT)
    if tool.failure is not None:
        raise StageError(
            f"nvdisasm {tool.failure}: {tool.stderr.strip()}",
            stage="sass",
            hint="nvdisasm must be as new as ptxas: pip install -U nvidia-cuda-nvdisasm",
        )
    return tool.stdout.lstrip()


def kernel_listings(text: str) -> dict[str, str]:
    """``{kernel: its part of a listing}``."""
    parts = _SECTION.split(text)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name.removeprefix("text."): listing for name, listing in pairs if name.startswith("text.")}
