"""A model whose lines the tests of the report know, and the dumps of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from mlirstack.frontend.export import export
from mlirstack.lowering import Lowering, LowerOptions, lower_program
from mlirstack.report.dump_files import DumpFiles, read_dump

FILE = Path(__file__).name


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(48, 32)
        self.second = torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)  # line: first
        h = torch.relu(h) * torch.sigmoid(h)  # line: gate
        return self.second(h).sum(-1)  # line: second


def line_of(mark: str) -> int:
    """The line of this file that ends with the comment ``# line: mark``."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}"))


def lower_to(
    directory: Path, target: str, *, to: str | None = None, passes: bool = False, settings: Mapping[str, str] | None = None
) -> Lowering:
    """Lower :class:`Gated` for ``target``, down to stage ``to``, and leave the dump in ``directory``."""
    torch.manual_seed(0)
    program = export(Gated().eval(), (torch.randn(24, 48),), {}, dynamic_shapes=None, name="gated")
    return lower_program(program, LowerOptions(target=target, to=to, dump=directory, passes=passes, settings=settings or {}))


def dump_for(directory: Path, target: str, *, passes: bool = False, settings: Mapping[str, str] | None = None) -> DumpFiles:
    """The dump of :class:`Gated` for ``target``."""
    lower_to(directory, target, passes=passes, settings=settings)
    return read_dump(directory)
