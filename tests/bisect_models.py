"""What the tests of bisect share: a small model, and a target that is cpu with a wrong pass in it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn


class Net(nn.Module):
    """Two layers and a clamp; every stage of target cpu has something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes [4, 8] to [4, 4]."""
        return self.second(torch.relu(self.first(x)))


def model() -> tuple[Net, tuple[torch.Tensor]]:
    """The model and its input, always the same."""
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 8),)


class Rows(nn.Module):
    """What iree-cpu computes with a kernel of ours: a norm of rows and a clamp."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes [4, 64] to [4, 64]."""
        return torch.relu(nn.functional.layer_norm(x, [64]))


WRONG_PASS = '''
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class WrongMaximum(PythonPass):
    """Before: any level with arith.  After: the minimum where the maximum was."""

    name = "wrong-maximum"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "arith.maximumf":
                kinds = [op.results[0].type]
                new = ir.Operation.create(
                    "arith.minimumf", results=kinds, operands=list(op.operands), ip=ir.InsertionPoint(op)
                )
                op.results[0].replace_all_uses_with(new.result)
                op.erase()
'''

WRONG_TARGET = """
from dataclasses import replace

from mlirstack.pipeline.stage import Pipeline
from mlirstack.targets.{base} import {kind}
from wrong_pass import WrongMaximum


class WrongTarget({kind}):
    def pipeline(self, route: str, level: str) -> Pipeline:
        stages = super().pipeline(route, level).stages
        return Pipeline(
            "wrong-cpu",
            tuple(
                replace(s, steps=(*s.steps[:2], WrongMaximum(), *s.steps[2:])) if s.name == "{stage}" else s
                for s in stages
            ),
        )
"""


def install_wrong_target(
    directory: Path, base: str = "cpu.target", kind: str = "CpuTarget", stage: str = "bufferized"
) -> None:
    """Write the target as a package with an entry point, found where ``directory`` is on the path: target ``kind`` of the
    module ``base``, with a wrong pass in third place of ``stage``."""
    (directory / "wrong_pass.py").write_text(WRONG_PASS)
    (directory / "wrong_target.py").write_text(WRONG_TARGET.format(base=base, kind=kind, stage=stage))
    metadata = directory / "wrong_target-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-target\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[mlirstack.targets]\nwrong-cpu = wrong_target:WrongTarget\n")
